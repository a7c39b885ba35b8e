/* Dead letters by topic; redriving and purging them.
 *
 * Law: an action goes, a piece at a time, through the letters that were there when it began, so that a letter that dies
 * again is not redriven for ever. The page says which letters were skipped, and why.
 */

import { get, path, post, query } from "./broker.js";
import { when } from "./clock.js";
import { address, toWhom } from "./dead_letter.js";
import { ask, attempt, say } from "./dialogs.js";
import { make } from "./elements.js";
import { bytes, count, several } from "./format.js";
import { button, chip, empty, isQueue, link, table } from "./parts.js";

const LISTED = 100;
const AT_ONCE = 100;
const TYPING_MS = 300;

// Topics that have some -----------------------------------------------------------------------------------------------

const topicColumns = [
  { label: "From", isMain: true, cell: (one) => link(address(one.topic), one.topic) },
  { label: "Letters", isNumber: true, cell: (one) => count(one.letters) },
  { label: "Bytes", isNumber: true, cell: (one) => bytes(one.bytes) },
  { label: "Oldest died", isNumber: true, cell: (one) => when(one.oldest_died_at) },
];

export function deadLetterTopicsView() {
  let topics = null;
  return {
    title: "Dead letters",
    resource: "/dead-letters",
    page(value) {
      topics = value.topics;
    },
    content() {
      const heading = make("div", { class: "heading" }, make("h1", { tabindex: "-1" }, "Dead letters"));
      if (topics == null) return [heading, make("p", { class: "muted" }, "Loading…")];
      if (!topics.length) {
        return [
          heading,
          empty(
            make(
              "p",
              {},
              "There are none. A message becomes one when a subscriber has failed on it as often as its topic's " +
                "policy allows; then it waits here, with the reason, until it is redriven or purged.",
            ),
          ),
        ];
      }
      return [
        heading,
        table({ caption: "Topics with dead letters", columns: topicColumns, rows: topics, key: (one) => one.topic }),
      ];
    },
  };
}

// Letters of one topic ------------------------------------------------------------------------------------------------

export function deadLettersView(context, route) {
  const topic = route.parts[0];
  const resource = `/dead-letters${path(topic)}`;
  const wanted = { subscription: route.query.get("subscription") ?? "", reason: route.query.get("reason") ?? "" };
  const isFiltered = Boolean(wanted.subscription || wanted.reason);
  const chosen = new Set();
  let letters = null;
  let after = -1;
  let isComplete = true;
  /** What the user may do with them. */
  let canRedrive = false;
  let canPurge = false;
  /** The total as of the last second, and as of the list. */
  let total = null;
  let listedTotal = null;
  let typing = null;

  async function load() {
    const answer = await get(resource + query({ ...wanted, limit: LISTED })).catch(noneIfGone);
    letters = answer.letters;
    ({ after, is_complete: isComplete, can_redrive: canRedrive, can_purge: canPurge } = answer);
    listedTotal = total;
    const listed = new Set(letters.map((letter) => letter.offset));
    for (const offset of chosen) if (!listed.has(offset)) chosen.delete(offset);
  }

  async function loadMore() {
    const answer = await get(resource + query({ ...wanted, limit: LISTED, after }));
    letters = [...letters, ...answer.letters];
    ({ after, is_complete: isComplete } = answer);
    context.refresh();
  }

  /** Apply the filter as it is typed now. */
  function change() {
    const fields = [...document.querySelectorAll(".filters input")].map(({ name, value }) => [name, value]);
    context.replace(address(topic) + query(Object.fromEntries(fields)), {});
  }

  /** Redrive these letters, or without offsets all that match the filter. */
  async function redrive(offsets, to) {
    const fields = { to };
    const step = (more) => post(`${resource}/redrive`, { ...fields, ...more });
    const done = { redriven: 0, skipped: [] };
    const take = (answer) => {
      done.redriven += answer.redriven;
      done.skipped.push(...answer.skipped);
      return answer.redriven + answer.skipped.length;
    };
    await inPieces(step, take, offsets);
    const kept = done.skipped.length
      ? ` ${several(done.skipped.length, "letter was", "letters were")} not, and stay:`
      : "";
    say(
      `${several(done.redriven, "letter is", "letters are")} redriven to ${target(topic, to)}.${kept}`,
      { isProblem: !done.redriven && done.skipped.length > 0, more: reasons(done.skipped) },
    );
    chosen.clear();
    await load();
    context.refresh();
  }

  async function purge(offsets) {
    let purged = 0;
    await inPieces(
      (more) => post(`${resource}/purge`, more),
      (answer) => {
        purged += answer.purged;
        return answer.purged;
      },
      offsets,
    );
    say(`${several(purged, "letter is", "letters are")} purged.`);
    chosen.clear();
    await load();
    context.refresh();
  }

  async function inPieces(step, take, offsets) {
    if (offsets != null) {
      for (const offset of offsets) take(await step({ offset }));
      return;
    }
    const filter = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value));
    let left = isFiltered ? Infinity : (total ?? LISTED);
    let seen = -1;
    const last = isFiltered ? await lastOffset() : Infinity;
    for (let isDone = false; !isDone && left > 0 && seen < last;) {
      const answer = await step({ ...filter, after: seen, limit: Math.min(AT_ONCE, left) });
      left -= take(answer);
      seen = answer.after;
      isDone = answer.is_complete;
    }
  }

  /** The last letter that matches the filter now. */
  async function lastOffset() {
    let found = -1;
    let seen = -1;
    for (;;) {
      const answer = await get(resource + query({ ...wanted, after: seen, limit: 1000 }));
      found = answer.letters.at(-1)?.offset ?? found;
      if (answer.is_complete) return found;
      seen = answer.after;
    }
  }

  /** The exact count at this moment. */
  async function lookAgain() {
    const { topics } = await get("/dead-letters");
    total = topics.find((one) => one.topic === topic)?.letters ?? 0;
    return isFiltered ? "all letters that are like the filter" : several(total, "letter");
  }

  const askAll = (question) => attempt(async () => question(null, await lookAgain()));

  const askRedrive = (offsets, which) =>
    ask({
      title: `Redrive ${which}?`,
      content: [
        make("p", {}, "What they are about is published once more, and the letters go."),
        toWhom(
          topic,
          "the subscriber that failed, and nobody else",
          "the topic: every subscriber gets them again",
        ),
      ],
      yes: "Redrive",
      act: (form) => redrive(offsets, form.get("to") ?? "subscriber"),
    });

  const askPurge = (offsets, which) =>
    ask({
      title: `Purge ${which}?`,
      content: [
        make(
          "p",
          {},
          `${which[0].toUpperCase()}${which.slice(1)} of ${topic} will be gone for good, with what they are about.`,
        ),
      ],
      yes: "Purge",
      isDangerous: true,
      act: () => purge(offsets),
    });

  function actions() {
    const selected = [...chosen].sort((one, other) => one - other);
    const some = several(selected.length, "selected letter");
    return make(
      "div",
      { class: "buttons" },
      canRedrive && [
        button(selected.length ? `Redrive ${some}…` : "Redrive selected…", () => askRedrive(selected, some), {
          disabled: !selected.length,
          class: "primary",
          "data-key": "redrive",
        }),
        button("Redrive all…", () => askAll(askRedrive), { disabled: !letters.length, "data-key": "redrive all" }),
      ],
      canPurge && [
        button(selected.length ? `Purge ${some}…` : "Purge selected…", () => askPurge(selected, some), {
          disabled: !selected.length,
          class: "danger",
          "data-key": "purge",
        }),
        button("Purge all…", () => askAll(askPurge), {
          disabled: !letters.length,
          class: "danger",
          "data-key": "purge all",
        }),
      ],
    );
  }

  function select(offsets, isChosen) {
    for (const offset of offsets) {
      if (isChosen) chosen.add(offset);
      else chosen.delete(offset);
    }
    context.refresh();
  }

  const columns = () => [
    (canRedrive || canPurge) && {
      label: "Select",
      isCorner: true,
      cell: (one) =>
        make("input", {
          type: "checkbox",
          checked: chosen.has(one.offset),
          "aria-label": `Select letter ${one.offset}`,
          onchange: (event) => select([one.offset], event.currentTarget.checked),
        }),
    },
    { label: "Letter", isMain: true, cell: (one) => link(address(topic, one.offset), `@ ${count(one.offset)}`) },
    { label: "Died", cell: (one) => when(one.died_at) },
    {
      label: "Subscription",
      cell: (one) =>
        make(
          "span",
          { class: "line" },
          one.subscription,
          !one.is_durable &&
            !isQueue(topic) &&
            chip("", "transient", "It was not durable: redrive it to the topic"),
        ),
    },
    { label: "Attempts", isNumber: true, cell: (one) => count(one.attempts) },
    { label: "Cause", cell: (one) => one.cause },
    { label: "Reason", isWide: true, cell: (one) => one.reason || "–" },
    { label: "Size", isNumber: true, cell: (one) => bytes(one.body_bytes) },
  ];

  function filters() {
    const field = (name, label, text) =>
      make("input", {
        type: "search",
        name,
        value: wanted[name],
        placeholder: text,
        "aria-label": label,
        "data-key": name,
        oninput: () => {
          clearTimeout(typing);
          typing = setTimeout(change, TYPING_MS);
        },
      });
    return make(
      "div",
      { class: "filters", role: "search" },
      field("reason", "Filter by reason", "Part of a reason"),
      field("subscription", "Filter by subscription", "A subscription, in full"),
    );
  }

  function list() {
    if (letters == null) return [make("p", { class: "muted" }, "Loading…")];
    if (!letters.length && isFiltered && isComplete)
      return [
        empty(
          make("p", {}, "No letter is like that."),
          button("Show all", () => context.push(address(topic), {})),
        ),
      ];
    if (!letters.length && isComplete)
      return [
        empty(make("p", {}, `There are no dead letters of ${topic} any more.`), link("#/dead-letters", "Others")),
      ];
    const offsets = letters.map((letter) => letter.offset);
    const areAllChosen = offsets.length > 0 && offsets.every((offset) => chosen.has(offset));
    return [
      (canRedrive || canPurge) &&
        make(
          "label",
          { class: "choice all" },
          make("input", {
            type: "checkbox",
            checked: areAllChosen,
            onchange: (event) => select(offsets, event.currentTarget.checked),
          }),
          make("span", {}, `Select all ${count(letters.length)} listed`),
        ),
      table({ caption: `Dead letters of ${topic}`, columns: columns().filter(Boolean), rows: letters, key: (one) => String(one.offset) }),
      !isComplete &&
        make(
          "p",
          { class: "buttons" },
          button("Show more", () => attempt(loadMore)),
        ),
    ];
  }

  return {
    title: `Dead letters of ${topic}`,
    resource: "/dead-letters",
    page(value) {
      total = value.topics.find((one) => one.topic === topic)?.letters ?? 0;
    },
    async tick() {
      if (letters == null || total !== listedTotal) await load();
    },
    content: () => [
      make("p", { class: "back" }, link("#/dead-letters", "Dead letters")),
      make(
        "div",
        { class: "heading" },
        make(
          "h1",
          { tabindex: "-1" },
          topic,
          total != null && make("span", { class: "muted" }, ` ${several(total, "dead letter")}`),
        ),
        filters(),
      ),
      letters != null && (canRedrive || canPurge) && actions(),
      ...list(),
    ],
    isWaiting: () => letters == null,
    leave: () => clearTimeout(typing),
  };
}

/** Where letters went, in words. */
function target(topic, to) {
  if (isQueue(topic)) return topic;
  return to === "topic" ? `the topic ${topic}` : "the subscriber that failed";
}

/** To the broker, a topic without letters is not found. */
function noneIfGone(problem) {
  if (problem.status !== 404) throw problem;
  return { letters: [], after: -1, is_complete: true, can_redrive: false, can_purge: false };
}

/** Each reason once, with the number of letters that were skipped for it. */
function reasons(skipped) {
  const offsets = new Map();
  for (const { offset, why } of skipped) offsets.set(why, [...(offsets.get(why) ?? []), offset]);
  return [...offsets].map(
    ([why, which]) => `${which.length === 1 ? `Letter @ ${count(which[0])}` : several(which.length, "letter")}: ${why}`,
  );
}
