/* One dead letter, whole: why it died, its headers, its body.
 *
 * Law: a letter does not change, so it is requested once.
 */

import { get, path, post } from "./broker.js";
import { when } from "./clock.js";
import { ask, say } from "./dialogs.js";
import { make } from "./elements.js";
import { count } from "./format.js";
import { body, headers } from "./message.js";
import { button, chip, facts, isQueue, link, panel, topicLink } from "./parts.js";

/** The address of a topic's letters, or of one letter. */
export const address = (topic, ...more) => `#/dead-letters${path(topic, ...more)}`;

/** The choice of where to redrive to: `one` says who failed, and `many` what all get. A queue is all there is. */
export const toWhom = (topic, one, many, isOne = true) =>
  isQueue(topic)
    ? make("p", {}, `To ${topic}, from where one consumer gets it.`)
    : make(
        "fieldset",
        {},
        make("legend", {}, "To"),
        choice("subscriber", one, isOne),
        choice("topic", many, !isOne),
      );

const choice = (value, text, checked) =>
  make(
    "label",
    { class: "choice" },
    make("input", { type: "radio", name: "to", value, checked }),
    make("span", {}, text),
  );

export function deadLetterView(context, route) {
  const [topic, offset] = route.parts;
  const resource = `/dead-letters${path(topic)}`;
  let letter = null;

  const act = (verb, fields) => async (form) => {
    const answer = await post(`${resource}/${verb}`, {
      offset: Number(offset),
      ...(form.get("to") && { to: form.get("to") }),
      ...fields,
    });
    if (answer.skipped?.length) throw new Error(`It was not redriven: ${answer.skipped[0].why}.`);
    say(verb === "redrive" ? "The letter is redriven." : "The letter is purged.");
    context.push(address(topic), {});
  };

  const redrive = () =>
    ask({
      title: "Redrive this letter?",
      content: [
        toWhom(
          topic,
          `the subscriber that failed (${letter.subscription})`,
          "the topic: every subscriber gets it again",
          letter.is_durable,
        ),
      ],
      yes: "Redrive",
      act: act("redrive"),
    });
  const purge = () =>
    ask({
      title: "Purge this letter?",
      content: [make("p", {}, "It is gone for good, with what it is about.")],
      yes: "Purge",
      isDangerous: true,
      act: act("purge"),
    });

  return {
    title: `Dead letter ${offset} of ${topic}`,
    resource: null,
    async tick() {
      letter ??= await get(resource + path(offset));
    },
    content() {
      const back = make("p", { class: "back" }, link(address(topic), `Dead letters of ${topic}`));
      const title = make("h1", { tabindex: "-1" }, `${topic} @ ${count(offset)}`);
      const heading = make(
        "div",
        { class: "heading" },
        title,
        letter &&
          make(
            "div",
            { class: "buttons" },
            letter.can_redrive && button("Redrive…", redrive, { class: "primary" }),
            letter.can_purge && button("Purge…", purge, { class: "danger" }),
          ),
      );
      if (letter == null) return [back, heading, make("p", { class: "muted" }, "Loading…")];
      return [
        back,
        heading,
        make("div", { class: "columns even" }, story(letter, topic), headers(letter)),
        body(letter),
      ];
    },
  };
}

const story = (letter, topic) =>
  panel(
    "Why it died",
    facts([
      ["Reason", letter.reason || "–"],
      ["Cause", letter.cause],
      ["Subscription", letter.subscription, " ", !letter.is_durable && !isQueue(topic) && chip("", "transient")],
      ["Attempts", count(letter.attempts)],
      ["Published", when(letter.published_at), " to ", topicLink(topic)],
      ["First attempt", when(letter.first_attempt_at)],
      ["Last attempt", when(letter.last_attempt_at)],
      ["Died", when(letter.died_at)],
      ["Message", letter.original_message_id],
    ]),
  );
