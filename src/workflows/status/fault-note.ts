// One line that says what faults have cost a run.

/** Null if nothing failed and the run waited for nothing. */
export function faultNote(faults: Readonly<Record<string, number>>): string | null {
  const of = (name: string): number => faults[`ft/${name}`] ?? 0;
  const restarts = Object.entries(faults)
    .filter(([name]) => name.startsWith('ft/restarts/'))
    .map(([name, count]) => ({ cause: name.slice('ft/restarts/'.length).replaceAll('_', ' '), count }));
  // Without a fault, lost seconds are only the cost of placing the run on a node, such as a fork's first node.
  const lost = (restarts.length > 0 ? of('lost_seconds') : 0) + of('waiting_seconds');
  if (restarts.length === 0 && lost === 0) return null;
  const causes = restarts.map(({ cause, count }) => (count > 1 ? `${cause} ×${count}` : cause)).join(', ');
  const cost = [
    `${lost.toFixed(1)} s`,
    ...(of('lost_tokens') > 0 ? [`${of('lost_tokens').toLocaleString('en')} tokens`] : []),
  ].join(' and ');
  const share = of('ettr') > 0 ? ` · ETTR ${(100 * of('ettr')).toFixed(1)} %` : '';
  return `survived ${causes === '' ? 'waits for environments, the store or nodes' : causes} · lost ${cost}${share}`;
}
