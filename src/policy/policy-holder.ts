// ensurePolicy (R14, R15): ensures that the engine holds exactly the state that the caller names, also after a crash.
import { EngineError, type PolicyEngine, type UpdateResult } from '../engine/policy-engine.js';
import type { WorkContext } from './attempt-scope.js';
import { beginSpan, span } from '../base/spans.js';
import type {
  BaseState,
  CommittedState,
  Provenance,
  StateKeeper,
  StateReader,
  StepUpdate,
} from './state-keeper.js';
import { StateLock } from './state-lock.js';
import { backendOf, nameOfNumerics, sameNumerics, type Numerics } from '../spec/records/numerics.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { nameOfRun } from '../store/record-keys.js';
import { readCommitted, rebasedTo } from '../store/runs/run-records.js';

const withoutAttempt: WorkContext = { signal: new AbortController().signal, progress: () => undefined };

export class PolicyHolder<
  Engine extends PolicyEngine = PolicyEngine,
  Keeper extends StateKeeper = StateKeeper,
> {
  readonly engine: Engine;
  readonly keeper: Keeper;
  private readonly store: ObjectStore;
  private readonly lock = new StateLock();
  private readers = 0;
  /** True if the state was read since the keeper was last notified that nobody reads it. */
  private wasRead = false;

  constructor({ store, engine, keeper }: { store: ObjectStore; engine: Engine; keeper: Keeper }) {
    [this.store, this.engine, this.keeper] = [store, engine, keeper];
  }

  /** Runs `use` while the engine holds the state after `step`. Other readers may share this state, but nothing may change it. */
  async withState<T>(
    run: string,
    step: number,
    reader: StateReader,
    use: (state: Digest) => Promise<T>,
    attempt: WorkContext = withoutAttempt,
  ): Promise<T> {
    const ensuring = beginSpan('ensurePolicy');
    try {
      const { state, numerics } = await this.recorded(run, step);
      for (;;) {
        const done = await this.lock.shared(async () => {
          await this.refuseOtherNumerics(run, numerics, attempt);
          this.readers += 1;
          try {
            if ((await this.keeper.held()) !== state) return null;
            ensuring.end();
            this.wasRead = true;
            return { value: await use(state) };
          } finally {
            this.readers -= 1;
            if (this.readers === 0 && this.wasRead) {
              this.wasRead = false;
              await this.keeper.idle();
            }
          }
        }, attempt.signal);
        if (done) return done.value;
        const restore = async (): Promise<void> => {
          // Another waiting caller may have restored the same state by now.
          if ((await this.keeper.held()) !== state)
            await this.keeper.hold({ run, step, state }, reader, attempt);
        };
        await ensuring.during(() => this.lock.exclusive(restore, attempt.signal));
      }
    } finally {
      ensuring.end();
    }
  }

  /** Runs `change` alone, on an engine that holds the state after `step`, or has already applied `stepId` to it. */
  async alone<T>(
    run: string,
    step: number,
    stepId: Digest,
    change: () => Promise<T>,
    attempt: WorkContext = withoutAttempt,
    provenance: Provenance = 'held',
  ): Promise<T> {
    const { state, numerics } = await this.recorded(run, step);
    const ensure = async (): Promise<void> => {
      if (provenance !== 'held') await this.keeper.forget();
      await this.refuseOtherNumerics(run, numerics, attempt);
      await this.keeper.holdForUpdate({ run, step, state }, stepId, provenance, attempt);
    };
    return this.lock.exclusive(async () => {
      await span('ensurePolicy', ensure);
      return change();
    }, attempt.signal);
  }

  private async recorded(run: string, step: number): Promise<{ state: Digest; numerics: Numerics }> {
    const { identity } = await readCommitted(this.store, run, step);
    return { state: identity.state, numerics: (await rebasedTo(this.store, run)) ?? identity.numerics };
  }

  /** Checks even a state that the engine already holds: another run with other numerics may have loaded the same state (R18). */
  private async refuseOtherNumerics(run: string, recorded: Numerics, attempt: WorkContext): Promise<void> {
    const { numerics, incarnation } = await this.engine.info();
    attempt.uses?.(incarnation);
    if (!sameNumerics(numerics, recorded))
      throw otherNumerics(run, recorded, 'The engine of this node', numerics);
  }

  /** Loads the run's base model into the engine. */
  holdBase(record: RunRecord, attempt: WorkContext = withoutAttempt): Promise<BaseState> {
    return this.lock.exclusive(async () => {
      const { numerics } = await this.engine.info();
      const { model } = record.spec;
      if (model.served === undefined && numerics.backend !== backendOf(model))
        throw otherBackend(record, numerics);
      return this.keeper.holdBase(record, attempt);
    }, attempt.signal);
  }

  /** Call only within `alone`. */
  apply(update: StepUpdate): Promise<UpdateResult> {
    return this.keeper.apply(update);
  }

  /** For the run itself: saves the state outside the engine's memory and returns where. `written` is false if it was saved before. Removes nothing. */
  async keep(committed: CommittedState, attempt: WorkContext): Promise<{ path: string; written: boolean }> {
    const kept = await this.keeper.kept(committed);
    if (kept !== null) return { path: kept, written: false };
    const { run, step } = committed;
    const path = await this.withState(run, step, 'run', () => this.keeper.keep(committed, attempt), attempt);
    return { path, written: true };
  }
}

/** The error of a node whose numerics are not the spec's, before there are records. */
function otherBackend({ run, spec }: RunRecord, found: Numerics): EngineError {
  const backend = backendOf(spec.model);
  return new EngineError(
    'OtherNumerics',
    `the engine of this node computes with numerics ${nameOfNumerics(found)}, and model.numerics of ${run} is ${backend}: start a ` +
      `node with LONGHAUL_NUMERICS=${backend}`,
  );
}

/** The error of a node whose numerics differ from those of a run’s records (R18). `found`: the numerics of `who`. */
function otherNumerics(run: string, recorded: Numerics, who: string, found: Numerics): EngineError {
  const [wanted, other] = [nameOfNumerics(recorded), nameOfNumerics(found)];
  return new EngineError(
    'OtherNumerics',
    `${who} computes with numerics ${other}, but run ${run} was computed with ${wanted}, and other numerics give ` +
      `other results. Start a node worker of the Longhaul version whose engine has ${wanted} ` +
      `(\`longhaul doctor\` shows an engine’s numerics), or apply the run’s logged batches with the numerics here: longhaul rebase ${nameOfRun(run)} --numerics ${other}`,
  );
}
