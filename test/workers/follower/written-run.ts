// A run's records one by one, in the order in which a run writes them, for readers that read while the run is in progress.
import type { ControlChange } from '../../../src/spec/records/control-records.js';
import type { UpdateRecord } from '../../../src/spec/records/update.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import {
  checkpointManifestKey,
  controlFolder,
  datasetManifestKey,
  evaluationResultKey,
  evaluationSuiteKey,
  runEvaluationKey,
  attemptFolder,
  ownersFolder,
  planKey,
  runKey,
  sequenceKey,
  updateKey,
} from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import type { RecordKind, RecordTypes } from '../../../src/spec/records/record-kinds.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';

export interface Written {
  key: string;
  /** Within a group, later records depend on earlier ones, above all in `steps`. */
  group: 'steps' | 'evaluation' | 'beside';
  /** For an evaluation: the step of its state. */
  step: number;
  write: (store: ObjectStore) => Promise<void>;
}

export interface WrittenRun {
  run: string;
  steps: number;
  /** Steps between two interval evaluations; the `final` one comes at the end. */
  evalInterval: number;
  /** Pass rate of an interval evaluation at which the run ends. The rate is 0.25, plus 0.01 for each step. */
  targetPassAt1: number;
  /** Steps that changed nothing, with the reason. */
  unapplied: ReadonlyMap<number, string>;
  lineage: RecordTypes['run']['lineage'];
  /** US$ per hour in the first start, and in a second start, which begins at `secondStart`. */
  prices: [number, number];
  secondStart: number;
  /** Replaces figures of a step; NaN removes one. */
  metrics: (step: number) => Record<string, number>;
  /** True if every outcome of the run's evaluations is unknown. */
  gradesNothing: boolean;
  /** The run that played the evaluations, if that is another run. */
  evaluatedBy: string;
  /** By how many seconds that run was ahead. */
  evaluatedAhead: number;
  /** Changes the suites of the run's evaluations. */
  suite: (suite: RecordTypes['suite']) => RecordTypes['suite'];
  budget: NonNullable<RecordTypes['owner']['observed']['budget']>;
  /** Budget of a second start, if it differs. */
  secondBudget: NonNullable<RecordTypes['owner']['observed']['budget']> | null;
  kind: UpdateRecord['identity']['kind'];
  /** Seconds between two commits. */
  stepSeconds: number;
  /** Steps in which an attempt before the update reports a lost node, which cost 9 s. */
  lostNodes: readonly number[];
  /** Outcomes of each step. */
  outcomes: (number | null)[][];
}

const start = Date.parse('2026-01-02T03:00:00.000Z');
const suiteTasks = { interval: 3, final: 5 };

export const timeOf = (seconds: number): string => new Date(start + seconds * 1000).toISOString();

/** Contains no run name, because two runs with one seed have the same states. */
export const stateAfter = (step: number): string => step.toString(16).padStart(64, '0');

export function runOf(options: Partial<WrittenRun> = {}): WrittenRun {
  const run = options.run ?? 'tiny';
  return {
    run,
    steps: 12,
    evalInterval: 4,
    targetPassAt1: 0,
    unapplied: new Map(),
    lineage: null,
    prices: [0, 0],
    secondStart: Infinity,
    metrics: () => ({}),
    gradesNothing: false,
    evaluatedBy: run,
    evaluatedAhead: 0,
    suite: (suite) => suite,
    budget: {},
    secondBudget: null,
    kind: 'grpo',
    stepSeconds: 2,
    lostNodes: [],
    outcomes: [
      [1, 0, null, 1],
      [1, 1, 0, 0],
    ],
    ...options,
  };
}

export function recordsOf(options: Partial<WrittenRun> = {}): Written[] {
  const run = runOf(options);
  const all = recordsOfAllKinds();
  const written: Written[] = [];
  const add = <Kind extends RecordKind>(
    group: Written['group'],
    step: number,
    key: string,
    kind: Kind,
    record: RecordTypes[Kind],
  ): void => {
    written.push({
      key,
      group,
      step,
      write: async (store) => void (await store.create(key, await encodeRecord(kind, record))),
    });
  };
  const first = run.lineage?.step ?? 0;
  const { name, version } = all.run.dataset;
  add('steps', 0, datasetManifestKey(name, version), 'dataset', { ...all.dataset, held_out_tasks: 500 });
  add('steps', 0, runKey(run.run), 'run', {
    ...all.run,
    run: run.run,
    name: run.run.replace(/~.*/, ''),
    spec: specOf(run, all),
    lineage: run.lineage,
    observed: { started_at: timeOf(0) },
  });
  const addOwner = (n: number): void => {
    const observed = {
      ...all.owner.observed,
      // The second start comes when the steps of the first are committed.
      at: timeOf(n === 1 ? 0 : (run.secondStart - 1) * run.stepSeconds + 0.5),
      budget: {
        ...((n === 2 ? run.secondBudget : null) ?? run.budget),
        usd_per_gpu_hour: run.prices[n - 1] ?? 0,
      },
    };
    add('steps', first, sequenceKey(ownersFolder(run.run), n), 'owner', {
      ...all.owner,
      n,
      firstExecutionRunId: `r${n}`,
      observed,
    });
  };
  const addLoss = (step: number): void => {
    const key = sequenceKey(attemptFolder(run.run, step, 'collect', 'r1.1'), 1);
    const lost = { seconds: 0, tokens: 0, episodes: 0 };
    const event = { event: `lease ${step}`, lost, detection_seconds: 9, down_seconds: 9 };
    add('steps', step, key, 'attempt', {
      ...all.attempt,
      activity: `step-${String(step).padStart(6, '0')}/collect`,
      observed: { ...all.attempt.observed, recoveries: [{ cause: 'node_lost', ...event }] },
    });
  };
  addOwner(1);
  if (!run.lineage) {
    const identity = { ...all.base.identity, run: run.run, state: stateAfter(0) };
    add('steps', 0, updateKey(run.run, 0), 'base', { ...all.base, identity });
    addEvaluation(add, run, 0, 0, 'final');
  }
  let state = first;
  for (let step = first + 1; step <= run.steps; step++) {
    if (step === run.secondStart) addOwner(2);
    const plan: RecordTypes['plan'] = {
      ...all.plan,
      run: run.run,
      step,
      previous_state: stateAfter(state),
      owner: step < run.secondStart ? 1 : 2,
    };
    add('steps', step, planKey(run.run, step), 'plan', plan);
    if (run.lostNodes.includes(step)) addLoss(step);
    const before = state;
    const reason = run.unapplied.get(step);
    if (reason === undefined) state = step;
    add(
      'steps',
      step,
      updateKey(run.run, step),
      'update',
      updateOf(run, all.update, step, recordDigest(plan), [before, state], reason),
    );
    if (reason === undefined && step % run.evalInterval === 0 && step < run.steps)
      addEvaluation(add, run, step, state, 'interval');
  }
  addEvaluation(add, run, run.steps, state, 'final');
  // A state that a step did not change was evaluated before: a run does not play it again.
  return written.filter(({ key }, at) => written.findIndex((other) => other.key === key) === at);
}

type Add = <Kind extends RecordKind>(
  group: Written['group'],
  step: number,
  key: string,
  kind: Kind,
  record: RecordTypes[Kind],
) => void;

function addEvaluation(
  add: Add,
  run: WrittenRun,
  step: number,
  state: number,
  suiteName: 'interval' | 'final',
): void {
  const all = recordsOfAllKinds();
  const { tokenizer, chat_template, tool_parser, dataset } = all.run;
  const [task] = all.suite.tasks;
  const suite = run.suite({
    ...all.suite,
    name: suiteName,
    seed: all.run.seed,
    tasks: Array.from({ length: suiteTasks[suiteName] }, (_, seed) => ({ ...task!, seed })),
    digests: { tokenizer, chat_template, tool_parser, dataset: dataset.digest },
    numerics: all.base.identity.numerics,
  });
  const digest = recordDigest(suite);
  const graded = run.gradesNothing ? 0 : 10;
  const pass_at_1 = run.gradesNothing ? null : Math.min(1, 0.25 + step / 100);
  // In the order of a real run: the suite is recorded before it is played.
  add('evaluation', step, evaluationSuiteKey(stateAfter(state), digest), 'suite', suite);
  add('evaluation', step, evaluationResultKey(stateAfter(state), digest), 'evaluation', {
    ...all.evaluation,
    state: stateAfter(state),
    suite: digest,
    suite_name: suite.name,
    pass_at_1,
    graded,
    unknown: 10 - graded,
    environments: {
      'crm/eu': {
        pass_at_1,
        graded,
        unknown: 10 - graded,
        mean_turns: 2,
        mean_tool_calls: 1,
        tool_errors: 4,
      },
    },
    observed: {
      run: run.evaluatedBy,
      step,
      seconds: 3,
      committed_at: timeOf(step * run.stepSeconds + 1 - run.evaluatedAhead),
      metrics: {},
    },
  });
  add('evaluation', step, runEvaluationKey(run.run, step, suite.name), 'evaluated', {
    ...all.evaluated,
    ...{ run: run.run, step, suite_name: suite.name, state: stateAfter(state), suite: digest },
  });
}

function specOf(run: WrittenRun, { run: record, suite }: RecordTypes): RunSpec {
  return {
    ...record.spec,
    name: run.run,
    environments: [{ env_key: 'crm/eu' }],
    data: { eval_tasks: suiteTasks.interval, final_eval_tasks: suiteTasks.final },
    warm_start: [],
    generator: { ...suite.sampling, temperature: 0.7 },
    trainer: {
      max_training_steps: run.steps,
      eval_interval: run.evalInterval,
      target_pass_at_1: run.targetPassAt1,
    },
  } as unknown as RunSpec;
}

function updateOf(
  run: WrittenRun,
  base: UpdateRecord,
  step: number,
  plan: string,
  [before, after]: [number, number],
  reason: string | undefined,
): UpdateRecord {
  return {
    ...base,
    identity: {
      ...base.identity,
      run: run.run,
      step,
      plan,
      previous_state: stateAfter(before),
      state: stateAfter(after),
      applied: reason === undefined ? true : { reason },
      kind: run.kind,
      outcomes: run.outcomes,
    },
    observed: {
      ...base.observed,
      metrics: withoutNaN({
        'reward/avg_raw_reward': step / 50,
        'reward/signal_ratio': 0.5,
        'environment/crm/eu/tool_error_rate': 0.1,
        'policy/grad_norm': 0.1 + step,
        'generate/avg_num_tokens': 10.3,
        ...run.metrics(step),
      }),
      timings_ms: { step: run.stepSeconds * 1000, in_flight: 1234.5 },
      committed_at: timeOf(step * run.stepSeconds),
    },
  };
}

function withoutNaN(metrics: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([, value]) => !Number.isNaN(value)));
}

/** Writes a control record; the numbers follow the order of writing. */
export async function writeControl(
  store: ObjectStore,
  run: string,
  n: number,
  change: ControlChange,
  seconds: number,
): Promise<void> {
  const record: RecordTypes['control'] = {
    schema: 'longhaul.control/3',
    n,
    update_id: `u${n}`,
    change,
    observed: { at: timeOf(seconds) },
  };
  await store.create(sequenceKey(controlFolder(run), n), await encodeRecord('control', record));
}

export async function writeCheckpoint(store: ObjectStore, run: string, step: number): Promise<void> {
  const all = recordsOfAllKinds();
  const { project, model } = all.run.spec;
  const key = checkpointManifestKey({ project, model: model.name, run }, step);
  await store.create(
    key,
    await encodeRecord('checkpoint', { ...all.checkpoint, run, step, state: stateAfter(step) }),
  );
}

export async function writeAll(store: ObjectStore, records: readonly Written[]): Promise<void> {
  for (const { write } of records) await write(store);
}
