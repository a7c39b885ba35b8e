/* The broker's time.
 *
 * Law: ages are told by the broker's clock; the one of this machine may be wrong.
 */

import { make } from "./elements.js";
import { age } from "./format.js";

let aheadMs = 0;

/** What an overview says about the time. */
export function setClock(broker) {
  aheadMs = Date.parse(broker.started_at) + broker.uptime_s * 1000 - Date.now();
}

/** Seconds since then; less than 0 for what is to come. */
export const secondsSince = (at) => (Date.now() + aheadMs - Date.parse(at)) / 1000;

/** An instant that has been, as people want to read it, and exactly if they ask. */
export const when = (at) => (at == null ? "–" : time(at, `${age(Math.max(0, secondsSince(at)))} ago`));

/** An instant that is to come. */
export function due(at) {
  if (at == null) return "–";
  const seconds = -secondsSince(at);
  return time(at, seconds > 0 ? `in ${age(seconds)}` : "now");
}

const time = (at, text) => make("time", { datetime: at, title: `${new Date(at).toLocaleString()} (${at})` }, text);
