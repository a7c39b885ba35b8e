/* A line chart of up to an hour.
 *
 * Law: what the broker has kept comes first, then what this page has seen since, in points of the same length. Where
 * nothing is known, the line has a gap. The picture is also described in words.
 */

import { draw, make, renewElement } from "./elements.js";
import { age, compact, count } from "./format.js";

const MINUTE_MS = 60_000;
/** It shows the shortest of these that holds all points, and keeps the longest. */
const SPANS_MS = [5 * MINUTE_MS, 15 * MINUTE_MS, 60 * MINUTE_MS];
const LONGEST_MS = SPANS_MS.at(-1);
/** Time of one point: what comes within it is its mean. As in the broker's history. */
const POINT_MS = 5000;
/** Points further apart than this are not joined. */
const GAP_MS = 15_000;
const WIDTH = 300;
const HEIGHT = 100;

export class Chart {
  /**
   * `lines`: name and colour (a class) of each; `write` writes a value. A name with `_` for blanks is what the broker's
   * history calls it.
   */
  constructor(title, lines, write) {
    this.title = title;
    this.lines = lines;
    this.write = write;
    /** A value is null where it is not known. `sinceMs` is when a point of this page began. */
    this.points = [];
    this.latest = null;
    this.note = null;
    this.pointedAt = null;
  }

  /** Whether something has happened before this instant that it has not seen: then `recall` first, or soon. */
  hasMissed(atMs) {
    const last = this.points.at(-1);
    return last == null || Math.abs(atMs - last.atMs) > GAP_MS;
  }

  /** Take the points of the broker's history; of its own it keeps those before and behind them. */
  recall({ is_kept: isKept, busiest, names, points }) {
    this.note = isKept ? null : `Not among the ${busiest} busiest: there is no history from before this page was opened.`;
    if (!points.length) return;
    const places = this.lines.map(([name]) => names.indexOf(name.replaceAll(" ", "_")));
    const known = points.map(({ at, values }) => ({ atMs: Date.parse(at), values: places.map((place) => values[place]) }));
    const before = this.points.filter((point) => point.atMs < known[0].atMs);
    const behind = this.points.filter((point) => point.atMs > known.at(-1).atMs);
    this.points = [...before, ...known, ...behind];
    this.forget();
  }

  /**
   * One value for each line. An instant that is not later adds no point, since the history may be ahead of an event; one
   * that is much earlier means another clock, and starts anew.
   */
  add(atMs, values) {
    const last = this.points.at(-1);
    this.latest = values;
    if (atMs <= last?.atMs) {
      if (last.atMs - atMs < GAP_MS) return;
      this.points = [];
    }
    if (atMs > last?.atMs && atMs - last.sinceMs <= POINT_MS) {
      const part = (atMs - last.atMs) / (atMs - last.sinceMs);
      const mean = values.map((value, index) => last.values[index] + (value - last.values[index]) * part);
      this.points[this.points.length - 1] = { atMs, sinceMs: last.sinceMs, values: mean };
    } else this.points.push({ atMs, sinceMs: this.points.at(-1)?.atMs ?? atMs, values });
    this.forget();
  }

  forget() {
    const sinceMs = this.points.at(-1).atMs - LONGEST_MS;
    this.points = this.points.filter((point) => point.atMs >= sinceMs);
  }

  picture() {
    const last = this.points.at(-1);
    const shown = this.shownPoint();
    const told = shown === last ? (this.latest ?? shown?.values) : shown.values;
    const legend = this.lines.map(([name, colour], index) =>
      make(
        "span",
        { class: "legend" },
        make("i", { class: `dot ${colour}` }),
        `${name} `,
        make("b", {}, this.write(told?.[index])),
      ),
    );
    const ago = shown && shown !== last ? `${age((last.atMs - shown.atMs) / 1000)} ago` : "";
    return make(
      "figure",
      { class: "panel chart", "data-key": this.title },
      make(
        "figcaption",
        {},
        make("h2", {}, this.title),
        make("span", { class: "muted" }, ago),
        make("div", {}, legend),
      ),
      ...this.plot(last, shown),
      this.note && make("p", { class: "muted" }, this.note),
    );
  }

  spanMs() {
    const seenMs = this.points.length ? this.points.at(-1).atMs - this.points[0].atMs : 0;
    return SPANS_MS.find((each) => each >= seenMs);
  }

  // Drawing ----------------------------------------------------------------------------------------------------------

  /** The drawing is stretched to its box, so the text stands around it. */
  plot(last, shown) {
    const highest = niceAbove(Math.max(0, ...this.points.flatMap((point) => point.values)));
    const svg = draw(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": this.inWords(last),
        onpointermove: (event) => this.point(event),
        onpointerleave: () => this.point(null),
      },
      [0, 0.5, 1].map((part) => draw("path", { class: "grid", d: `M0 ${part * HEIGHT}H${WIDTH}` })),
      last && this.curves(last, shown, highest),
    );
    return [
      make(
        "div",
        { class: "plot" },
        make(
          "div",
          { class: "scale", "aria-hidden": "true" },
          [highest, highest / 2, 0].map((value) => make("span", {}, compact(value))),
        ),
        svg,
      ),
      make(
        "div",
        { class: "times muted", "aria-hidden": "true" },
        make("span", {}, `${age(this.spanMs() / 1000)} ago`),
        make("span", {}, "now"),
      ),
    ];
  }

  curves(last, shown, highest) {
    const spanMs = this.spanMs();
    const x = (point) => ((1 - (last.atMs - point.atMs) / spanMs) * WIDTH).toFixed(2);
    const y = (value) => ((1 - value / highest) * HEIGHT).toFixed(2);
    const curves = this.lines.map(([, colour], index) => {
      let before = null;
      const d = this.points.map((point) => {
        const isJoined = before != null && point.atMs - before.atMs < GAP_MS;
        before = point.values[index] == null ? null : point;
        return before && `${isJoined ? "L" : "M"}${x(point)} ${y(point.values[index])}`;
      });
      return draw("path", { class: `curve ${colour}`, d: d.join("") });
    });
    // A line of no length with round ends is a dot.
    const dots = this.lines.map(
      ([, colour], index) =>
        shown.values[index] != null &&
        draw("path", { class: `spot ${colour}`, d: `M${x(shown)} ${y(shown.values[index])}h0` }),
    );
    const pointer = this.pointedAt != null && draw("path", { class: "pointer", d: `M${x(shown)} 0V${HEIGHT}` });
    return [pointer, ...curves, ...dots];
  }

  inWords(last) {
    if (last == null) return `${this.title}: nothing yet`;
    const told = this.lines.map(([name], index) => {
      const highest = Math.max(...this.points.map((point) => point.values[index]));
      return `${name} ${this.write((this.latest ?? last.values)[index])}, at most ${this.write(highest)}`;
    });
    return `${this.title}, last ${age(this.spanMs() / 1000)}: ${told.join("; ")}`;
  }

  // Pointing ---------------------------------------------------------------------------------------------------------

  point(event) {
    const element = event?.currentTarget.closest("figure") ?? this.shownElement();
    if (event == null) this.pointedAt = null;
    else {
      const box = event.currentTarget.getBoundingClientRect();
      this.pointedAt = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    }
    if (element != null) renewElement(element, this.picture());
  }

  shownElement() {
    return [...document.querySelectorAll("figure.chart")].find((one) => one.dataset.key === this.title);
  }

  /** The point under the pointer, or the last one. */
  shownPoint() {
    const last = this.points.at(-1);
    if (last == null || this.pointedAt == null) return last;
    const wanted = last.atMs - (1 - this.pointedAt) * this.spanMs();
    return this.points.reduce((best, one) => (Math.abs(one.atMs - wanted) < Math.abs(best.atMs - wanted) ? one : best));
  }
}

/** Of what a queue or a subscription has not settled. */
export const backlogChart = () =>
  new Chart(
    "Backlog",
    [
      ["backlog", "amber"],
      ["in flight", "green"],
    ],
    count,
  );

/** Rounded up to 2, 4, 6 or 10 times a power of ten. */
function niceAbove(value) {
  if (value <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 10].map((each) => each * power).find((each) => each >= value);
}
