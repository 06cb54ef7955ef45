// One line that says what faults have cost a run, and how long it has waited.

/** Null if nothing failed and the run waited for nothing. */
export function faultNote(faults: Readonly<Record<string, number>>): string | null {
  const figure = (name: string): number => faults[`ft/${name}`] ?? 0;
  const restarts = Object.entries(faults)
    .filter(([name]) => name.startsWith('ft/restarts/'))
    .map(([name, count]) => ({ cause: name.slice('ft/restarts/'.length).replaceAll('_', ' '), count }));
  const waited = figure('waiting_seconds');
  if (restarts.length === 0 && waited === 0) return null;
  const causes = restarts.map(({ cause, count }) => (count > 1 ? `${cause} ×${count}` : cause)).join(', ');
  const cost = [
    `${figure('lost_seconds').toFixed(1)} s`,
    ...(figure('lost_tokens') > 0 ? [`${figure('lost_tokens').toLocaleString('en')} tokens`] : []),
  ].join(' and ');
  return [
    // Without a fault, lost seconds are only the cost of placing the run on a node, such as a fork's first node.
    ...(restarts.length > 0 ? [`survived ${causes} · lost ${cost}`] : []),
    ...(waited > 0 ? [`waited ${waited.toFixed(1)} s for environments, the store or nodes`] : []),
    ...(figure('ettr') > 0 ? [`ETTR ${(100 * figure('ettr')).toFixed(1)} %`] : []),
  ].join(' · ');
}
