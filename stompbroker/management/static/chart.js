/* A line chart of the last minutes.
 *
 * Law: keeps values for SHOWN_MS and draws them. Where there was no connection, the line has a gap. The picture is also
 * described in words.
 */

import { draw, make, renewElement } from "./elements.js";
import { compact } from "./format.js";

const SHOWN_MS = 5 * 60_000;
/** Points further apart than this are not joined. */
const GAP_MS = 15_000;
const WIDTH = 300;
const HEIGHT = 100;

export class Chart {
  /** `lines`: name and colour (a class) of each; `write` writes a value. */
  constructor(title, lines, write) {
    this.title = title;
    this.lines = lines;
    this.write = write;
    this.points = [];
    this.pointedAt = null;
  }

  /** One value for each line. A repeated instant is ignored; an earlier one means another clock, and starts anew. */
  add(atMs, values) {
    const last = this.points.at(-1);
    if (atMs === last?.atMs) return;
    if (atMs < last?.atMs) this.points = [];
    this.points.push({ atMs, values });
    while (this.points[0].atMs < atMs - SHOWN_MS) this.points.shift();
  }

  picture() {
    const last = this.points.at(-1);
    const shown = this.shownPoint();
    const legend = this.lines.map(([name, colour], index) =>
      make(
        "span",
        { class: "legend" },
        make("i", { class: `dot ${colour}` }),
        `${name} `,
        make("b", {}, shown ? this.write(shown.values[index]) : "–"),
      ),
    );
    const ago = shown && shown !== last ? `${Math.round((last.atMs - shown.atMs) / 1000)} s ago` : "";
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
    );
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
        make("span", {}, "5 min ago"),
        make("span", {}, "now"),
      ),
    ];
  }

  curves(last, shown, highest) {
    const x = (point) => ((1 - (last.atMs - point.atMs) / SHOWN_MS) * WIDTH).toFixed(2);
    const y = (value) => ((1 - value / highest) * HEIGHT).toFixed(2);
    const curves = this.lines.map(([, colour], index) => {
      const d = this.points.map((point, number) => {
        const isJoined = number && point.atMs - this.points[number - 1].atMs < GAP_MS;
        return `${isJoined ? "L" : "M"}${x(point)} ${y(point.values[index])}`;
      });
      return draw("path", { class: `curve ${colour}`, d: d.join("") });
    });
    // A line of no length with round ends is a dot.
    const dots = this.lines.map(([, colour], index) =>
      draw("path", { class: `spot ${colour}`, d: `M${x(shown)} ${y(shown.values[index])}h0` }),
    );
    const pointer = this.pointedAt != null && draw("path", { class: "pointer", d: `M${x(shown)} 0V${HEIGHT}` });
    return [pointer, ...curves, ...dots];
  }

  inWords(last) {
    if (last == null) return `${this.title}: nothing yet`;
    const told = this.lines.map(([name], index) => {
      const highest = Math.max(...this.points.map((point) => point.values[index]));
      return `${name} ${this.write(last.values[index])}, at most ${this.write(highest)}`;
    });
    return `${this.title}, last five minutes: ${told.join("; ")}`;
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
    const wanted = last.atMs - (1 - this.pointedAt) * SHOWN_MS;
    return this.points.reduce((best, one) => (Math.abs(one.atMs - wanted) < Math.abs(best.atMs - wanted) ? one : best));
  }
}

/** Rounded up to 2, 4, 6 or 10 times a power of ten. */
function niceAbove(value) {
  if (value <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 10].map((each) => each * power).find((each) => each >= value);
}
