// Which states a sweep evaluates: turns its entries and the store's contents into a list with each state once.
//
// If a step is given by number and is not in the store, the sweep is refused, and the message names the nearest steps. A damaged checkpoint
// is only left out, named and counted: one bad file, or one run of another version that a pattern matches, must not stop a night's sweep of
// the other states. It is not replaced, because an older state under the heading "latest" would mislead. Only a damaged baseline is
// refused, because every figure is compared with it. A state that has all its results needs no checkpoint. Here, files are checked by size;
// a node compares their bytes when it fetches them.
import type { EvaluationResult } from '../spec/records/evaluation-records.js';
import { InvalidSpec, type SpecProblem } from '../spec/invalid-spec.js';
import { nearestName } from '../base/nearest-name.js';
import { nameOfNumerics, sameNumerics } from '../spec/records/numerics.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import { checkpointDamage, listCheckpoints, unreadable } from '../store/runs/checkpoints.js';
import { inParallel } from '../base/in-parallel.js';
import { evaluationResultKey, evaluationsOfState } from '../store/record-keys.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { openRunViews } from '../store/runs/quarantine.js';
import { readRecord } from '../store/records/records.js';
import {
  lastCommittedStep,
  listRuns,
  readNumerics,
  readRunIfAny,
  readState,
  timelineOf,
} from '../store/runs/run-records.js';
import type { Place, SelectedCheckpoint, SkippedCheckpoint } from '../spec/records/sweep-record.js';
import { isPattern, type CheckpointsSpec, type SweepSpec } from '../spec/sweep-spec.js';

export interface Selection {
  /** Ordered by run, as in the sweep's entries, then by step; includes the baseline. */
  checkpoints: SelectedCheckpoint[];
  /** State of the baseline; null if the sweep names none. */
  baseline: Digest | null;
  skipped: SkippedCheckpoint[];
}

/** The sweep's suites: their digests, and the run that supplies their data and settings. */
interface SuitesInQuestion {
  digests: readonly Digest[];
  reference: RunRecord;
}

/** Throws one `InvalidSpec` with all problems. */
export async function selectCheckpoints(
  store: ObjectStore,
  spec: SweepSpec,
  suites: SuitesInQuestion,
): Promise<Selection> {
  return new Selector(store, spec, suites).select();
}

/** A run in the sweep, with its stored checkpoints in ascending order and its last committed step. */
interface SweptRun {
  record: RunRecord;
  steps: number[];
  last: number;
}

interface Candidate extends Place {
  path: string;
  evaluated: boolean;
  state: Digest;
  /** True if the step belongs to this run itself, not to a run from which it was forked (R5). */
  own: boolean;
}

const baselinePath = 'baseline.step';

class Selector {
  private readonly problems: SpecProblem[] = [];
  private readonly skipped: SkippedCheckpoint[] = [];
  private readonly runs = new Map<string, SweptRun | null>();
  private readonly states = new Map<string, Digest | null>();
  /** The store as each run sees it: a run's quarantine decides which evaluations exist for its states (R24). */
  private readonly views: (run: string) => Promise<ObjectStore>;

  constructor(
    private readonly store: ObjectStore,
    private readonly spec: SweepSpec,
    private readonly suites: SuitesInQuestion,
  ) {
    this.views = openRunViews(store);
  }

  async select(): Promise<Selection> {
    const found: Candidate[] = [];
    const baseline = await this.baseline();
    if (baseline !== null) found.push(baseline);
    for (const [index, entry] of this.spec.checkpoints.entries()) {
      const path = `checkpoints[${index}]`;
      for (const run of await this.runsOf(entry, path)) found.push(...(await this.ofRun(entry, run, path)));
    }
    const whole = await this.withoutDamaged(found);
    if (this.problems.length > 0) throw new InvalidSpec(this.problems, `sweep ${this.spec.name}`);
    const order = [...new Set([...found.slice(baseline === null ? 0 : 1), ...found].map(({ run }) => run))];
    const inOrder = (a: Place, b: Place): number =>
      order.indexOf(a.run) - order.indexOf(b.run) || a.step - b.step;
    const claims = whole.sort(inOrder).map((one) => ({ ...one, claim: this.claimOf(one) }));
    return {
      checkpoints: withoutDoubles(claims).sort(inOrder),
      baseline: baseline?.state ?? null,
      skipped: this.skipped.sort((a, b) => a.run.localeCompare(b.run) || (a.step ?? -1) - (b.step ?? -1)),
    };
  }

  /** Run ids that an entry selects. Runs that match a pattern but cannot be read or compared are noted as skipped. */
  private async runsOf({ run }: CheckpointsSpec, path: string): Promise<string[]> {
    if (!isPattern(run)) return (await this.run(run, `${path}.run`)) === null ? [] : [run];
    const names = (await listRuns(this.store)).filter((name) => matches(name, run));
    const meant: string[] = [];
    for (const name of names) {
      const swept = await this.ofPattern(name).catch(
        (error: unknown) => `cannot be read: ${unreadable(error)}`,
      );
      if (swept === null) continue;
      if (typeof swept === 'string') this.skip({ run: name, step: null, reason: swept });
      else {
        this.runs.set(name, swept);
        meant.push(name);
      }
    }
    return meant;
  }

  /** Like `lookAt`; null for a run of another project. */
  private async ofPattern(run: string): Promise<SweptRun | string | null> {
    const record = await readRunIfAny(this.store, run);
    return record?.spec.project === this.spec.project ? this.lookAt(record) : null;
  }

  /** The run, or null with a noted problem if it does not exist or cannot be compared. */
  private async run(run: string, path: string): Promise<SweptRun | null> {
    const known = this.runs.get(run);
    if (known !== undefined) return known;
    const record = await readRunIfAny(this.store, run);
    let swept: SweptRun | null = null;
    if (record === null) {
      const near = nearestName(run, await listRuns(this.store));
      const fix = near === null ? 'see `longhaul runs`' : `did you mean ${near}?`;
      this.problems.push({ path, problem: `there is no run "${run}" in ${this.store.address}`, fix });
    } else {
      const looked = await this.lookAt(record);
      if (typeof looked === 'string') {
        const fix = `compare ${run} in a sweep of its own, with data_of: ${run}`;
        this.problems.push({ path, problem: looked, fix });
      } else swept = looked;
    }
    this.runs.set(run, swept);
    return swept;
  }

  /** The run, or the reason why its states cannot be compared. */
  private async lookAt(record: RunRecord): Promise<SweptRun | string> {
    const { reference } = this.suites;
    const other = otherThan(record, reference);
    if (other !== null) return other;
    const { run } = record;
    const [steps, last] = await Promise.all([
      listCheckpoints(this.store, record),
      lastCommittedStep(this.store, run),
      this.views(run),
    ]);
    if (last >= 0) {
      const [own, suites] = [
        await readNumerics(this.store, run),
        await readNumerics(this.store, reference.run),
      ];
      if (!sameNumerics(own, suites))
        return `computes with ${nameOfNumerics(own)}, but the suites are of ${reference.run}, which computes with ${nameOfNumerics(suites)}`;
    }
    return { record, steps, last };
  }

  private async baseline(): Promise<Candidate | null> {
    const { baseline } = this.spec;
    if (baseline === undefined) return null;
    const swept = await this.run(baseline.run, 'baseline.run');
    if (swept === null) return null;
    const found = await this.named(swept, baseline.step, baselinePath);
    const candidate = this.withoutProblems([found])[0] ?? null;
    if (candidate === null && this.problems.length === 0) {
      const reason = this.skipped.at(-1)?.reason ?? '';
      const fix = 'name another baseline: the sweep compares all other states with it';
      this.problems.push({ path: 'baseline', problem: `cannot be used: ${reason}`, fix });
    }
    return candidate;
  }

  private async ofRun(entry: CheckpointsSpec, run: string, path: string): Promise<Candidate[]> {
    const swept = await this.run(run, `${path}.run`);
    if (swept === null) return [];
    let candidates: Candidate[];
    if (entry.steps !== undefined) {
      const named = await inParallel(entry.steps, (step, index) =>
        this.named(swept, step, `${path}.steps[${index}]`),
      );
      candidates = this.withoutProblems(named);
    } else {
      const steps = await this.chosen(entry, swept, path);
      const known = await inParallel(steps, (step) => this.candidate(run, step, path));
      candidates = known.filter((one) => one !== null);
    }
    return entry.not_yet_evaluated ? candidates.filter(({ evaluated }) => !evaluated) : candidates;
  }

  /** The stored steps that an entry selects. An entry for one run that selects no step is an error, unless it waits for new ones. */
  private async chosen(entry: CheckpointsSpec, { record, steps }: SweptRun, path: string): Promise<number[]> {
    const { range, latest, best, every } = entry;
    const chosen = await (async (): Promise<number[]> => {
      if (range !== undefined) return steps.filter((step) => isIn(range, step));
      if (latest !== undefined) return steps.slice(-latest);
      if (best !== undefined) return (await this.bestFirst(record.run, steps)).slice(0, best);
      if (every !== undefined) return steps.filter((_, index) => (steps.length - 1 - index) % every === 0);
      return steps;
    })();
    const waits = entry.not_yet_evaluated || isPattern(entry.run);
    if (chosen.length === 0 && !waits) {
      const [problem, fix] = none(entry, record.run, steps);
      this.problems.push({ path, problem, fix });
    }
    return chosen;
  }

  /**
   * The steps among `steps` that have an evaluation, best first; of two equally good steps, the newer first, because it has learned longer.
   * Only the suite with the most evaluated steps counts, because rates on different tasks cannot be compared.
   */
  private async bestFirst(run: string, steps: readonly number[]): Promise<number[]> {
    const results = await inParallel(steps, async (step) => {
      const state = await this.stateOf(run, step);
      return state === null ? [] : this.resultsOf({ run, step }, state);
    });
    const bySuite = new Map<Digest, { step: number; pass_at_1: number }[]>();
    for (const [index, step] of steps.entries()) {
      for (const { suite, pass_at_1 } of results[index] ?? [])
        if (pass_at_1 !== null) bySuite.set(suite, [...(bySuite.get(suite) ?? []), { step, pass_at_1 }]);
    }
    const [most] = [...bySuite].sort(
      ([a, of], [b, others]) => others.length - of.length || a.localeCompare(b),
    );
    return (most?.[1] ?? [])
      .sort((a, b) => b.pass_at_1 - a.pass_at_1 || b.step - a.step)
      .map(({ step }) => step);
  }

  /** The state's results; an unreadable one is left out and noted. */
  private async resultsOf(place: Place, state: Digest): Promise<EvaluationResult[]> {
    const view = await this.views(place.run);
    const names = await view.listFolder(evaluationsOfState(state));
    const suites = names.flatMap((name) => /^([0-9a-f]{64})\/$/.exec(name)?.[1] ?? []);
    const results = await inParallel(suites, (suite) =>
      readRecord(view, evaluationResultKey(state, suite), 'evaluation').catch((error: unknown) => {
        const reason = `was compared without one of its evaluations: ${unreadable(error)}`;
        this.skip({ ...place, reason });
        return null;
      }),
    );
    return results.filter((result) => result !== null);
  }

  /** A step that the sweep gives by number, or the problem with it. Null if its state cannot be read; that problem is noted. */
  private async named(
    { record, steps, last }: SweptRun,
    step: number,
    path: string,
  ): Promise<Candidate | SpecProblem | null> {
    const { run } = record;
    const fix = nearestSteps(steps, step);
    if (step > last) {
      const so = last < 0 ? `${run} has not begun` : `the last step of ${run} is ${last}`;
      return { path, problem: `is ${step}, but ${so}`, fix };
    }
    const candidate = await this.candidate(run, step, path);
    if (candidate === null || candidate.evaluated || isBase(step) || steps.includes(step)) return candidate;
    const problem = `is ${step}, but ${run} has no checkpoint of step ${step}: it was never uploaded, or was collected since`;
    return { path, problem, fix };
  }

  /** The candidates; the problems among `found` are noted in order. */
  private withoutProblems(found: readonly (Candidate | SpecProblem | null)[]): Candidate[] {
    return found.filter((one): one is Candidate => {
      if (one !== null && 'problem' in one) this.problems.push(one);
      return one !== null && !('problem' in one);
    });
  }

  /** The candidate. Null if its state cannot be read; that problem is noted. */
  private async candidate(run: string, step: number, path: string): Promise<Candidate | null> {
    const state = await this.stateOf(run, step);
    if (state === null) return null;
    const view = await this.views(run);
    const results = await inParallel(this.suites.digests, (suite) =>
      view.head(evaluationResultKey(state, suite)),
    );
    const own = (await timelineOf(this.store, run, step)) === run;
    return { run, step, path, state, own, evaluated: results.every((one) => one !== null) };
  }

  private async stateOf(run: string, step: number): Promise<Digest | null> {
    const place = placeText({ run, step });
    const known = this.states.get(place);
    if (known !== undefined) return known;
    let state: Digest | null = null;
    try {
      state = await readState(this.store, run, step);
    } catch (error) {
      this.skip({ run, step, reason: `its state is unknown: ${unreadable(error)}` });
    }
    this.states.set(place, state);
    return state;
  }

  /** How well a place matches the sweep's request: numbers, compared in order; the place with the lower number names the state. */
  private claimOf({ path, own, run }: Candidate): number[] {
    const entry = /^checkpoints\[(\d+)\]/.exec(path)?.[1];
    const named = entry === undefined ? run : (this.spec.checkpoints[Number(entry)]?.run ?? run);
    return [
      Number(path !== baselinePath),
      Number(!path.includes('.steps[')),
      Number(isPattern(named)),
      Number(!own),
    ];
  }

  private async withoutDamaged(found: readonly Candidate[]): Promise<Candidate[]> {
    const damages = await inParallel(found, async (one) =>
      one.evaluated || isBase(one.step) ? null : checkpointDamage(this.store, one),
    );
    return found.filter(({ run, step, path }, index) => {
      const damage = damages[index] ?? null;
      if (damage === null) return true;
      if (path === baselinePath) {
        const fix = 'name another baseline: the sweep compares all other states with it';
        this.problems.push({
          path,
          problem: `is ${step} of ${run}, whose checkpoint is damaged: ${damage}`,
          fix,
        });
      } else this.skip({ run, step, reason: damage });
      return false;
    });
  }

  private skip(skipped: SkippedCheckpoint): void {
    const known = this.skipped.some(({ run, step }) => run === skipped.run && step === skipped.step);
    if (!known) this.skipped.push(skipped);
  }
}

/** The base model needs no checkpoint: the run's record says how to make it. */
function isBase(step: number): boolean {
  return step === 0;
}

/** `run@120` */
export function placeText({ run, step }: Place): string {
  return `${run}@${step}`;
}

/** `a*b` matches `a-x-b`. */
function matches(name: string, pattern: string): boolean {
  const parts = pattern.split('*').map((part) => part.replaceAll('.', '\\.'));
  return new RegExp(`^${parts.join('.*')}$`).test(name);
}

/** Why a run's states cannot be played on the suites of `reference`, as the rest of a sentence about the run; null if they can. */
function otherThan(run: RunRecord, reference: RunRecord): string | null {
  const [own, suites] = [run.spec.model.name, reference.spec.model.name];
  if (own !== suites)
    return `has model ${own}, but the suites are of ${reference.run}, which has model ${suites}`;
  if (run.tokenizer !== reference.tokenizer)
    return `has another tokenizer than ${reference.run}, the run of the suites`;
  if (run.chat_template !== reference.chat_template)
    return `has another chat template than ${reference.run}, the run of the suites`;
  if (run.tool_parser !== reference.tool_parser)
    return `parses tool calls with ${run.tool_parser}, but ${reference.run}, the run of the suites, with ${reference.tool_parser}`;
  return null;
}

function isIn({ from, to, every }: NonNullable<CheckpointsSpec['range']>, step: number): boolean {
  if (step < from || (to !== undefined && step > to)) return false;
  return every === undefined || (step - from) % every === 0;
}

function none(entry: CheckpointsSpec, run: string, steps: readonly number[]): [problem: string, fix: string] {
  if (steps.length === 0)
    return [
      `asks for checkpoints of ${run}, which has none yet`,
      'wait for its first checkpoint, or add not_yet_evaluated: true',
    ];
  if (entry.best !== undefined)
    return [`asks for the best checkpoint of ${run}, but none of them has an evaluation yet`, 'use latest'];
  return [`matches no checkpoint of ${run}`, nearestSteps(steps, entry.range?.from ?? 0)];
}

/** Text that names the nearest stored steps before and after `step`. */
function nearestSteps(steps: readonly number[], step: number): string {
  const near = [steps.findLast((one) => one < step), steps.find((one) => one > step)].filter(
    (one) => one !== undefined,
  );
  if (near.length === 0) return 'the run has no other checkpoint in the store';
  return near.length === 1
    ? `the nearest checkpoint is of step ${near[0]}`
    : `the nearest checkpoints are of steps ${near[0]} and ${near[1]}`;
}

type Claimant = Candidate & { claim: number[] };

/** Keeps one place for each state: the place with the strongest claim, or the first of several with equal claims. */
function withoutDoubles(candidates: readonly Claimant[]): SelectedCheckpoint[] {
  const byState = new Map<Digest, Claimant[]>();
  for (const one of candidates) byState.set(one.state, [...(byState.get(one.state) ?? []), one]);
  return [...byState].map(([state, places]) => {
    const name = places.reduce((best, one) => (isStronger(one.claim, best.claim) ? one : best));
    const also = new Map(places.map(({ run, step }) => [placeText({ run, step }), { run, step }]));
    also.delete(placeText(name));
    return { run: name.run, step: name.step, state, also: [...also.values()], needed: !name.evaluated };
  });
}

function isStronger(a: readonly number[], b: readonly number[]): boolean {
  const at = a.findIndex((one, index) => one !== b[index]);
  return at >= 0 && (a[at] ?? 0) < (b[at] ?? 0);
}
