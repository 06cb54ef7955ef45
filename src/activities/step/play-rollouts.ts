// Plays rollouts in parallel, each once, and writes their records (R8, R9).
import { itemOf, sentFor } from '../../engine/tinker/sent-tokens.js';
import { textCoder } from '../../episode/conversation.js';
import { playEpisode, type EpisodePlay } from '../../episode/episode-loop.js';
import { policyServer } from '../../engine/policy-engine.js';
import { FinishedElsewhere, freshMs, recordedText, requireEpisode, Unfinished } from './episode-record.js';
import type { EpisodeJournals, OpenJournal } from '../../episode/journal-folder.js';
import type { TurnJournal } from '../../episode/turn-journal.js';
import type { Digest, SamplingPlan } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { environmentOf } from '../../spec/environments/environment-schema.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { Task } from '../../spec/records/task.js';
import { recordDigest } from '../../store/records/canonical.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { adoptOrCreate } from '../../store/records/records.js';
import { currentAccount, type WorkUnit } from '../attempt/attempt-account.js';
import type { EvidenceWriter } from '../attempt/attempt-evidence.js';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import type { NodeDeps } from '../node-deps.js';
import { OpenWaits, type Wait } from './open-waits.js';
import type { RunData } from '../../data/run-data.js';
import type { AttemptScope } from '../../policy/attempt-scope.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import { type Patience, waitOutStore } from '../attempt/store-patience.js';

/** One episode to play. */
export interface Rollout {
  key: string;
  slot: number;
  sample: number;
  task: Task;
  seed: number;
}

/** What is the same for all episodes of a plan or a suite. */
export interface EpisodeTerms {
  data: RunData;
  plan: Digest;
  state: Digest;
  policyStep: number;
  sampling: SamplingPlan;
  random: { seed: number; domain: 'train' | 'eval'; step: number };
}

interface PlayOrder extends EpisodeTerms {
  rollouts: readonly Rollout[];
  /** A view through which folded episodes can be read by their keys. */
  store: ObjectStore;
  environments: readonly EnvironmentSpec[];
  journals: EpisodeJournals;
  evidence: EvidenceWriter;
}

interface OpenRollout extends Rollout {
  journal: OpenJournal;
}

/** Plays all rollouts. An episode that is cut off leaves no record. */
export async function playRollouts(
  deps: NodeDeps,
  order: PlayOrder,
  scope: AttemptScope,
): Promise<EpisodeRecord[]> {
  const stop = new AbortController();
  const signal = AbortSignal.any([scope.signal, stop.signal]);
  let finished = 0;
  const waits = new OpenWaits();
  const report = (): void => scope.progress({ finished, of: order.rollouts.length, ...waits.longest });
  const sampling = recordDigest(order.sampling);
  const plays = order.rollouts.map(async (rollout) => {
    const journal = await order.journals.open({
      schema: 'longhaul.journal/1',
      episode: rollout.key,
      plan: order.plan,
      state: order.state,
      sampling,
      seed: rollout.seed,
      random: { ...order.random, slot: rollout.slot, sample: rollout.sample },
    });
    try {
      const waiting = {
        goesOn: (wait: Wait): void => {
          waits.goesOn(rollout.key, wait);
          report();
        },
        ends: (): void => {
          if (waits.ends(rollout.key)) report();
        },
      };
      const record = await playRollout(deps, order, { ...rollout, journal }, scope, waiting, signal);
      await journal.remove();
      finished += 1;
      waits.ends(rollout.key);
      scope.recorded();
      report();
      return record;
    } finally {
      await journal.close();
    }
  });
  try {
    return await Promise.all(plays);
  } catch (error) {
    stop.abort(error);
    await Promise.allSettled(plays);
    scope.signal.throwIfAborted();
    throw error;
  } finally {
    await order.journals.close();
  }
}

/** Reports that a rollout waits, and that its wait is over. */
interface RolloutWaiting {
  goesOn: (wait: Wait) => void;
  ends: () => void;
}

async function playRollout(
  deps: NodeDeps,
  order: PlayOrder,
  rollout: OpenRollout,
  scope: AttemptScope,
  waiting: RolloutWaiting,
  signal: AbortSignal,
): Promise<EpisodeRecord> {
  const { isKept, past } = rollout.journal;
  const work = currentAccount().begin('episode', isKept && past.sampled.size > 0);
  const waits = (wait: Wait): void => {
    work.waits();
    waiting.goesOn(wait);
  };
  const goesOn = waiting.ends;
  // One slow answer of the store must not end the other running episodes.
  const patience = { signal, onWait: () => waits({ for: 'store' }) };
  const record = await playUnlessFinished(deps, order, rollout, scope, {
    work,
    waits,
    goesOn,
    patience,
  }).catch((error: unknown) => {
    if (error instanceof FinishedElsewhere) return null;
    throw error;
  });
  const stored = await waitOutStore(() => recordOnce(order, rollout, record), patience);
  work.end();
  await stoppingPoint('episode-written');
  return stored;
}

/**
 * Stores the rollout's record, or returns the record of a worker that was first. `record` is null if another worker has finished it.
 */
async function recordOnce(
  order: PlayOrder,
  { key }: Rollout,
  record: EpisodeRecord | null,
): Promise<EpisodeRecord> {
  const written = record && (await adoptOrCreate(order.store, key, 'episode', record));
  if (written?.adopted === false) return written.record;
  if (record) await order.evidence.discarded(key);
  return requireEpisode(order.store, key, order);
}

interface Playing {
  work: WorkUnit;
  waits: (wait: Wait) => void;
  /** The server or store that the episode waited for answers again. */
  goesOn: () => void;
  patience: Patience;
}

/** Throws `FinishedElsewhere` if another worker has written the episode's record in the meantime. */
async function playUnlessFinished(
  deps: NodeDeps,
  order: PlayOrder,
  rollout: OpenRollout,
  scope: AttemptScope,
  { work, waits, goesOn, patience }: Playing,
): Promise<EpisodeRecord> {
  const { data, random } = order;
  const spec = data.record.spec;
  const environment = environmentOf(order.environments, rollout.task.env_key);
  if (!environment)
    throw new Error(
      `No environment is configured for "${rollout.task.env_key}" (task ${rollout.task.task_key})`,
    );
  const started = Date.now();
  const unfinished = new Unfinished(order.store, rollout.key, patience);
  const engine = await deps.holder.engine.info();
  const isTraining = random.domain === 'train';
  const purpose = {
    run: data.record.run,
    item: isTraining ? itemOf.episode(random.step, rollout.slot, rollout.sample) : itemOf.other,
  };
  const play: EpisodePlay = await playEpisode(
    {
      engine: {
        generate: async (request, signal) => {
          await unfinished.within(freshMs);
          const sampled = await sentFor(purpose, () =>
            deps.holder.engine.generate(request, signal, ({ reason }) =>
              reason === undefined ? goesOn() : waits({ for: policyServer, reason }),
            ),
          );
          work.sampled(sampled.tokens.length);
          goesOn();
          return sampled;
        },
      },
      backend: deps.backendFor(environment, spec.generator.call_timeout_s * 1000),
      ...textCoder(data),
    },
    {
      task: rollout.task,
      sampling: order.sampling,
      key: { ...random, slot: rollout.slot, sample: rollout.sample },
      state: order.state,
      policyStep: order.policyStep,
      episodeSeed: rollout.seed,
      episodeId: rollout.key,
      run: data.record.run,
      onOpening: (reason) => waits({ for: rollout.task.env_key, reason }),
      journal: keeping(rollout.journal, work),
      maxWaitMs: spec.generator.max_wait_s * 1000,
      onWait: (outage) => waits({ for: rollout.task.env_key, ...outage }),
      onAnswer: goesOn,
      // Look again: while the episode waited for a place on the server, another worker may have finished it (R9).
      beforeSampling: async () => {
        await unfinished.within(0);
        await stoppingPoint('episode-begun', `${rollout.slot}.${rollout.sample}`);
      },
    },
    patience.signal,
  );
  return {
    schema: 'longhaul.episode/2',
    plan: order.plan,
    state: order.state,
    slot: rollout.slot,
    sample: rollout.sample,
    task_key: rollout.task.task_key,
    env_key: rollout.task.env_key,
    outcome: play.outcome,
    stop_reason: play.stop_reason,
    tokens: play.tokens,
    prompt_length: play.prompt_length,
    turns: play.turns,
    logprobs: play.logprobs,
    metrics: play.metrics,
    observed: {
      attempt: Number(scope.attempt.split('.').at(-1)),
      execution: scope.execution,
      incarnation: engine.incarnation,
      failures: play.failures,
      ...wordsOf(play),
      started_at: new Date(started).toISOString(),
      seconds: (Date.now() - started) / 1000,
    },
  };
}

/** The texts of a failure for the record. Known secrets are removed, because a server's message may contain anything. */
function wordsOf({
  failure,
  explanation,
}: EpisodePlay): Pick<EpisodeRecord['observed'], 'failure' | 'explanation'> {
  const recorded = (text: string): string => recordedText(withoutKnownSecrets(text));
  return {
    ...(failure === undefined ? {} : { failure: recorded(failure) }),
    ...(explanation === undefined ? {} : { explanation: recorded(explanation) }),
  };
}

/** Counts journaled turns as kept: they survive the attempt. */
function keeping(journal: OpenJournal, work: WorkUnit): TurnJournal {
  return {
    past: journal.past,
    note: (entry) => journal.note(entry),
    write: async () => {
      await journal.write();
      if (journal.isKept) work.kept();
    },
  };
}
