/* Connections. Closing one needs a confirmation. */

import { path, remove } from "./broker.js";
import { when } from "./clock.js";
import { ask, say } from "./dialogs.js";
import { make } from "./elements.js";
import { bytes, count, several, span } from "./format.js";
import { button, chip, command, topicLink } from "./parts.js";

/** Topics of a publisher that are named; the others are counted. */
const NAMED_TOPICS = 3;

const columns = [
  {
    label: "Peer",
    sort: "peer",
    isMain: true,
    cell: (one) => [
      make(
        "span",
        { class: "line" },
        make("b", {}, one.peer),
        one.held_back && chip("warn", "held back", "It publishes to a topic that is blocked"),
      ),
      one.client_id && make("span", { class: "muted line" }, one.client_id),
    ],
  },
  { label: "#", title: "Number", sort: "id", isNumber: true, cell: (one) => String(one.id) },
  { label: "User", cell: (one) => one.user ?? "–" },
  { label: "Endpoint", cell: (one) => one.endpoint || "–" },
  { label: "Publishes to", isWide: true, cell: (one) => publishing(one.publishing_to) },
  { label: "Subscriptions", isNumber: true, cell: (one) => count(one.subscriptions) },
  { label: "In flight", isNumber: true, cell: (one) => count(one.in_flight) },
  { label: "In", sort: "bytes_in", isNumber: true, cell: (one) => bytes(one.bytes_in) },
  { label: "Out", sort: "bytes_out", isNumber: true, cell: (one) => bytes(one.bytes_out) },
  { label: "STOMP", cell: (one) => one.version ?? "–" },
  {
    label: "Heart-beats",
    cell: (one) => `${beat(one.heart_beat_to_client_ms)} / ${beat(one.heart_beat_from_client_ms)}`,
  },
  { label: "Since", sort: "connected_at", cell: (one) => when(one.connected_at) },
  {
    label: "Action",
    isCorner: true,
    isAction: true,
    cell: (one) => button("Close…", () => close(one), { "aria-label": `Close ${one.peer}` }),
  },
];

export const connectionsKind = {
  title: "Connections",
  one: "connection",
  path: "/connections",
  entries: "connections",
  sort: "id",
  columns,
  key: (one) => String(one.id),
  placeholder: "Part of a peer, client id or user",
  nothing: () => [
    make("p", {}, "Nobody is connected. Any STOMP client will do, or:"),
    command("stompbroker subscribe /topic/greetings"),
  ],
};

const beat = (milliseconds) => (milliseconds ? span(milliseconds / 1000) : "none");

function publishing(topics) {
  if (!topics.length) return "–";
  const more = topics.length - NAMED_TOPICS;
  return make(
    "span",
    { class: "list" },
    topics.slice(0, NAMED_TOPICS).map(topicLink),
    more > 0 && make("span", {}, `${count(more)} more`),
  );
}

const close = (one) =>
  ask({
    title: `Close ${one.peer}?`,
    content: [
      make(
        "p",
        {},
        `It has ${several(one.subscriptions, "subscription")} and ${several(one.in_flight, "message")} in flight. ` +
          "It gets an ERROR that says an operator has closed it, and may connect again.",
      ),
    ],
    yes: "Close the connection",
    isDangerous: true,
    act: async () => {
      await remove(`/connections${path(one.id)}`);
      say(`${one.peer} is closed.`);
    },
  });
