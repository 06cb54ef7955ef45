// The record of a long campaign in batches: `--full --record` adds each run to bench/results.json, where `npm run bench` reads the totals.
// The record names the commits of the first and of the last run.
import { join } from 'node:path';
import { commit, machine } from '../../bench/figures/provenance.js';
import { readResults, type StoredPart, writeResults } from '../../bench/figures/results-file.js';
import { repository } from '../support/repository.js';
import type { CampaignRun } from './campaign.js';

export const campaignPart = 'campaign';

export class CampaignRecord {
  /** Finished runs that wait until all lower seeds are recorded. */
  private readonly early = new Map<number, CampaignRun>();

  private constructor(
    private readonly path: string,
    private part: StoredPart,
  ) {}

  /**
   * `from`: first seed of a new campaign; null continues the recorded one. Throws if a new campaign would erase problems that were found at
   * this commit.
   */
  static open(from: number | null, path = join(repository, 'bench/results.json')): CampaignRecord {
    const stored = readResults(path).parts[campaignPart];
    const fresh = {
      first_seed: from ?? 1,
      next_seed: from ?? 1,
      runs: 0,
      equal: 0,
      faults: 0,
      problems: 0,
      seconds: 0,
    };
    const { problems = 0, next_seed: next } = stored?.values ?? {};
    if (stored && (from === null || from === next)) return new CampaignRecord(path, stored);
    if (problems > 0 && stored?.commit.split('..').at(-1) === commit())
      throw new Error(
        `the campaign in ${path} has found ${problems} problems at this commit, and a new one from seed ${from} would wipe them out; ` +
          `go on with it (no --seed, or --seed ${next}), or fix them first`,
      );
    return new CampaignRecord(path, { ...stamp(null), values: fresh, notes: [] });
  }

  /** Seed of the next run. */
  get next(): number {
    return this.part.values['next_seed'] ?? 1;
  }

  /** Records a run when all lower seeds are recorded, so that no seed is missing. */
  add(run: CampaignRun): void {
    this.early.set(run.seed, run);
    for (let next = this.early.get(this.next); next; next = this.early.get(this.next)) {
      this.early.delete(next.seed);
      const { values } = this.part;
      const add = (name: string, more: number): number => (values[name] ?? 0) + more;
      this.part = {
        ...stamp(values['runs'] === 0 ? null : this.part.commit),
        values: {
          ...values,
          next_seed: next.seed + 1,
          runs: add('runs', 1),
          equal: add('equal', next.problems.length === 0 ? 1 : 0),
          faults: add('faults', next.disturbances.length),
          problems: add('problems', next.problems.length),
          seconds: add('seconds', next.seconds),
        },
        notes: [...this.part.notes, ...next.problems.map((problem) => `seed ${next.seed}: ${problem}`)].slice(
          0,
          20,
        ),
      };
    }
    const results = readResults(this.path);
    results.parts[campaignPart] = this.part;
    writeResults(this.path, results);
  }

  summary(): string {
    const { runs, equal, faults, problems } = this.part.values;
    return `${equal} of ${runs} runs equal, ${faults} faults, ${problems} problems; the next seed is ${this.next}`;
  }
}

/** `before`: commits of the runs so far, `FIRST` or `FIRST..LAST`; null if there are no runs. */
function stamp(before: string | null): Pick<StoredPart, 'date' | 'commit' | 'machine'> {
  const last = commit();
  const first = before?.split('..')[0] ?? last;
  const commits = first === last ? last : `${first}..${last}`;
  return { date: new Date().toISOString(), commit: commits, machine: machine() };
}
