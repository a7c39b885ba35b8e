/* The small parts that views are made of: each takes values and returns elements. */

import { make } from "./elements.js";

/** How the keys of queues begin. */
export const QUEUE = "/queue/";

export const link = (hash, ...text) => make("a", { href: hash }, ...text);

/** How the API names a topic or queue: `orders` or `/queue/jobs`. */
export const keyOf = (topic) => (topic.kind === "queue" ? topic.destination : topic.name);

export const isQueue = (key) => key.startsWith(QUEUE);

/** To a topic or queue, by its key. A queue is shown below the tab for queues, by its name. */
export function topicLink(key, text = key) {
  const [tab, name] = isQueue(key) ? ["queues", key.slice(QUEUE.length)] : ["topics", key];
  return link(`#/${tab}/${encodeURIComponent(name)}`, text);
}

export const chip = (kind, text, title) => make("span", { class: `chip ${kind}`, title }, text);

/** A big number with its name and a line about it; a link if it leads somewhere. */
export function tile(label, value, { note, hash, kind = "" } = {}) {
  return make(
    hash ? "a" : "div",
    { class: `tile ${kind}`, href: hash, "data-key": label },
    make("span", { class: "label" }, label),
    make("span", { class: "value" }, value),
    make("span", { class: "note" }, note ?? ""),
  );
}

/** Names and values, side by side. */
export const facts = (entries) =>
  make(
    "dl",
    { class: "facts" },
    entries
      .filter(Boolean)
      .map(([name, ...value]) => make("div", { "data-key": name }, make("dt", {}, name), make("dd", {}, ...value))),
  );

export const panel = (title, ...content) =>
  make("section", { class: "panel", "data-key": title }, make("h2", {}, title), ...content);

/** Shown where there is nothing, with what to do about it. */
export const empty = (...content) => make("div", { class: "empty" }, ...content);

export const command = (text) => make("pre", { class: "command" }, make("code", {}, text));

/** Quoted for a shell, as one word. */
export const inShell = (text) => (/^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export const button = (text, onclick, properties = {}) =>
  make("button", { type: "button", onclick, ...properties }, text);

/**
 * A table. Columns have a `label`, a `cell(row)`, and, if they can be sorted by, the `sort` that the API calls them by;
 * `isNumber` ones stand on the right. On a narrow screen a row becomes a card, and the head a line of buttons: the
 * `isMain` one is the card's title, `isCorner` ones stand beside it, and `isWide` ones have a line of their own.
 */
export function table({ caption, columns, rows, key, sort = null, onSort = null }) {
  return make(
    "div",
    { class: "scroll", "data-key": caption },
    make(
      "table",
      { role: "table" },
      make("caption", {}, caption),
      make(
        "thead",
        { role: "rowgroup" },
        make(
          "tr",
          { role: "row" },
          columns.map((column) => head(column, sort, onSort)),
        ),
      ),
      make(
        "tbody",
        { role: "rowgroup" },
        rows.map((row) =>
          make(
            "tr",
            { role: "row", "data-key": key(row) },
            columns.map((column) =>
              make(
                "td",
                { role: "cell", class: kindOf(column), "data-label": column.title ?? column.label },
                column.cell(row),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

function head(column, sort, onSort) {
  const properties = { role: "columnheader", scope: "col", class: kindOf(column) };
  if (!column.sort || !onSort) return make("th", { ...properties, class: `${kindOf(column)} fixed` }, column.label);
  const isSorted = sort === column.sort || sort === `-${column.sort}`;
  const isDescending = sort === `-${column.sort}`;
  // The first click sorts numbers descending, names ascending.
  const first = column.isNumber ? `-${column.sort}` : column.sort;
  const other = column.isNumber ? column.sort : `-${column.sort}`;
  properties["aria-sort"] = isSorted ? (isDescending ? "descending" : "ascending") : "none";
  return make(
    "th",
    properties,
    make(
      "button",
      { type: "button", onclick: () => onSort(sort === first ? other : first) },
      make("span", {}, column.label),
      make("span", { class: "arrow", "aria-hidden": "true" }, isSorted ? (isDescending ? "▼" : "▲") : ""),
    ),
  );
}

function kindOf(column) {
  const kinds = [
    column.isNumber && "number",
    column.isMain && "main",
    column.isCorner && "corner",
    column.isWide && "wide",
  ];
  return kinds.filter(Boolean).join(" ");
}
