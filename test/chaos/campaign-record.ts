// A long campaign in batches: `--full --record` adds each run to bench/results.json, where `npm run bench` finds the sum. It
// counts for the code that it was made with; with other code it begins anew.
import { join } from 'node:path';
import { codeHash, commit, machine, repository } from '../../bench/repository.js';
import { readResults, type Results, type StoredPart, writeResults } from '../../bench/results-file.js';
import type { CampaignRun } from './campaign.js';

export const campaignPart = 'campaign';

export class CampaignRecord {
  /** Ended before a seed below them has. */
  private readonly early = new Map<number, CampaignRun>();

  private constructor(
    private readonly path: string,
    private readonly code: string,
    private part: StoredPart,
  ) {}

  /**
   * `from`: the seed of the first run of a new campaign; null: goes on with the one that is recorded, if its code is this one. Throws
   * where a new one would wipe out problems that were found in this very code.
   */
  static open(from: number | null, path = join(repository, 'bench/results.json')): CampaignRecord {
    const code = codeHash(campaignPart);
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
    const goesOn = stored?.code === code && (from === null || from === stored.values['next_seed']);
    const { problems = 0, next_seed: next } = stored?.values ?? {};
    if (stored?.code === code && !goesOn && problems > 0)
      throw new Error(
        `the campaign that is recorded in ${path} has found ${problems} problems in this code, which one from seed ${from} would wipe out; ` +
          `go on with it (no --seed, or --seed ${next}), or mend them first`,
      );
    return new CampaignRecord(path, code, goesOn ? stored : { ...stamp(code), values: fresh, notes: [] });
  }

  /** Seed with which it goes on. */
  get next(): number {
    return this.part.values['next_seed'] ?? 1;
  }

  /** Written as soon as all runs with lower seeds are: what is recorded has no gap. */
  add(run: CampaignRun): void {
    if (codeHash(campaignPart) !== this.code)
      throw new Error('the code of the campaign changed meanwhile: nothing more is recorded');
    this.early.set(run.seed, run);
    for (let next = this.early.get(this.next); next; next = this.early.get(this.next)) {
      this.early.delete(next.seed);
      const { values } = this.part;
      const add = (name: string, more: number): number => (values[name] ?? 0) + more;
      this.part = {
        ...stamp(this.code),
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
    const results: Results = readResults(this.path);
    results.parts[campaignPart] = this.part;
    results.machine ??= machine();
    writeResults(this.path, results);
  }

  summary(): string {
    const { runs, equal, faults, problems } = this.part.values;
    return `${equal} of ${runs} runs equal, ${faults} faults, ${problems} problems; the next seed is ${this.next}`;
  }
}

const stamp = (code: string): Pick<StoredPart, 'date' | 'commit' | 'code'> => ({
  date: new Date().toISOString(),
  commit: commit(),
  code,
});
