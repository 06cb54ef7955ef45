// ensurePolicy (R14, R15): the engine holds exactly the state that a caller names, after any crash.
import type { PolicyEngine, UpdateResult } from '../engine/policy-engine.js';
import { otherNumerics } from './numerics.js';
import type { Attended } from './attended.js';
import { beginSpan, span } from '../base/spans.js';
import type { BaseState, CommittedState, Provenance, StateKeeper, StepUpdate } from './state-keeper.js';
import type { StateLock } from '../engine/native/state-lock.js';
import { sameNumerics } from '../spec/records/numerics.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { Numerics } from '../spec/records/numerics.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readBase, readUpdate, rebasedTo } from '../store/runs/run-records.js';

export interface PolicyHolderOptions {
  store: ObjectStore;
  engine: PolicyEngine;
  keeper: StateKeeper;
  lock: StateLock;
}

const unattended: Attended = { signal: new AbortController().signal, progress: () => undefined };

export class PolicyHolder {
  readonly engine: PolicyEngine;
  readonly keeper: StateKeeper;

  constructor(private readonly options: PolicyHolderOptions) {
    this.engine = options.engine;
    this.keeper = options.keeper;
  }

  /** Runs `use` while the engine holds the state after `step`; others may share it, nothing may change it. */
  async withState<T>(
    run: string,
    step: number,
    use: (state: Digest) => Promise<T>,
    attempt: Attended = unattended,
  ): Promise<T> {
    const { lock } = this.options;
    const ensuring = beginSpan('ensurePolicy');
    try {
      const { state, numerics } = await this.#recorded(run, step);
      for (;;) {
        const done = await lock.shared(async () => {
          await this.#refuseOtherNumerics(run, numerics, attempt);
          if ((await this.keeper.held()) !== state) return null;
          ensuring.end();
          return { value: await use(state) };
        }, attempt.signal);
        if (done) return done.value;
        const restore = async (): Promise<void> => {
          // Others that waited for the same state may have restored it.
          if ((await this.keeper.held()) !== state) await this.keeper.hold({ run, step, state }, attempt);
        };
        await ensuring.during(() => lock.exclusive(restore, attempt.signal));
      }
    } finally {
      ensuring.end();
    }
  }

  /** Runs `change` alone, on an engine that holds the state after `step`, or that has applied `stepId` to it. */
  async alone<T>(
    run: string,
    step: number,
    stepId: Digest,
    change: () => Promise<T>,
    attempt: Attended = unattended,
    provenance: Provenance = 'held',
  ): Promise<T> {
    const { state, numerics } = await this.#recorded(run, step);
    const ensure = async (): Promise<void> => {
      if (provenance !== 'held') await this.keeper.forget();
      await this.#refuseOtherNumerics(run, numerics, attempt);
      await this.keeper.holdForUpdate({ run, step, state }, stepId, provenance, attempt);
    };
    return this.options.lock.exclusive(async () => {
      await span('ensurePolicy', ensure);
      return change();
    }, attempt.signal);
  }

  async #recorded(run: string, step: number): Promise<{ state: Digest; numerics: Numerics }> {
    const { store } = this.options;
    const { identity } = step === 0 ? await readBase(store, run) : await readUpdate(store, run, step);
    return { state: identity.state, numerics: (await rebasedTo(store, run)) ?? identity.numerics };
  }

  /** A state that the engine already holds may be another run's, which began with other numerics (R18). */
  async #refuseOtherNumerics(run: string, recorded: Numerics, attempt: Attended): Promise<void> {
    const { numerics, incarnation } = await this.engine.info();
    attempt.uses?.(incarnation);
    if (!sameNumerics(numerics, recorded))
      throw otherNumerics(run, recorded, 'The engine of this node', numerics);
  }

  /** Holds the run's base model. */
  holdBase(record: RunRecord, attempt: Attended = unattended): Promise<BaseState> {
    return this.options.lock.exclusive(() => this.keeper.holdBase(record, attempt), attempt.signal);
  }

  /** For use within `alone`. */
  apply(update: StepUpdate): Promise<UpdateResult> {
    return this.keeper.apply(update);
  }

  /** Where the state is kept beyond the engine's memory; `written`: whether this call put it there. Removes nothing. */
  async keep(committed: CommittedState, attempt: Attended): Promise<{ path: string; written: boolean }> {
    const kept = await this.keeper.kept(committed);
    if (kept !== null) return { path: kept, written: false };
    const { run, step } = committed;
    const path = await this.withState(run, step, () => this.keeper.keep(committed, attempt), attempt);
    return { path, written: true };
  }
}
