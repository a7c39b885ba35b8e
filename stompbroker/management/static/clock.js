/* The broker's time. Ages are told by the broker's clock: the one of this machine may be wrong. */

import { make } from "./elements.js";
import { age } from "./format.js";

let aheadMs = 0;

/** Set the clock from an overview. */
export function setClock(broker) {
  aheadMs = Date.parse(broker.started_at) + broker.uptime_s * 1000 - Date.now();
}

/** Seconds since then; negative for the future. */
export const secondsSince = (at) => (Date.now() + aheadMs - Date.parse(at)) / 1000;

/** A past instant: how long ago, with the exact time on hover. */
export const when = (at) => (at == null ? "–" : time(at, `${age(Math.max(0, secondsSince(at)))} ago`));

/** A future instant. */
export function due(at) {
  if (at == null) return "–";
  const seconds = -secondsSince(at);
  return time(at, seconds > 0 ? `in ${age(seconds)}` : "now");
}

const time = (at, text) => make("time", { datetime: at, title: `${new Date(at).toLocaleString()} (${at})` }, text);
