/* How numbers, sizes and times are written. Pure: a value in, a text out; a missing value is a dash. */

const NOTHING = "–";
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86400;

export const count = (value) => (value == null ? NOTHING : WHOLE.format(value));

/** For the axis of a chart, where there is little room. */
export const compact = (value) => (value < 10_000 ? TENTHS.format(value) : COMPACT.format(value));

/** A rate per second; small ones with a decimal, so that 0.4 does not look like nothing. */
export function rate(value) {
  if (value == null) return NOTHING;
  return (value < 10 ? TENTHS : WHOLE).format(value);
}

export function bytes(value) {
  if (value == null) return NOTHING;
  let power = 0;
  let rest = value;
  while (rest >= 1024 && power < UNITS.length - 1) {
    rest /= 1024;
    power += 1;
  }
  return `${(rest < 10 && power ? TENTHS : WHOLE).format(rest)} ${UNITS[power]}`;
}

/** A duration or an age, roughly. */
export function age(seconds) {
  if (seconds == null) return NOTHING;
  if (seconds < 1) return "<1 s";
  if (seconds < MINUTE_S) return `${Math.floor(seconds)} s`;
  if (seconds < HOUR_S) return `${Math.floor(seconds / MINUTE_S)} min`;
  if (seconds < 2 * DAY_S) return `${Math.floor(seconds / HOUR_S)} h`;
  return `${WHOLE.format(Math.floor(seconds / DAY_S))} d`;
}

/** A setting: exact, in the largest unit in which it is a whole number. */
export function span(seconds) {
  for (const [unit, size] of [
    ["d", DAY_S],
    ["h", HOUR_S],
    ["min", MINUTE_S],
    ["s", 1],
  ]) {
    if (seconds >= size && seconds % size === 0) return `${WHOLE.format(seconds / size)} ${unit}`;
  }
  return seconds < 1 ? `${TENTHS.format(seconds * 1000)} ms` : `${seconds} s`;
}

export const milliseconds = (value) => `${TENTHS.format(value)} ms`;

/** A count with its noun, singular or plural. */
export const several = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
