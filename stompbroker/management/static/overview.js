/* The overview: what flows, what waits, who is behind, and how the broker is.
 *
 * It shows the broker's last second, and the hour before.
 */

import { Problem } from "./broker.js";
import { Chart } from "./chart.js";
import { secondsSince } from "./clock.js";
import { make } from "./elements.js";
import { age, bytes, count, milliseconds, rate, several } from "./format.js";
import { recall } from "./history.js";
import { command, empty, link, panel, table, tile } from "./parts.js";
import { behindColumns } from "./subscriptions.js";

const published = new Chart("Published per second", [["published", "blue"]], rate);
const delivered = new Chart(
  "Delivered per second",
  [
    ["delivered", "green"],
    ["acked", "violet"],
  ],
  rate,
);
const unsettled = new Chart(
  "Not settled yet",
  [
    ["backlog", "amber"],
    ["in flight", "green"],
  ],
  count,
);

/**
 * Called in every view, so that the charts are complete when one comes back. What they have missed is requested, and
 * `recalled` called when it is there.
 */
export function remember(overview, recalled) {
  const atMs = Date.parse(overview.sampled_at);
  if (published.hasMissed(atMs)) recallAll().then(recalled);
  const { rates, now } = overview;
  published.add(atMs, [rates.published ?? 0]);
  delivered.add(atMs, [rates.delivered ?? 0, rates.acked ?? 0]);
  unsettled.add(atMs, [now.backlog, now.in_flight]);
}

async function recallAll() {
  try {
    await recall([published, delivered, unsettled]);
  } catch (error) {
    // The stream of events notices by itself that there is no connection or login any more.
    if (!(error instanceof Problem)) throw error;
  }
}

const STORE_WORDS = { ok: "OK", "low-space": "Low on space", failing: "Failing", damaged: "Damaged" };

export function overviewView(context) {
  let behind = null;
  return {
    title: "Overview",
    resource: "/subscriptions?sort=-backlog&limit=5",
    page(value) {
      behind = value.subscriptions;
    },
    content() {
      const overview = context.overview();
      const heading = make("h1", { tabindex: "-1", class: "unseen" }, "Overview");
      if (overview == null) return [heading, make("p", { class: "muted" }, "Loading…")];
      return [
        heading,
        make("div", { class: "tiles ten" }, ...flow(overview), ...waiting(overview), ...people(overview, context.seesAll())),
        make("div", { class: "charts" }, published.picture(), delivered.picture(), unsettled.picture()),
        make("div", { class: "columns" }, slow(behind), make("div", { class: "pile" }, health(overview), bridges(overview))),
      ];
    },
  };
}

function flow({ rates, totals }) {
  const per = (name, label) =>
    tile(`${label}/s`, rate(rates[name] ?? 0), { note: `${count(totals[name] ?? 0)} in all` });
  return [per("published", "Published"), per("delivered", "Delivered"), per("acked", "Acked")];
}

function waiting({ now }) {
  return [
    tile("Backlog", count(now.backlog), { note: "still to be sent", hash: "#/subscriptions" }),
    tile("In flight", count(now.in_flight), { note: "sent, not answered", hash: "#/subscriptions?sort=-in_flight" }),
    tile("Waiting", count(now.waiting), { note: "failed, to come again", hash: "#/subscriptions?sort=-waiting" }),
    tile("Dead letters", count(now.dead_letters), {
      note: now.dead_letters ? "see why" : "none",
      hash: "#/dead-letters",
      kind: now.dead_letters ? "warn" : "",
    }),
  ];
}

function people({ now }, seesAll) {
  return [
    tile("Connections", count(now.connections), { note: "open", hash: seesAll && "#/connections" }),
    tile("Topics", count(now.topics - now.queues), {
      note: now.blocked_topics ? `${count(now.blocked_topics)} blocked` : `and ${several(now.queues, "queue")}`,
      hash: "#/topics",
      kind: now.blocked_topics ? "bad" : "",
    }),
    tile("Subscriptions", count(now.subscriptions), {
      note: `${count(now.durable_subscriptions)} durable`,
      hash: "#/subscriptions?sort=key",
    }),
  ];
}

function slow(subscriptions) {
  if (subscriptions == null) return panel("Furthest behind", make("p", { class: "muted" }, "Loading…"));
  if (!subscriptions.length) {
    return panel(
      "Furthest behind",
      empty(
        make("p", {}, "Nobody subscribes yet. Try:"),
        command("stompbroker subscribe /topic/greetings"),
        make("p", {}, "and in another terminal:"),
        command('stompbroker publish /topic/greetings "Hello, world"'),
      ),
    );
  }
  return panel(
    "Furthest behind",
    table({ caption: "Furthest behind", columns: behindColumns, rows: subscriptions, key: (one) => one.id }),
    make("p", { class: "more" }, link("#/subscriptions", "All subscriptions")),
  );
}

function health({ broker, listening, now, memory, store, ledger, event_loop: loop }) {
  const used = memory.limit_bytes ? memory.used_bytes / memory.limit_bytes : 0;
  const kind = used > 0.9 ? "bad" : used > 0.7 ? "warn" : "";
  const share = `${used > 0 && used < 0.01 ? "<1" : Math.round(used * 100)} % of ${bytes(memory.limit_bytes)}`;
  return panel(
    "The broker",
    make(
      "dl",
      { class: "facts" },
      fact(
        "Memory",
        make("meter", { class: kind, min: 0, max: 1, value: used.toFixed(3), "aria-label": `Memory: ${share}` }),
        make("span", {}, `${bytes(memory.used_bytes)}, ${share}`),
        muted(`at most ${bytes(memory.peak_bytes)} so far`),
      ),
      now.last_values > 0 &&
        fact(
          "Last values",
          link("#/last-values", several(now.last_values, "topic has one", "topics have one")),
          muted(`${bytes(memory.last_values_bytes)} of ${bytes(memory.last_values_limit_bytes)}`),
        ),
      fact(
        "Store",
        make("span", { class: store.state === "ok" ? "good" : "bad", id: "store-state" }, STORE_WORDS[store.state]),
        store.reason && make("span", {}, store.reason),
        store.state !== "ok" && store.since && make("span", {}, `for ${age(secondsSince(store.since))}`),
        muted(
          `${store.engine}${store.stored_bytes == null ? "" : `, ${bytes(store.stored_bytes)}`}; ${several(store.backlog_units, "write")} under way`,
        ),
      ),
      ledger && lake(ledger),
      fact(
        "Event loop",
        make("span", {}, `${milliseconds(loop.lag_ms)} late`),
        muted(
          `longest stretch ${milliseconds(loop.longest_stretch_ms)}${loop.longest_stretch_actor ? ` (${loop.longest_stretch_actor})` : ""}`,
        ),
      ),
      listening.length > 0 && fact("Listens on", ...listening.map((url) => make("span", {}, url))),
      fact("Running", make("span", {}, `for ${age(broker.uptime_s)}`), muted(`stompbroker ${broker.version}`)),
    ),
  );
}

/** Each direction of a bridge by itself; nothing where there are none. */
function bridges({ bridges: crossings }) {
  if (!crossings.length) return null;
  return panel(
    "Bridges",
    make(
      "dl",
      { class: "facts" },
      crossings.map((one) => {
        const isWell = one.state === "connected";
        return fact(
          `${one.name}, ${one.direction}`,
          make("span", { class: isWell ? "good" : "bad" }, isWell ? "Connected" : "Not connected"),
          !isWell && one.problem && make("span", {}, one.problem),
          muted(
            `for ${age(secondsSince(one.since))}${one.backlog == null ? "" : `; ${several(one.backlog, "message")} to send`}`,
          ),
        );
      }),
    ),
  );
}

function lake(ledger) {
  const isWell = ledger.state === "ok";
  const last = ledger.last_export_at;
  return fact(
    "Lake",
    make("span", { class: isWell ? "good" : "bad", id: "lake-state" }, isWell ? "OK" : "Failing"),
    ledger.reason && make("span", {}, ledger.reason),
    !isWell && make("span", {}, `for ${age(secondsSince(ledger.since))}`),
    muted(
      `${several(ledger.waiting_records, "record")} to export, ${bytes(ledger.waiting_bytes)}; ${last ? `last export ${age(secondsSince(last))} ago` : "no export yet"}`,
    ),
  );
}

const fact = (name, ...values) => make("div", {}, make("dt", {}, name), make("dd", { class: "stack" }, ...values));

const muted = (text) => make("span", { class: "muted" }, text);
