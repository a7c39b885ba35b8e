/* One dead letter, whole: why it died, its headers, its body.
 *
 * Law: a letter does not change, so it is requested once. Its body is shown as text or in hexadecimal, never rendered.
 */

import { get, path, post } from "./broker.js";
import { when } from "./clock.js";
import { ask, say } from "./dialogs.js";
import { make } from "./elements.js";
import { bytes, count } from "./format.js";
import { button, chip, facts, isQueue, link, panel, topicLink } from "./parts.js";

/** Characters of a body's base64: 48 KiB of the body are shown. */
const SHOWN_BASE64 = 64 * 1024;

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

const headers = (letter) =>
  panel(
    "Headers",
    make(
      "dl",
      { class: "facts headers" },
      letter.headers.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
    ),
  );

function body(letter) {
  const { text, kind, isCut } = readBody(letter.body);
  return panel(
    "Body",
    make("p", { class: "muted" }, `${bytes(letter.body_bytes)}${kind}${isCut ? "; the beginning" : ""}`),
    letter.body_bytes > 0 && make("pre", { class: "body", tabindex: "0" }, text),
  );
}

/** As text if it is UTF-8, else in hexadecimal. */
function readBody(base64) {
  const isCut = base64.length > SHOWN_BASE64;
  const octets = Uint8Array.from(atob(base64.slice(0, SHOWN_BASE64)), (character) => character.charCodeAt(0));
  try {
    // The cut may split a character.
    const text = new TextDecoder("utf-8", { fatal: true }).decode(octets, { stream: isCut });
    return { text, kind: "", isCut };
  } catch {
    const lines = [];
    for (let start = 0; start < octets.length; start += 16) {
      const part = [...octets.slice(start, start + 16)].map((octet) => octet.toString(16).padStart(2, "0"));
      lines.push(`${start.toString(16).padStart(6, "0")}  ${part.join(" ")}`);
    }
    return { text: lines.join("\n"), kind: ", not text; in hexadecimal", isCut };
  }
}
