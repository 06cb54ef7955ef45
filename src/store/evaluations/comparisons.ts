// The comparisons of finished sweeps, by the names that people use.
import { sweepFolder, sweepsOfProject } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';

/** Key of the page; null if no comparison is stored. A sweep that was started again has several: the last one written knows most. */
export async function comparisonPage(store: ObjectStore, sweep: string): Promise<string | null> {
  let newest: { key: string; modified: Date } | null = null;
  for await (const { key, modified } of store.list(`${sweepFolder(sweep)}comparison.`))
    if (key.endsWith('.html') && (newest === null || modified > newest.modified)) newest = { key, modified };
  return newest?.key ?? null;
}

/**
 * `found`: the sweep of exactly this name, else the firings of the schedule of this name, newest first; as `{project}/{name}`. `known`: all
 * names of the project, newest firings first.
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

/** The schedule's name of a sweep whose name ends in a firing time; null for any other. */
function firingOf(name: string): string | null {
  return /^(.+)-\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\dZ$/.exec(name)?.[1] ?? null;
}
