// Plays the episodes of a plan or a suite that have no record yet, each once, and writes their records (R8, R9).
import { playEpisode, type EpisodePlay } from '../../episode/episode-loop.js';
import { recordedText } from '../../episode/recorded-text.js';
import type { EpisodeJournals, OpenJournal } from '../../episode/journal-folder.js';
import type { TurnJournal } from '../../episode/turn-journal.js';
import type { Digest, EpisodeRecord, RunRecord, SamplingPlan } from '../../spec/records/records.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { Task } from '../../spec/records/task.js';
import { recordDigest } from '../../store/records/canonical.js';
import { inParallel } from '../../base/in-parallel.js';
import { withFoldedSteps } from '../../store/runs/episodes.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readOwner } from '../../store/runs/owners.js';
import { adoptOrCreate, requireRecord } from '../../store/records/records.js';
import { UnreadableRecord } from '../../store/objects/store-errors.js';
import { currentAccount, type WorkUnit } from '../attempt/attempt-account.js';
import type { EvidenceWriter } from '../attempt/attempt-evidence.js';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import type { NodeDeps } from '../node-deps.js';
import { OpenWaits, type Wait } from './open-waits.js';
import type { RunData } from '../../data/run-data.js';
import type { AttemptScope } from '../../policy/attended.js';
import { span } from '../../base/spans.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import { type Patience, waitOutStore } from '../attempt/store-patience.js';

/** One episode to play. */
export interface Seat {
  key: string;
  slot: number;
  sample: number;
  task: Task;
  seed: number;
}

export interface RolloutOrder {
  data: RunData;
  /** Plan's or suite's digest. */
  plan: Digest;
  state: Digest;
  /** Step whose policy samples. */
  policyStep: number;
  sampling: SamplingPlan;
  random: { seed: number; domain: 'train' | 'eval'; step: number };
  /** Folder of the seats' keys. */
  folder: string;
  seats: Seat[];
  /** Where they are played; absent: where the run has its environments now. */
  environments?: readonly EnvironmentSpec[];
}

/** Every seat's record as stored: what is there is adopted, the rest is played at the state after `order.policyStep`. */
export async function fillSeats(
  deps: NodeDeps,
  order: RolloutOrder,
  scope: AttemptScope,
  evidence: EvidenceWriter,
): Promise<EpisodeRecord[]> {
  const store = withFoldedSteps(deps.store);
  const { missing } = await look(store, order);
  if (missing.length === 0) return readAll(store, order, order.seats);
  await stoppingPoint('episodes-missed');
  const { data, policyStep } = order;
  const fill = async (): Promise<EpisodeRecord[]> => {
    // The engine may have been waited for; meanwhile another worker may have finished what was missing (R9).
    const begun = await announced(store, order, evidence);
    const others = order.seats.filter((seat) => !begun.includes(seat));
    if (begun.length === 0) return readAll(store, order, others);
    const environments = order.environments ?? (await environmentsNow(deps.store, data.record));
    // Another run on this engine may have told it another tokenizer's.
    if (order.sampling.stop) await deps.holder.engine.setVocabulary(data.tokenizer.bytes());
    const journals = await deps.journals.below(order.folder);
    const play = (): Promise<EpisodeRecord[]> =>
      playSeats(deps, { ...order, store, seats: begun, environments, journals, evidence }, scope);
    const played = await span('episodes', play);
    return [...(await readAll(store, order, others)), ...played];
  };
  return deps.holder.withState(data.record.run, policyStep, fill, scope);
}

/** Seats to play, by now in an attempt record. A worker that is held up amid that announces what another finishes meanwhile: no harm (R9). */
async function announced(store: ObjectStore, order: RolloutOrder, evidence: EvidenceWriter): Promise<Seat[]> {
  const { missing } = await look(store, order);
  await evidence.starts(missing.map(({ key }) => key));
  const { present } = await look(store, order);
  return missing.filter((seat) => !present.includes(seat));
}

async function look(
  store: ObjectStore,
  { folder, seats }: RolloutOrder,
): Promise<{ present: Seat[]; missing: Seat[] }> {
  await stoppingPoint('episodes-looked-for');
  const names = new Set(await store.listFolder(folder));
  const isThere = (seat: Seat): boolean => names.has(seat.key.slice(folder.length));
  return { present: seats.filter(isThere), missing: seats.filter((seat) => !isThere(seat)) };
}

/** In the order of `seats`. */
async function readAll(
  store: ObjectStore,
  order: RolloutOrder,
  seats: readonly Seat[],
): Promise<EpisodeRecord[]> {
  return inParallel(seats, ({ key }) => requireEpisode(store, key, order));
}

/** Throws `UnreadableRecord` where it is missing, or was played for another plan or at another state (R8). */
export async function requireEpisode(
  store: ObjectStore,
  key: string,
  source: Pick<EpisodeRecord, 'plan' | 'state'>,
): Promise<EpisodeRecord> {
  const episode = await requireRecord(store, key, 'episode');
  for (const member of ['plan', 'state'] as const) {
    if (episode[member] === source[member]) continue;
    throw new UnreadableRecord(
      key,
      `it was played for ${member} ${episode[member]}, not for ${source[member]}` +
        // That of an evaluation is set aside for a run, which is not known here.
        (key.startsWith('runs/') ? `; set it aside with: longhaul quarantine ${key}` : ''),
    );
  }
  return episode;
}

interface PlayOrder extends RolloutOrder {
  /** Has folded episodes at their keys. */
  store: ObjectStore;
  environments: readonly EnvironmentSpec[];
  journals: EpisodeJournals;
  evidence: EvidenceWriter;
}

interface OpenSeat extends Seat {
  journal: OpenJournal;
}

/** The run's environments where its newest start found them: a server may have moved since the first. */
export async function environmentsNow(
  store: ObjectStore,
  { run, spec }: RunRecord,
): Promise<EnvironmentSpec[]> {
  const urls = (await readOwner(store, run))?.observed.environment_urls ?? {};
  return spec.environments.map(({ url: first, ...environment }) => {
    const url = urls[environment.env_key] === undefined ? first : urls[environment.env_key];
    return url ? { ...environment, url } : environment;
  });
}

/** A cut-off episode leaves no record. */
async function playSeats(deps: NodeDeps, order: PlayOrder, scope: AttemptScope): Promise<EpisodeRecord[]> {
  const stop = new AbortController();
  const signal = AbortSignal.any([scope.signal, stop.signal]);
  let finished = 0;
  const waits = new OpenWaits();
  const tell = (): void => scope.progress({ finished, of: order.seats.length, ...waits.told });
  const sampling = recordDigest(order.sampling);
  const plays = order.seats.map(async (seat) => {
    const journal = await order.journals.open({
      schema: 'longhaul.journal/1',
      episode: seat.key,
      plan: order.plan,
      state: order.state,
      sampling,
      seed: seat.seed,
      random: { ...order.random, slot: seat.slot, sample: seat.sample },
    });
    try {
      const waiting = {
        goesOn: (wait: Wait): void => {
          waits.goesOn(seat.key, wait);
          tell();
        },
        ends: (): void => {
          if (waits.ends(seat.key)) tell();
        },
      };
      const record = await playSeat(deps, order, { ...seat, journal }, scope, waiting, signal);
      await journal.remove();
      finished += 1;
      waits.ends(seat.key);
      scope.recorded();
      tell();
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

/** Tells what a seat waits for. */
interface SeatWaiting {
  goesOn: (wait: Wait) => void;
  ends: () => void;
}

class FinishedElsewhere extends Error {}

async function playSeat(
  deps: NodeDeps,
  order: PlayOrder,
  seat: OpenSeat,
  scope: AttemptScope,
  waiting: SeatWaiting,
  signal: AbortSignal,
): Promise<EpisodeRecord> {
  const work = currentAccount().begin('episode');
  const waits = (wait: Wait): void => {
    work.waits();
    waiting.goesOn(wait);
  };
  const goesOn = waiting.ends;
  // One slow answer of the store must not end the episodes that are in flight beside this one.
  const patience = { signal, onWait: () => waits({ for: 'store' }) };
  const record = await playUnlessFinished(deps, order, seat, scope, { work, waits, goesOn, patience }).catch(
    (error: unknown) => {
      if (error instanceof FinishedElsewhere) return null;
      throw error;
    },
  );
  const stored = await waitOutStore(() => recordOnce(order, seat, record), patience);
  work.end();
  await stoppingPoint('episode-written');
  return stored;
}

/** The seat's record: this one, or that of whichever worker was first. `record`: null where another has finished the episode. */
async function recordOnce(
  order: PlayOrder,
  { key }: Seat,
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
  /** What it waited for is there. */
  goesOn: () => void;
  patience: Patience;
}

/** Throws `FinishedElsewhere` where a record has come up since the seats were looked at. */
async function playUnlessFinished(
  deps: NodeDeps,
  order: PlayOrder,
  seat: OpenSeat,
  scope: AttemptScope,
  { work, waits, goesOn, patience }: Playing,
): Promise<EpisodeRecord> {
  const { data, random } = order;
  const spec = data.record.spec;
  const environment = order.environments.find((candidate) => candidate.env_key === seat.task.env_key);
  if (!environment)
    throw new Error(`No environment is configured for "${seat.task.env_key}" (task ${seat.task.task_key})`);
  const started = Date.now();
  const unfinished = new Unfinished(order.store, seat.key, patience);
  const engine = await deps.holder.engine.info();
  const play: EpisodePlay = await playEpisode(
    {
      engine: {
        generate: async (...args) => {
          await unfinished.within(freshMs);
          const sampled = await deps.holder.engine.generate(...args);
          work.sampled(sampled.tokens.length);
          goesOn();
          return sampled;
        },
      },
      backend: deps.backendFor(environment, spec.generator.call_timeout_s * 1000),
      tokenizer: data.tokenizer,
      template: data.template,
    },
    {
      task: seat.task,
      sampling: order.sampling,
      key: { ...random, slot: seat.slot, sample: seat.sample },
      state: order.state,
      policyStep: order.policyStep,
      episodeSeed: seat.seed,
      episodeId: seat.key,
      journal: keeping(seat.journal, work),
      maxWaitMs: spec.generator.max_wait_s * 1000,
      onWait: (outage) => waits({ for: seat.task.env_key, ...outage }),
      onAnswer: goesOn,
      // A place on the server may have been waited for; meanwhile another worker may have finished the episode (R9).
      beforeSampling: async () => {
        await unfinished.within(0);
        await stoppingPoint('episode-begun', `${seat.slot}.${seat.sample}`);
      },
    },
    patience.signal,
  );
  return {
    schema: 'longhaul.episode/2',
    plan: order.plan,
    state: order.state,
    slot: seat.slot,
    sample: seat.sample,
    task_key: seat.task.task_key,
    env_key: seat.task.env_key,
    outcome: play.outcome,
    stop_reason: play.stop_reason,
    tokens: play.tokens,
    prompt_length: play.prompt_length,
    turns: play.turns,
    logprobs: play.logprobs,
    metrics: play.metrics,
    observed: {
      attempt: Number(scope.attempt.split('.').at(-1)),
      incarnation: engine.incarnation,
      failures: play.failures,
      ...wordsOf(play),
      started_at: new Date(started).toISOString(),
      seconds: (Date.now() - started) / 1000,
    },
  };
}

/** What people are shown of it: of a server's words, which may hold anything. */
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

/** A process that stood still for longer looks again before it samples. */
const freshMs = 2000;

/** Knows until when an episode had no record, so that one that another worker finishes meanwhile is sampled no further (R9). */
class Unfinished {
  /** By the wall clock: it goes on while the machine itself stands still. */
  #at: number | null = null;

  constructor(
    private readonly store: ObjectStore,
    private readonly key: string,
    private readonly patience: Patience,
  ) {}

  /** Returns where that was so no longer than `ms` ago; looks again until it is. Throws `FinishedElsewhere`. */
  async within(ms: number): Promise<void> {
    for (let isFresh = this.#isWithin(ms); !isFresh; isFresh = this.#isWithin(freshMs)) {
      this.patience.signal.throwIfAborted();
      const askedAt = Date.now();
      if (await waitOutStore(() => this.store.head(this.key), this.patience)) throw new FinishedElsewhere();
      this.#at = askedAt;
    }
  }

  #isWithin(ms: number): boolean {
    return this.#at !== null && Math.abs(Date.now() - this.#at) <= ms && ms > 0;
  }
}

/** What is in the file does not go with the attempt. */
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
