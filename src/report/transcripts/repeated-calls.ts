// Counts calls that give the model nothing new: the same tool with the same arguments, twice in a row or three times in an episode.

/** From this number on, equal calls count as repeated even with other calls between them. Looking at the same thing twice may be right. */
const often = 3;

/**
 * Number of calls in one episode that repeat an earlier one. `calls` has a text for each turn, equal for equal calls; null for a turn
 * without a call, which is ignored.
 */
export function repeatedCalls(calls: readonly (string | null)[]): number {
  const made = calls.filter((call) => call !== null);
  const times = new Map<string, number>();
  for (const call of made) times.set(call, (times.get(call) ?? 0) + 1);
  const met = new Set<string>();
  let repeated = 0;
  for (const [index, call] of made.entries()) {
    const inRow = made[index - 1] === call;
    if (inRow || (met.has(call) && (times.get(call) ?? 0) >= often)) repeated += 1;
    met.add(call);
  }
  return repeated;
}
