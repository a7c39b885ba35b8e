/* Topics and queues, and one of them: what flows through it, who reads it, and why it keeps what it keeps.
 *
 * Law: changes nothing, except that it can have the collector look now.
 */

import { get, path, post, query } from "./broker.js";
import { Chart, backlogChart } from "./chart.js";
import { when } from "./clock.js";
import { attempt, say } from "./dialogs.js";
import { make } from "./elements.js";
import { bytes, count, rate, several, span } from "./format.js";
import { recall } from "./history.js";
import { lastValueFact } from "./last_values.js";
import {
  QUEUE,
  button,
  chip,
  command,
  empty,
  facts,
  inShell,
  keyOf,
  link,
  panel,
  table,
  tile,
  topicLink,
} from "./parts.js";

const columns = [
  { label: "Topic", sort: "name", isMain: true, cell: (topic) => [topicLink(topic.name), chips(topic)] },
  { label: "Rate/s", sort: "rate", isNumber: true, cell: (topic) => rate(topic.rate) },
  { label: "Published", sort: "published", isNumber: true, cell: (topic) => count(topic.published) },
  { label: "Publishers", sort: "publishers", isNumber: true, cell: (topic) => count(topic.publishers) },
  { label: "Subscribers", sort: "subscribers", isNumber: true, cell: (topic) => count(topic.subscribers) },
  { label: "In memory", sort: "kept_messages", isNumber: true, cell: (topic) => count(topic.kept_messages) },
  { label: "Bytes", sort: "kept_bytes", isNumber: true, cell: (topic) => bytes(topic.kept_bytes) },
  {
    label: "Stored",
    sort: "stored_messages",
    isNumber: true,
    cell: (topic) => (topic.stored ? count(topic.stored_messages) : "–"),
  },
];

export const topicsKind = {
  title: "Topics",
  one: "topic",
  path: "/topics",
  only: { kind: "topic" },
  entries: "topics",
  sort: "-rate",
  columns,
  key: (topic) => topic.name,
  placeholder: "Part of a name",
  nothing: () => [
    make("p", {}, "There are no topics yet. The first message makes one:"),
    command('stompbroker publish /topic/greetings "Hello, world"'),
  ],
};

const queueColumns = [
  { label: "Queue", sort: "name", isMain: true, cell: (queue) => [topicLink(keyOf(queue), queue.name), chips(queue)] },
  { label: "Backlog", sort: "backlog", isNumber: true, cell: (queue) => count(queue.backlog) },
  { label: "In flight", sort: "in_flight", isNumber: true, cell: (queue) => count(queue.in_flight) },
  { label: "Members", sort: "members", isNumber: true, cell: (queue) => count(queue.members) },
  { label: "Rate/s", sort: "rate", isNumber: true, cell: (queue) => rate(queue.rate) },
  { label: "Published", sort: "published", isNumber: true, cell: (queue) => count(queue.published) },
  { label: "Dead letters", isNumber: true, cell: (queue) => letterLink(queue) },
];

export const queuesKind = {
  title: "Queues",
  one: "queue",
  path: "/queues",
  source: "/topics",
  only: { kind: "queue" },
  entries: "topics",
  sort: "-backlog",
  columns: queueColumns,
  key: keyOf,
  placeholder: "Part of a name",
  nothing: () => [
    make("p", {}, "There are no queues yet. The first message makes one, and is kept until a consumer acknowledges it:"),
    command('stompbroker publish /queue/jobs "Do this"'),
    command("stompbroker subscribe /queue/jobs"),
  ],
};

function letterLink(topic) {
  const letters = count(topic.dead_letters);
  return topic.dead_letters ? link(`#/dead-letters${path(keyOf(topic))}`, letters) : letters;
}

/** Dead letters wait for an operator. */
const isForsaken = (queue) => queue.backlog > 0 && !queue.members && !queue.is_of_dead_letters;

const chips = (topic) => [
  topic.blocked &&
    (topic.kind === "queue"
      ? chip("bad", "full", "Its consumers do not keep up; publishers are held back")
      : chip("bad", "blocked", "A subscriber does not keep up; publishers are held back")),
  isForsaken(topic) && chip("warn", "no members", "Nobody takes what waits in it"),
  topic.is_of_dead_letters && chip("warn", "dead letters"),
  topic.retains && chip("", "retains", "Messages are kept for later subscribers"),
];

// One topic ----------------------------------------------------------------------------------------------------------

const readerColumns = [
  {
    label: "Subscription",
    isMain: true,
    cell: (one) => [link(`#/subscriptions/${one.id}`, one.key), one.durable && chip("", "durable")],
  },
  { label: "Members", isNumber: true, cell: (one) => count(one.members) },
  { label: "Acked up to", isNumber: true, cell: (one) => count(one.ack_floor) },
  { label: "Next", isNumber: true, cell: (one) => count(one.next_offset) },
  { label: "Backlog", isNumber: true, cell: (one) => count(one.backlog) },
  { label: "In flight", isNumber: true, cell: (one) => count(one.in_flight) },
  { label: "Waiting", isNumber: true, cell: (one) => count(one.waiting) },
  { label: "Held up", isNumber: true, cell: (one) => count(one.held_up) },
];

const pinningColumns = [
  {
    label: "Kept for",
    isMain: true,
    cell: (one) => [
      one.subscription,
      one.members > 1
        ? chip("good", several(one.members, "member"))
        : one.connected
          ? chip("good", "connected")
          : chip("warn", "away"),
    ],
  },
  { label: "Not settled", isNumber: true, cell: (one) => count(one.unsettled) },
  { label: "From offset", isNumber: true, cell: (one) => count(one.lowest_unsettled) },
  { label: "Oldest", isNumber: true, cell: (one) => when(one.since) },
  { label: "Last seen", isNumber: true, cell: (one) => (one.connected ? "now" : when(one.last_seen_at)) },
];

export const topicView = (context, route) => viewOf(context, route.parts[0], link("#/topics", "Topics"));

export const queueView = (context, route) => viewOf(context, QUEUE + route.parts[0], link("#/queues", "Queues"));

/** `name` is its key. */
function viewOf(context, name, all) {
  const flow = new Chart("Published per second", [["published", "blue"]], rate);
  const waiting = backlogChart();
  let topic = null;
  let kept = null;
  return {
    title: name,
    resource: `/collector${query({ topic: name })}`,
    page(value) {
      kept = value.topics[0] ?? null;
    },
    async tick(overview) {
      const atMs = Date.parse(overview.sampled_at);
      const found = await get(`/topics${path(name)}`);
      const charts = found.kind === "queue" ? [flow, waiting] : [flow];
      if (flow.hasMissed(atMs)) await recall(charts, "topic", name);
      topic = found;
      flow.add(atMs, [topic.rate]);
      waiting.add(atMs, [topic.backlog, topic.in_flight]);
    },
    content() {
      const heading = make(
        "div",
        { class: "heading" },
        make("div", {}, make("h1", { tabindex: "-1" }, name), topic && make("span", { class: "chips" }, chips(topic))),
      );
      const back = make("p", { class: "back" }, all);
      if (topic == null) return [back, heading, make("p", { class: "muted" }, "Loading…")];
      return [
        back,
        heading,
        tiles(topic, context.seesAll()),
        topic.kind === "queue"
          ? [make("div", { class: "charts two" }, flow.picture(), waiting.picture()), offsets(topic)]
          : make("div", { class: "columns" }, flow.picture(), offsets(topic)),
        readers(topic),
        make("div", { class: "columns" }, kept && why(kept, context.changesAll()), policy(topic.policy)),
      ];
    },
  };
}

/** How many wait, and who takes them. */
const queueTiles = (queue) => [
  tile("Backlog", count(queue.backlog), { note: "still to be sent" }),
  tile("In flight", count(queue.in_flight), { note: "sent, not answered" }),
  tile("Members", count(queue.members), {
    note: queue.members ? "take from it" : "nobody is attached",
    hash: queue.subscriptions.length > 0 && `#/subscriptions/${queue.subscriptions[0].id}`,
    kind: isForsaken(queue) ? "warn" : "",
  }),
];

const tiles = (topic, seesAll) =>
  make(
    "div",
    { class: "tiles" },
    topic.kind === "queue" && queueTiles(topic),
    tile("Published/s", rate(topic.rate), { note: `${bytes(topic.byte_rate)}/s` }),
    tile("Published", count(topic.published), { note: bytes(topic.published_bytes) }),
    tile("Publishers", count(topic.publishers), {
      note: topic.publisher_connections.length ? "connections" : "nobody now",
      hash: seesAll && "#/connections",
    }),
    topic.kind !== "queue" &&
      tile("Subscribers", count(topic.subscribers), {
        note: "read it",
        hash: `#/subscriptions${query({ topic: topic.name })}`,
      }),
    tile("In memory", count(topic.kept_messages), { note: bytes(topic.kept_bytes) }),
    tile("Stored", topic.stored ? count(topic.stored_messages) : "–", {
      note: topic.stored ? bytes(topic.stored_bytes) : "not through the store",
    }),
  );

const offsets = (topic) =>
  panel(
    "Offsets",
    facts([
      ["First", count(topic.first_offset)],
      ["Next", count(topic.next_offset)],
      ["Last used", when(topic.last_used_at)],
      topic.last_value && lastValueFact(topic.last_value),
      [
        "Published by",
        topic.publisher_connections.length
          ? make(
              "span",
              { class: "list" },
              topic.publisher_connections.map((id) => link(`#/connections${query({ q: id })}`, `#${id}`)),
            )
          : "nobody now",
      ],
      topic.is_of_dead_letters && [
        "Letters",
        link(`#/dead-letters${path(keyOf(topic).replace(/^(\/queue\/)?DLQ\./, "$1"))}`, "show them"),
      ],
      topic.dead_letters > 0 && ["Dead letters", letterLink(topic)],
    ]),
  );

const readers = (topic) =>
  panel(
    "Who reads it",
    topic.subscriptions.length
      ? table({ caption: "Who reads it", columns: readerColumns, rows: topic.subscriptions, key: (one) => one.id })
      : empty(make("p", {}, "Nobody. Subscribe with:"), command(`stompbroker subscribe ${inShell(topic.destination)}`)),
  );

function why(kept, canCollect) {
  return panel(
    "Why it keeps what it keeps",
    make("p", { id: "why" }, `${kept.why[0].toUpperCase()}${kept.why.slice(1)}.`),
    kept.pinned_by.length > 0 &&
      table({ caption: "Kept for", columns: pinningColumns, rows: kept.pinned_by, key: (one) => one.subscription }),
    facts([
      ["In memory", `${several(kept.in_memory.messages, "message")}, ${bytes(kept.in_memory.bytes)}`],
      kept.stored && ["Stored", `${several(kept.stored.messages, "message")}, ${bytes(kept.stored.bytes)}`],
      kept.retention && ["Retained", `${several(kept.retention.messages, "message")}, ${bytes(kept.retention.bytes)}`],
      ["Could go now", several(kept.collectable.messages, "message")],
    ]),
    canCollect &&
      make(
        "p",
        { class: "buttons" },
        button("Collect now", () =>
          attempt(async () => {
            await post("/collector/run");
            say("The collector looks at all topics now.");
          }),
        ),
      ),
  );
}

function policy({ delivery, retention, ...limits }) {
  const lasting = (milliseconds, none) => (milliseconds ? span(milliseconds / 1000) : none);
  return panel(
    "Policy",
    facts([
      ["Slow subscriber", limits.slow_subscriber],
      ["Window", `${several(limits.window_messages, "message")}, ${bytes(limits.window_bytes)}`],
      ["Blocks for", limits.block_timeout_s ? `at most ${span(limits.block_timeout_s)}` : "as long as it takes"],
      ["Messages live", lasting(limits.message_ttl_ms, "for ever")],
      [
        "Attempts",
        delivery.max_attempts ? `${count(delivery.max_attempts)}, then ${delivery.when_used_up}` : "without end",
      ],
      [
        "Comes again",
        `after ${lasting(delivery.first_delay_ms, "no time")}, ×${delivery.multiplier} each time, at most ${lasting(delivery.max_delay_ms, "no time")}`,
      ],
      ["Ack deadline", lasting(delivery.ack_deadline_ms, "none")],
      ["Retains", retains(retention)],
    ]),
  );
}

function retains({ age_s: ageS, max_bytes: maxBytes, max_messages: maxMessages }) {
  const bounds = [
    ageS && span(ageS),
    maxBytes && bytes(maxBytes),
    maxMessages && several(maxMessages, "message"),
  ].filter(Boolean);
  return bounds.length ? bounds.join(", ") : "nothing for later subscribers";
}
