/* What the broker has kept of the last hour, for charts that have not seen it. */

import { get, query } from "./broker.js";

/** Have these charts, which all show the same thing, begin with it. `of` and `name` as in the API; none: the broker. */
export async function recall(charts, of, name) {
  const history = await get(`/history${query({ of, name })}`);
  for (const chart of charts) chart.recall(history);
}
