/* A view of a long list: sorted, filtered, in pages, live.
 *
 * Law: the address says what is shown, so that it can be kept and sent to somebody; the history says how one came to a
 * page. The broker sorts, filters and cuts.
 */

import { query } from "./broker.js";
import { make } from "./elements.js";
import { count, several } from "./format.js";
import { button, empty, table } from "./parts.js";

const ROWS = 50;
/** Delay between a key stroke and filtering. */
const TYPING_MS = 200;

/**
 * `kind`: title, one (how one entry is called), path and entries (its name in the API), sort (the first), columns
 * (those with `isAction` are for users who may change the whole broker), key, nothing (what to say when there is
 * nothing), choices (further filters: name, label, options), and narrowings (filters that links set: name, says). If the
 * list is a part of one in the API: `source`, its path there, and `only`, the query that says which part.
 */
export function listView(kind, context, route) {
  const { title, one, choices = [], narrowings = [] } = kind;
  const asked = { q: route.query.get("q") ?? "", sort: route.query.get("sort") ?? kind.sort };
  for (const choice of [...choices, ...narrowings]) asked[choice.name] = route.query.get(choice.name) ?? "";
  const cursors = route.state?.cursors ?? [];
  let page = null;
  let problem = null;
  let typing = null;

  const hash = (wanted) => `#${kind.path}${query({ ...wanted, sort: wanted.sort === kind.sort ? null : wanted.sort })}`;
  const turn = (next) => context.push(hash(asked), { cursors: next });

  /** The screen may be older than the last request: read the filter from the address and the field. */
  function change(changed) {
    clearTimeout(typing);
    const q = document.getElementById("filter").value;
    context.replace(hash({ ...Object.fromEntries(context.query()), q, ...changed }), { cursors: [] });
  }

  function filters() {
    const search = make("input", {
      type: "search",
      id: "filter",
      value: asked.q,
      placeholder: kind.placeholder,
      "aria-label": `Filter ${title.toLowerCase()}`,
      oninput: () => {
        clearTimeout(typing);
        typing = setTimeout(() => change({}), TYPING_MS);
      },
    });
    return make(
      "div",
      { class: "filters", role: "search" },
      search,
      choices.map((choice) =>
        make(
          "select",
          {
            "aria-label": choice.label,
            value: asked[choice.name],
            onchange: (event) => change({ [choice.name]: event.currentTarget.value }),
          },
          choice.options.map(([value, text]) => make("option", { value }, text)),
        ),
      ),
      narrowings
        .filter(({ name }) => asked[name])
        .map(({ name, says }) =>
          button(`${says(asked[name])} ×`, () => change({ [name]: "" }), { title: "Show the others too" }),
        ),
    );
  }

  function content() {
    if (problem)
      return [
        empty(
          make("p", { class: "problem" }, problem),
          button("Start from the first page", () => context.push(`#${kind.path}`, {})),
        ),
      ];
    if (page == null) return [make("p", { class: "muted" }, "Loading…")];
    const rows = page[kind.entries];
    const isFiltered = asked.q || [...choices, ...narrowings].some((choice) => asked[choice.name]);
    if (!rows.length && isFiltered && !cursors.length) {
      return [
        empty(
          make("p", {}, `No ${one} is like that.`),
          button("Show all", () => context.push(`#${kind.path}`, {})),
        ),
      ];
    }
    if (!rows.length && !cursors.length) return [empty(...kind.nothing())];
    const columns = kind.columns.filter((column) => !column.isAction || context.changesAll());
    return [
      table({ caption: title, columns, rows, key: kind.key, sort: asked.sort, onSort: (sort) => change({ sort }) }),
      pages(rows),
    ];
  }

  function pages(rows) {
    const first = cursors.length * ROWS + 1;
    const shown = rows.length
      ? `${count(first)}–${count(first + rows.length - 1)} of ${several(page.total, one)}`
      : "Nothing is left on this page";
    return make(
      "nav",
      { class: "pages", "aria-label": "Pages" },
      make("span", { class: "muted" }, shown),
      button("Previous", () => turn(cursors.slice(0, -1)), { disabled: !cursors.length }),
      button("Next", () => turn([...cursors, page.next_cursor]), { disabled: page.next_cursor == null }),
    );
  }

  return {
    title,
    resource: (kind.source ?? kind.path) + query({ ...kind.only, ...asked, limit: ROWS, cursor: cursors.at(-1) }),
    page(value) {
      page = value;
      problem = null;
    },
    problem(said) {
      problem = said.detail;
    },
    content: () => [make("div", { class: "heading" }, make("h1", { tabindex: "-1" }, title), filters()), ...content()],
    isWaiting: () => page == null && problem == null,
    leave: () => clearTimeout(typing),
  };
}
