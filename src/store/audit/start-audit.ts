// Checks the starts that attempts announced (R9): every stored episode was announced before it was stored, and no episode was sampled again. An
// announcement after the record proves nothing: its worker may have found the record and sampled nothing, or died before.
import { AuditReport, readable } from './audit-report.js';
import { readFolded } from '../runs/folded-episodes.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  attemptsFolder,
  episodesFolder,
  foldedEpisodesKey,
  parseStepFolder,
  stepsFolder,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { listRuns } from '../runs/run-records.js';

interface Chain {
  store: ObjectStore;
  report: AuditReport;
}

interface Announcement {
  /** Key of the attempt's record. */
  key: string;
  modified: Date;
  /** Time of the announcement by its worker's clock. */
  at: Date;
  starts: readonly string[];
  discarded: readonly string[];
}

/** Checks the starts of a step's episodes and of its evaluations. Returns the keys of all episodes that its attempts announced. */
export async function checkStarts({ store, report }: Chain, run: string, step: number): Promise<string[]> {
  const own = episodesFolder(run, step);
  // Read the times before the attempts: an episode that is stored by now was announced earlier.
  const recordedAt = await timesIn(store, own);
  const folded = await readable(report, foldedEpisodesKey(run, step), () => readFolded(store, { run, step }));
  for (const [key, episode] of folded ?? []) recordedAt.set(key, episode.recordedAt);
  const announcements = await announcementsOf(store, run, step, report);
  checkGaps(announcements, report);
  const starts = new Set(announcements.flatMap((one) => one.starts));
  const elsewhere = new Set([...starts].map(folderOf).filter((folder) => folder !== own));
  for (const folder of elsewhere)
    for (const [key, modified] of (await readable(report, folder, () => timesIn(store, folder))) ?? [])
      recordedAt.set(key, modified);
  /** Whether an announcement came after the record. Copying a store changes its times, but not the times in a file of folded episodes. */
  const isLate = (key: string, { modified, at }: Announcement): boolean => {
    const recorded = recordedAt.get(key);
    return recorded !== undefined && modified > recorded && (!folded?.has(key) || at > recorded);
  };
  const inTime = new Set(announcements.flatMap((one) => one.starts.filter((start) => !isLate(start, one))));
  for (const key of recordedAt.keys()) {
    if (folderOf(key) !== own) continue;
    if (!starts.has(key)) report.add('R9', key, 'no attempt record announced its start');
    else if (!inTime.has(key))
      report.add('R9', key, 'an attempt announced its start only after its record existed');
  }
  // A discarded episode is no fault if its worker announced it in time: two workers may have sampled it at once.
  for (const { key: record, discarded } of announcements) {
    const ofAttempt = announcements.filter(({ key }) => folderOf(key) === folderOf(record));
    for (const key of discarded) {
      const begunInTime = ofAttempt.some((one) => one.starts.includes(key) && !isLate(key, one));
      if (!begunInTime)
        report.add('R9', key, `${record} says that it was sampled again after its record existed`);
    }
  }
  return [...starts];
}

/** An attempt numbers its records from 1; no number may be missing before its last record. */
function checkGaps(announcements: readonly Announcement[], report: AuditReport): void {
  const keys = new Set(announcements.map(({ key }) => key));
  for (const folder of new Set(announcements.map(({ key }) => folderOf(key)))) {
    const count = announcements.filter(({ key }) => folderOf(key) === folder).length;
    const missing = Array.from({ length: count }, (_, at) => at).find(
      (at) => !keys.has(`${folder}${at + 1}.json`),
    );
    if (missing !== undefined)
      report.add(
        'R2',
        `${folder}${missing + 1}.json`,
        'it is missing, but the same attempt has a later record',
      );
  }
}

/**
 * Keys among `episodes`, the episodes of one evaluation, that no run announced before they were stored. Any run with that state may have
 * started the evaluation, after any step; `likely`: steps of each run to examine first.
 */
export async function unannounced(
  store: ObjectStore,
  episodes: ReadonlyMap<string, Date>,
  likely: readonly number[],
): Promise<string[]> {
  if (episodes.size === 0) return [];
  const left = new Map(episodes);
  const look = async (run: string, step: number): Promise<void> => {
    // Problems of another run's attempts belong in the audit of that run.
    for (const { modified, starts } of await announcementsOf(store, run, step, new AuditReport(run)))
      for (const start of starts) if (modified <= (left.get(start) ?? new Date(0))) left.delete(start);
  };
  const runs = await listRuns(store);
  for (const run of runs) for (const step of likely) if (left.size > 0) await look(run, step);
  for (const run of left.size > 0 ? runs : []) {
    const steps = (await store.listFolder(stepsFolder(run))).flatMap((name) => parseStepFolder(name) ?? []);
    for (const step of steps) if (left.size > 0 && !likely.includes(step)) await look(run, step);
  }
  return [...left.keys()];
}

async function announcementsOf(
  store: ObjectStore,
  run: string,
  step: number,
  report: AuditReport,
): Promise<Announcement[]> {
  const attempts = [...(await timesIn(store, attemptsFolder(run, step)))];
  return inParallel(attempts, async ([key, modified]) => {
    const attempt = await report.read(store, key, 'attempt');
    return {
      key,
      modified,
      at: new Date(attempt?.observed.at ?? modified),
      starts: attempt?.starts ?? [],
      discarded: attempt?.discarded ?? [],
    };
  });
}

/**
 * Times in the store by key, all from listings. A bucket may give milliseconds in listings, but whole seconds for a single object; mixed
 * times could make a start seem later than its record. If all times are whole seconds, a start is late only in a later second.
 */
async function timesIn(store: ObjectStore, folder: string): Promise<Map<string, Date>> {
  const times = new Map<string, Date>();
  for await (const { key, modified } of store.list(folder)) times.set(key, modified);
  return times;
}

const folderOf = (key: string): string => key.slice(0, key.lastIndexOf('/') + 1);
