/* Last values of topics, which newcomers get first; one of them, whole; removing it needs a confirmation.
 *
 * Law: a value may be large, so all of it is requested once, and again only when there is another one.
 */

import { get, path, query, remove } from "./broker.js";
import { due, when } from "./clock.js";
import { ask, say } from "./dialogs.js";
import { make } from "./elements.js";
import { bytes } from "./format.js";
import { body, headers } from "./message.js";
import { button, chip, command, empty, facts, link, panel, topicLink } from "./parts.js";

const address = (topic) => `#/last-values${path(topic)}`;

const columns = [
  {
    label: "Topic",
    sort: "topic",
    isMain: true,
    cell: (one) => [link(address(one.topic), one.topic), passing(one)],
  },
  { label: "Published", sort: "published_at", isNumber: true, cell: (one) => when(one.published_at) },
  { label: "Expires", isNumber: true, cell: (one) => (one.expires_at ? due(one.expires_at) : "never") },
  { label: "Size", sort: "body_bytes", isNumber: true, cell: (one) => bytes(one.body_bytes) },
  {
    label: "Action",
    isCorner: true,
    isAction: true,
    cell: (one) => button("Remove…", () => askRemoval(one.topic), { "aria-label": `Remove that of ${one.topic}` }),
  },
];

export const lastValuesKind = {
  title: "Last values",
  one: "last value",
  path: "/last-values",
  entries: "last_values",
  sort: "topic",
  columns,
  key: (one) => one.topic,
  placeholder: "Part of a name",
  nothing: () => [
    make("p", {}, "No topic has one. A publisher sets it, and newcomers get it first:"),
    command("stompbroker publish /topic/prices.eur 1.1 --header retain:set"),
  ],
};

const passing = (one) => !one.stored && chip("", "in memory", "It ends with the broker's process");

const askRemoval = (topic, then = () => {}) =>
  ask({
    title: `Remove the last value of ${topic}?`,
    content: [make("p", {}, "Newcomers get none then, until somebody sets the next one. Nothing is published.")],
    yes: "Remove",
    isDangerous: true,
    act: async () => {
      await remove(`/last-values${path(topic)}`);
      say(`The last value of ${topic} is removed.`);
      then();
    },
  });

export function lastValueView(context, route) {
  const topic = route.parts[0];
  const all = lastValuesKind.path;
  /** As it is listed; undefined until that is known. */
  let listed;
  let value = null;
  return {
    title: `Last value of ${topic}`,
    resource: `${all}${query({ pattern: `/topic/${topic}`, limit: 1 })}`,
    page(answer) {
      [listed = null] = answer.last_values;
    },
    async tick() {
      if (listed && listed.message_id !== value?.message_id) value = await get(all + path(topic));
    },
    content() {
      const back = make("p", { class: "back" }, link(`#${all}`, lastValuesKind.title));
      const heading = make(
        "div",
        { class: "heading" },
        make("h1", { tabindex: "-1" }, topic),
        listed &&
          value?.can_remove &&
          make(
            "div",
            { class: "buttons" },
            button("Remove…", () => askRemoval(topic, () => context.push(`#${all}`, {})), { class: "danger" }),
          ),
      );
      if (listed === null) return [back, heading, empty(make("p", {}, `${topic} has no last value.`))];
      if (value == null) return [back, heading, make("p", { class: "muted" }, "Loading…")];
      return [back, heading, make("div", { class: "columns even" }, story(value), headers(value)), body(value)];
    },
  };
}

const story = (value) =>
  panel(
    "Last value",
    facts([
      ["Topic", topicLink(value.topic)],
      ["Published", when(value.published_at)],
      ["Expires", value.expires_at ? due(value.expires_at) : "never"],
      ["Stored", value.stored ? "yes" : "no: it ends with the broker's process"],
      ["Message", value.message_id],
    ]),
  );

/** What a topic's own view says of it. */
export const lastValueFact = (value) => [
  "Last value",
  link(address(value.topic), bytes(value.body_bytes)),
  " of ",
  when(value.published_at),
];
