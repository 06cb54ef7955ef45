// The fixed contents of a simulation's runs: plans, batches, and the adapters of each state of an undisturbed run. They are computed once for many
// schedules.
import { encodePass } from '../../../../src/engine/tinker/wire.js';
import { servedLoss } from '../../../../src/engine/tinker/passes.js';
import { adamOf, chunked } from '../../../../src/policy/served/step-requests.js';
import { sha256Hex } from '../../../../src/base/sha256.js';
import type { BatchArrays } from '../../../../src/spec/records/batch.js';
import type { Digest } from '../../../../src/spec/records/parts.js';
import type { PlanRecord } from '../../../../src/spec/records/plan.js';
import type { RunRecord } from '../../../../src/spec/records/run-records.js';
import type { RunSpec, ServedModel, SftPhaseSpec } from '../../../../src/spec/run-spec.js';
import { encodeBatchFile } from '../../../../src/store/files/batch-file.js';
import { batchKey, planKey, runKey, updateKey } from '../../../../src/store/record-keys.js';
import { recordDigest, stepIdOf } from '../../../../src/store/records/canonical.js';
import { encodeRecord } from '../../../../src/store/records/record-codec.js';
import { nameOfBase, nameOfState } from '../../../../src/store/records/served-names.js';
import { recordsOfAllKinds } from '../../../store/fixtures.js';
import {
  type Adapters,
  copyOf,
  freshAdapters,
  logprobOf,
  noGradient,
  passOver,
  poison,
  step,
} from './adapters.js';
import { Random } from './random.js';
import { servedName } from './server.js';
import { readPass } from './server-bytes.js';

/** Settings of a script's runs. */
export interface ScriptOptions {
  number: number;
  steps: number;
  /** About how far one step moves a log-prob. */
  movement: number;
  saveEvery: number;
  numbered: boolean;
  /** True if the trainer's log-probs replace the sampled ones (`use_tis`). */
  rescored: boolean;
  /** First step of a second training phase; null: there is one phase. */
  phase: number | null;
  /** A step whose gradient is not finite. */
  poisoned: number | null;
  /** The second run continues the first one after this step. */
  fork: number | null;
}

export interface ScriptedStep {
  step: number;
  plan: { key: string; record: PlanRecord; digest: Digest; bytes: Uint8Array };
  batch: { key: string; digest: Digest; bytes: Uint8Array };
  stepId: Digest;
}

export interface ScriptedRun {
  run: string;
  record: RunRecord;
  /** Step that it continues; 0 for the first run. */
  after: number;
  /** Steps after that one. */
  steps: ScriptedStep[];
  /** By step, from 0 on: the state's name, and its adapters. */
  states: { state: Digest; adapters: Adapters }[];
}

export interface Script {
  options: ScriptOptions;
  /** Records that are there before the first step, by key. */
  records: [key: string, bytes: Uint8Array][];
  runs: ScriptedRun[];
}

export const policy = { service: 'test', model: servedName };
export const numerics = { backend: 'tinker', version: 1, ...policy } as const;
export const tolerance = 0.1;

const rank = 8;
const seed = 7;

export async function writeScript(options: ScriptOptions): Promise<Script> {
  const random = new Random(options.number);
  const kinds = recordsOfAllKinds();
  const main = await scripted('tiny', null, options, random);
  const runs = [main];
  if (options.fork !== null) runs.push(await scripted('branch', main, options, random));
  const base = {
    ...kinds.base,
    identity: { ...kinds.base.identity, run: 'tiny', state: main.states[0]!.state, numerics },
  };
  const { weights: _, ...identity } = base.identity;
  const records: Script['records'] = [
    [updateKey('tiny', 0), await encodeRecord('base', { ...base, identity })],
  ];
  for (const { run, record } of runs) records.push([runKey(run), await encodeRecord('run', record)]);
  return { options, records, runs };
}

async function scripted(
  run: string,
  parent: ScriptedRun | null,
  options: ScriptOptions,
  random: Random,
): Promise<ScriptedRun> {
  const after = parent && options.fork !== null ? options.fork : 0;
  const states = parent
    ? parent.states.slice(0, after + 1)
    : [{ state: nameOfBase({ ...policy, rank, seed }), adapters: freshAdapters() }];
  const record = recordOf(
    run,
    options,
    parent && { run: parent.run, step: after, state: states[after]!.state },
  );
  const steps: ScriptedStep[] = [];
  for (let number = after + 1; number <= options.steps; number++) {
    const before = states[number - 1]!;
    const { planned, arrays } = await sealed(run, number, before, options, random);
    steps.push(planned);
    const isApplied = number !== options.poisoned;
    states.push(
      isApplied
        ? {
            state: nameOfState(before.state, planned.stepId),
            adapters: applied(before.adapters, planned.plan.record, arrays, record.spec, options.movement),
          }
        : before,
    );
  }
  return { run, record, after, steps, states };
}

function recordOf(run: string, options: ScriptOptions, lineage: RunRecord['lineage']): RunRecord {
  const kinds = recordsOfAllKinds();
  const served: ServedModel = {
    ...{ name: servedName, rank, reduction: 'sum', numbered: options.numbered, clips: false },
    ...{ chunk_sequences: 1, chunk_tokens: 65_536, logprob_tolerance: tolerance },
  };
  const { spec } = kinds.run;
  return {
    ...kinds.run,
    ...{ run, name: run, lineage },
    spec: {
      ...spec,
      name: run,
      warm_start: options.phase === null ? [] : [firstPhase(options.phase - 1)],
      model: { ...spec.model, served },
      generator: { ...spec.generator, max_wait_s: 3600 },
      trainer: { ...spec.trainer, save_every: options.saveEvery },
    },
  };
}

/** A plan of `updates` steps with one optimizer update each. */
function firstPhase(updates: number): SftPhaseSpec {
  const adam = { lr: 1e-3, warmup_updates: 0, decay_share: 0, adam_betas: [0.9, 0.999] as [number, number] };
  return {
    name: 'drill',
    demonstrations: 'drill',
    updates,
    mini_batches_per_step: 1,
    mini_batch_size: 1,
    ...adam,
  };
}

async function sealed(
  run: string,
  number: number,
  before: ScriptedRun['states'][number],
  options: ScriptOptions,
  random: Random,
): Promise<{ planned: ScriptedStep; arrays: BatchArrays }> {
  const kinds = recordsOfAllKinds();
  const miniBatches = random.chance(0.3) ? 2 : 1;
  const { loss, optimizer } = kinds.plan;
  const plan: PlanRecord = {
    ...(kinds.plan as Extract<PlanRecord, { kind: 'grpo' }>),
    ...{ run, step: number, previous_state: before.state, numerics },
    optimizer: {
      ...optimizer,
      learning_rates: Array.from({ length: miniBatches }, () => 1 / miniBatches),
      reset_moments: number === 1 || number === options.phase,
    },
    loss: options.rescored ? { ...loss, tis_cap: 2 } : loss,
  };
  const digest = recordDigest(plan);
  const arrays = batchOf(before.adapters, miniBatches, number === options.poisoned, options, random);
  const bytes = encodeBatchFile(arrays, {
    ...kinds.batch,
    ...{ run, step: number, plan: digest, previous_state: before.state, mini_batches: miniBatches },
    loss_tokens: Array.from({ length: miniBatches }, () => targetsOfSample * samplesOfMiniBatch),
  });
  const batch = sha256Hex(bytes);
  return {
    planned: {
      step: number,
      plan: { key: planKey(run, number), record: plan, digest, bytes: await encodeRecord('plan', plan) },
      batch: { key: batchKey(run, number), digest: batch, bytes },
      stepId: stepIdOf(before.state, batch, digest),
    },
    arrays,
  };
}

const targetsOfSample = 3;
const samplesOfMiniBatch = 2;

/** Each sample has a token before its targets. The log-probs are those of the state before. */
function batchOf(
  before: Adapters,
  miniBatches: number,
  poisoned: boolean,
  { movement, rescored }: ScriptOptions,
  random: Random,
): BatchArrays {
  const nodes: number[] = [];
  const [tokens, rows, targets, samples, advantages, logprobs] = Array.from(
    { length: 6 },
    () => [] as number[],
  );
  for (let sample = 0; sample < miniBatches * samplesOfMiniBatch; sample++) {
    nodes.push(-1, targetsOfSample, Math.floor(sample / samplesOfMiniBatch));
    const all = Array.from({ length: targetsOfSample + 1 }, () => random.below(60));
    if (poisoned && sample === 0) all[targetsOfSample] = poison;
    const advantage = (sample % 2 === 0 ? 1 : -1) * (0.5 + random.next());
    for (let at = 0; at < targetsOfSample; at++) {
      rows!.push(tokens!.length);
      tokens!.push(all[at]!);
      targets!.push(all[at + 1]!);
      samples!.push(sample);
      advantages!.push(advantage);
      logprobs!.push(logprobOf(before, [all[at]!, all[at + 1]!], movement));
    }
  }
  const sampled = Float32Array.from(logprobs!);
  return {
    nodes: Int32Array.from(nodes),
    tokens: Int32Array.from(tokens!),
    target_rows: Int32Array.from(rows!),
    target_tokens: Int32Array.from(targets!),
    target_samples: Int32Array.from(samples!),
    target_advantages: Float32Array.from(advantages!),
    ...(rescored ? { target_rollout_logprobs: sampled } : { target_old_logprobs: sampled }),
  };
}

/** The adapters after a step that nothing disturbs. */
function applied(
  before: Adapters,
  plan: PlanRecord,
  arrays: BatchArrays,
  spec: RunSpec,
  movement: number,
): Adapters {
  const adapters = plan.optimizer.reset_moments
    ? { ...freshAdapters(), weights: [...before.weights] }
    : copyOf(before);
  const gradient = noGradient();
  const rescored =
    plan.loss.tis_cap === undefined ? undefined : rescoredOf(adapters, { plan, arrays, spec, movement });
  for (const [index, chunks] of chunked(spec, plan, arrays, rescored).entries()) {
    for (const data of chunks) {
      // As a server reads it: some numbers are float32 on the wire.
      const bytes = encodePass({ model_id: 'm', data, ...servedLoss(plan.loss) });
      for (const sequence of readPass(bytes).sequences) passOver(adapters, sequence, movement, gradient);
    }
    step(adapters, gradient, adamOf(plan, index, spec.model.served!));
  }
  return adapters;
}

function rescoredOf(
  adapters: Adapters,
  {
    plan,
    arrays,
    spec,
    movement,
  }: { plan: PlanRecord; arrays: BatchArrays; spec: RunSpec; movement: number },
): Float32Array {
  return Float32Array.from(
    chunked(spec, plan, arrays)
      .flat(2)
      .flatMap(({ tokens, inputs }) => {
        const weights = inputs['weights']!.data;
        const sequence = { tokens: [...tokens], targets: [...inputs['target_tokens']!.data], weights: [] };
        return passOver(adapters, sequence, movement, null).filter((_, at) => weights[at] !== 0);
      }),
  );
}
