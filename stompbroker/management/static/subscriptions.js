/* Subscriptions, and one of them: how far behind it is, what it has not settled, and what can be done about it.
 *
 * Law: an action that loses messages for a subscriber needs a confirmation that says how many.
 */

import { get, path, post, remove } from "./broker.js";
import { Chart, backlogChart } from "./chart.js";
import { due, when } from "./clock.js";
import { ask, attempt, say } from "./dialogs.js";
import { make } from "./elements.js";
import { age, count, rate, several } from "./format.js";
import { recall } from "./history.js";
import { button, chip, command, empty, facts, inShell, link, panel, table, tile, topicLink } from "./parts.js";

const address = (one) => `#/subscriptions/${encodeURIComponent(one.id)}`;

const chips = (one) => [
  one.paused && chip("warn", "paused"),
  one.durable && chip("", "durable"),
  one.ordered && chip("", "ordered", "One message at a time, in order"),
  one.browser && chip("", "browser", "Looks at the queue and takes nothing"),
  one.sharing === "exclusive" && chip("", "exclusive", "One member gets everything, the others stand by"),
  !one.connected
    ? chip("warn", "away", "Nobody is attached to it")
    : one.sharing === "none"
      ? chip("good", "connected")
      : chip("good", several(one.members, "member"), "Each message goes to one of them"),
];

const nameColumn = {
  label: "Subscription",
  sort: "key",
  isMain: true,
  cell: (one) => [
    make("span", { class: "line" }, link(address(one), one.key), chips(one)),
    one.destination !== one.key && make("span", { class: "muted line" }, one.destination),
  ],
};
const number = (label, field, write = count, sort = null) => ({
  label,
  sort,
  isNumber: true,
  cell: (one) => write(one[field]),
});

export const behindColumns = [
  nameColumn,
  number("Backlog", "backlog"),
  number("Lag", "lag_s", age),
  number("In flight", "in_flight"),
  number("Acked/s", "ack_rate", rate),
  number("Drains in", "drain_s", age),
];

export const subscriptionsKind = {
  title: "Subscriptions",
  one: "subscription",
  path: "/subscriptions",
  entries: "subscriptions",
  sort: "-backlog",
  columns: [
    nameColumn,
    number("Backlog", "backlog", count, "backlog"),
    number("Lag", "lag_s", age),
    number("In flight", "in_flight", count, "in_flight"),
    number("Waiting", "waiting", count, "waiting"),
    number("Delivered/s", "rate", rate, "rate"),
    number("Acked/s", "ack_rate", rate),
    number("Delivered", "delivered", count, "delivered"),
    number("Redelivered", "redelivered", count, "redelivered"),
    number("Dead", "dead", count, "dead"),
  ],
  key: (one) => one.id,
  placeholder: "Part of a name or destination",
  choices: [
    {
      name: "shared",
      label: "Shared or not",
      options: [
        ["", "Shared or not"],
        ["true", "Groups and queues only"],
        ["false", "Others only"],
      ],
    },
    {
      name: "durable",
      label: "Durable or not",
      options: [
        ["", "Durable and transient"],
        ["true", "Durable only"],
        ["false", "Transient only"],
      ],
    },
  ],
  narrowings: [{ name: "topic", says: (topic) => `Of topic ${topic}` }],
  nothing: () => [
    make("p", {}, "Nobody subscribes yet. Try one of these:"),
    command("stompbroker subscribe /topic/greetings"),
    command("stompbroker subscribe /topic/orders --durable invoices"),
    command("stompbroker subscribe /topic/orders --group billing"),
    command("stompbroker subscribe /queue/jobs"),
  ],
};

const memberColumns = (seesAll) => [
  {
    label: "Member",
    isMain: true,
    cell: (one) =>
      make(
        "span",
        { class: "line" },
        !seesAll || one.peer == null
          ? (one.id ?? "–")
          : [link(`#/connections?q=${encodeURIComponent(one.connection)}`, one.peer), ` #${one.connection}`],
        !one.active && chip("", "stands by", "Another member gets everything"),
      ),
  },
  { label: "Name in the ledger", cell: (one) => one.member ?? "–" },
  number("In flight", "in_flight"),
  number("Prefetch", "prefetch"),
  number("Delivered/s", "rate", rate),
  number("Delivered", "delivered"),
  { label: "Acknowledges", cell: (one) => one.ack },
  { label: "Id", cell: (one) => one.id ?? "–" },
];

// One subscription ---------------------------------------------------------------------------------------------------

const positionColumns = [
  { label: "Topic", isMain: true, cell: (one) => topicLink(one.topic) },
  number("Acked up to", "ack_floor"),
  number("Next", "next_offset"),
  number("End", "end_offset"),
  number("Backlog", "backlog"),
  number("In flight", "in_flight"),
  number("Waiting", "waiting"),
];

const unsettledColumns = [
  { label: "Message", isMain: true, cell: (one) => [topicLink(one.topic), ` @ ${count(one.offset)}`] },
  { label: "State", cell: (one) => chip(one.state === "waiting" ? "warn" : "", one.state) },
  number("Attempts", "attempts"),
  { label: "First", cell: (one) => when(one.first_attempt_at) },
  { label: "Last", cell: (one) => when(one.last_attempt_at) },
  { label: "Next", cell: (one) => due(one.next_attempt_at) },
  { label: "Reason", isWide: true, cell: (one) => one.reason ?? "–" },
];

export function subscriptionView(context, route) {
  const id = route.parts[0];
  const resource = `/subscriptions${path(id)}`;
  const flow = new Chart(
    "Per second",
    [
      ["delivered", "green"],
      ["acked", "violet"],
    ],
    rate,
  );
  const behind = backlogChart();
  let shown = null;

  const change = (verb) =>
    attempt(async () => {
      shown = { ...shown, ...(await post(`${resource}/${verb}`)) };
      context.refresh();
    });

  const move = () =>
    ask({
      title: `Move ${shown.key}`,
      content: [
        make("p", {}, `It reads on from another place. ${attached(shown)}`),
        make(
          "fieldset",
          {},
          make("legend", {}, "To"),
          place("earliest", "the first message that is still there", { checked: true }),
          place("latest", "behind everything there is; what it has not settled is left out"),
          place(
            "offset",
            "an offset:",
            {},
            make("input", { name: "offset", inputmode: "numeric", pattern: "[0-9]+", "aria-label": "Offset" }),
          ),
          place(
            "time",
            "a time or an age:",
            {},
            make("input", { name: "time", placeholder: "1h, or 2026-03-31T08:00:00Z", "aria-label": "Time or age" }),
          ),
        ),
      ],
      yes: "Move",
      act: async (form) => {
        const kind = form.get("to");
        const to =
          kind === "offset" ? `offset=${form.get("offset").trim()}` : kind === "time" ? form.get("time").trim() : kind;
        const moved = await post(`${resource}/move`, { to });
        say(`${moved.key} reads on from offset ${count(moved.offset)}; its backlog is ${count(moved.backlog)}.`);
      },
    });

  const discard = () =>
    ask({
      title: `Delete ${shown.key}?`,
      content: [
        make(
          "p",
          {},
          shown.backlog + shown.in_flight
            ? `It has ${several(shown.backlog, "message")} still to get and ${count(shown.in_flight)} in flight. They are lost for it.`
            : "It has nothing left to get.",
        ),
        make("p", {}, attached(shown)),
      ],
      yes: "Delete",
      isDangerous: true,
      act: async () => {
        const gone = await remove(resource);
        say(`${gone.key} is deleted; its backlog was ${count(gone.backlog)}.`);
        context.push("#/subscriptions", {});
      },
    });

  const actions = () =>
    make(
      "div",
      { class: "buttons" },
      shown.paused
        ? button("Resume", () => change("resume"), { class: "primary" })
        : button("Pause", () => change("pause")),
      shown.durable && button("Move…", move),
      button("Delete…", discard, { class: "danger" }),
    );

  return {
    title: id,
    resource: null,
    async tick(overview) {
      const atMs = Date.parse(overview.sampled_at);
      const found = await get(resource);
      if (flow.hasMissed(atMs)) await recall([flow, behind], "subscription", id);
      shown = found;
      this.title = shown.key;
      flow.add(atMs, [shown.rate, shown.ack_rate]);
      behind.add(atMs, [shown.backlog, shown.in_flight]);
    },
    content() {
      const back = make("p", { class: "back" }, link("#/subscriptions", "Subscriptions"));
      const heading = make(
        "div",
        { class: "heading" },
        make(
          "div",
          {},
          make("h1", { tabindex: "-1" }, shown?.key ?? id),
          shown && make("span", { class: "chips" }, chips(shown)),
        ),
        shown?.can_change && actions(),
      );
      if (shown == null) return [back, heading, make("p", { class: "muted" }, "Loading…")];
      return [
        back,
        heading,
        tiles(shown),
        make("div", { class: "charts two" }, flow.picture(), behind.picture()),
        shown.sharing !== "none" && members(shown, context.seesAll()),
        make("div", { class: "columns even" }, counts(shown), about(shown, context.seesAll())),
        positions(shown),
        unsettled(shown),
      ];
    },
  };
}

function attached(one) {
  if (!one.connected) return "Nobody is attached to it.";
  if (one.sharing !== "none") return `Its ${several(one.members, "member is", "members are")} disconnected.`;
  return `Whoever is attached to it${one.peer == null ? "" : ` (${one.peer})`} is disconnected.`;
}

const place = (value, text, properties = {}, field = null) =>
  make(
    "label",
    { class: "choice" },
    make("input", { type: "radio", name: "to", value, ...properties }),
    make("span", {}, text, field && " ", field),
  );

const tiles = (one) =>
  make(
    "div",
    { class: "tiles" },
    tile("Backlog", count(one.backlog), { note: "still to get" }),
    tile("Lag", age(one.lag_s), { note: "oldest not settled" }),
    tile("In flight", count(one.in_flight), { note: one.prefetch == null ? "" : `of ${count(one.prefetch)} at most` }),
    tile("Waiting", count(one.waiting), { note: "failed, to come again" }),
    tile("Delivered/s", rate(one.rate), { note: `${count(one.delivered)} in all` }),
    tile("Acked/s", rate(one.ack_rate), { note: `${count(one.acked)} in all` }),
    tile("Drains in", age(one.drain_s), { note: "at this rate" }),
  );

const members = (one, seesAll) =>
  panel(
    "Members",
    one.consumers.length
      ? [
          table({
            caption: "Members",
            columns: memberColumns(seesAll),
            // Not by connection, which is not told to everybody.
            rows: one.consumers.map((each, place) => ({ ...each, place })),
            key: (each) => String(each.place),
          }),
          one.members > one.consumers.length &&
            make("p", { class: "muted" }, `The first ${count(one.consumers.length)} of ${count(one.members)}.`),
        ]
      : empty(make("p", {}, "Nobody is attached. What comes is kept."), joining(one)),
  );

/** How to become a member of a queue or a group. */
function joining(one) {
  if (one.kind !== "queue" && !one.key.startsWith("group:")) return null;
  const words = [one.destination, ...(one.kind === "queue" ? [] : ["--group", one.durable_name])];
  return command(`stompbroker subscribe ${words.map(inShell).join(" ")}`);
}

const counts = (one) =>
  panel(
    "What became of its messages",
    facts([
      ["Delivered", count(one.delivered)],
      ["Acked", count(one.acked)],
      ["Redelivered", count(one.redelivered)],
      ["Nacked", count(one.nacked)],
      ["Overdue", count(one.overdue)],
      ["Dead letters", one.dead ? link("#/dead-letters", count(one.dead)) : "0"],
      ["Discarded", count(one.discarded)],
      ["Expired", count(one.expired)],
      ["Dropped", count(one.dropped)],
      ["Late answers", count(one.late)],
    ]),
  );

const about = (one, seesAll) =>
  panel(
    "About it",
    facts([
      ["Destination", one.destination],
      one.sharing === "none" && ["Connection", one.connected ? connection(one, seesAll) : "nobody is attached"],
      // The members of a group differ in these.
      one.sharing === "none" && ["Acknowledges", one.ack],
      one.sharing === "none" && ["Prefetch", count(one.prefetch)],
      one.durable && ["Created", when(one.created_at)],
      one.durable && ["Last seen", one.connected ? "now" : when(one.last_seen_at)],
      ["Oldest unanswered", when(one.oldest_unacknowledged_at)],
      ["Id", one.id],
    ]),
  );

const connection = (one, seesAll) =>
  seesAll && one.peer != null
    ? [link(`#/connections?q=${encodeURIComponent(one.peer)}`, one.peer), ` #${one.connection}`]
    : "somebody";

const positions = (one) =>
  panel(
    "Where it stands",
    one.topics.length
      ? table({ caption: "Where it stands", columns: positionColumns, rows: one.topics, key: (each) => each.topic })
      : empty(make("p", {}, "No topic is like that yet.")),
  );

const unsettled = (one) =>
  panel(
    "Not settled",
    one.unsettled.length
      ? [
          table({
            caption: "Not settled",
            columns: unsettledColumns,
            rows: one.unsettled,
            key: (each) => `${each.topic} ${each.offset}`,
          }),
          one.unsettled.length >= 100 && make("p", { class: "muted" }, "The first 100."),
        ]
      : empty(make("p", {}, "Everything that was sent to it is settled.")),
  );
