// Finds sweeps, and the comparisons of finished sweeps, by the names that people use.
import { sweepFolder, sweepsOfProject } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';

/**
 * Key of the newest comparison page; null if none exists. A sweep that was started again has several pages; the newest has most results.
 */
export async function comparisonPage(store: ObjectStore, sweep: string): Promise<string | null> {
  let newest: { key: string; modified: Date } | null = null;
  for await (const { key, modified } of store.list(`${sweepFolder(sweep)}comparison.`))
    if (key.endsWith('.html') && (newest === null || modified > newest.modified)) newest = { key, modified };
  return newest?.key ?? null;
}

/**
 * `found`: the sweep with exactly this name, or else the sweeps that the schedule of this name started, newest first; as
 * `{project}/{name}`. `known`: all sweeps of the project; a schedule's sweeps are listed newest first.
 */
export async function sweepsNamed(
  store: ObjectStore,
  project: string,
  name: string,
): Promise<{ found: string[]; known: string[] }> {
  const known = (await store.listFolder(sweepsOfProject(project)))
    .flatMap((entry) => (entry.endsWith('/') ? entry.slice(0, -1) : []))
    .sort()
    .reverse();
  const own = known.includes(name) ? [name] : known.filter((other) => firingOf(other) === name);
  return { found: own.map((one) => `${project}/${one}`), known };
}

/** Name of the schedule, if a sweep's name ends in a schedule's start time; null for other sweeps. */
function firingOf(name: string): string | null {
  return /^(.+)-\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\dZ$/.exec(name)?.[1] ?? null;
}
