// ensurePolicy (R14, R15): the engine holds exactly the state that a caller names, after any crash.
import { join } from 'node:path';
import type { LoadedState, PolicyEngine, UpdateResult } from '../engine/policy-engine.js';
import { LocalStates } from './local-states.js';
import { otherNumerics } from './numerics.js';
import type { Attended } from './attended.js';
import { beginSpan, span } from '../base/spans.js';
import { type StepUpdate, type Provenance, StateRestorer } from './state-restorer.js';
import type { StateLock } from '../engine/native/state-lock.js';
import { sameNumerics } from '../spec/records/numerics.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { Numerics } from '../spec/records/numerics.js';
import { lastWarmStep } from '../spec/warm-start.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readBase, readUpdate, rebasedTo } from '../store/runs/run-records.js';

export interface PolicyHolderOptions {
  store: ObjectStore;
  engine: PolicyEngine;
  lock: StateLock;
  /** Node disk: saved states and fetched batches. */
  folder: string;
  log: (message: string) => void;
}

const unattended: Attended = { signal: new AbortController().signal, progress: () => undefined };

export class PolicyHolder {
  readonly states: LocalStates;
  readonly #restorer: StateRestorer;

  constructor(private readonly options: PolicyHolderOptions) {
    const { store, engine, folder, log } = options;
    this.states = new LocalStates(join(folder, 'states'));
    const fetched = new LocalStates(join(folder, 'fetched-states'));
    this.#restorer = new StateRestorer({ store, engine, states: this.states, fetched, folder, log });
  }

  get engine(): PolicyEngine {
    return this.options.engine;
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
          const held = await this.engine.held();
          if (held?.state !== state) return null;
          ensuring.end();
          return { value: await use(state) };
        }, attempt.signal);
        if (done) return done.value;
        const restore = async (): Promise<void> => {
          // Others that waited for the same state may have restored it.
          if ((await this.engine.held())?.state !== state)
            await this.#restorer.restore(run, step, state, attempt);
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
      if (provenance !== 'held') await this.engine.restart();
      await this.#refuseOtherNumerics(run, numerics, attempt);
      const held = await this.engine.held();
      const begun = held?.lastStepId === stepId;
      const ready = held?.state === state && (await this.#restorer.knowsReference(run, step));
      if (begun || ready) return;
      const newest =
        provenance === 'from an older checkpoint' ? await this.#restorer.olderThanNewest(run, step) : step;
      await this.#restorer.restore(run, step, state, attempt, newest);
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
  async holdBase(record: RunRecord, attempt: Attended = unattended): Promise<LoadedState> {
    return this.options.lock.exclusive(async () => {
      await this.#restorer.forgetReference();
      const held = await this.#restorer.base.hold(record, attempt);
      // A process that finds state 0 on record must find its weights too.
      await this.#restorer.base.keep(record, held, attempt);
      // Later the state would have to be loaded for this alone.
      if (record.spec.trainer.use_kl_loss && lastWarmStep(record.spec) === 0)
        await this.engine.setReference({ held: true });
      return held;
    }, attempt.signal);
  }

  /** As `StateRestorer.apply`; for use within `alone`. */
  apply(update: StepUpdate): Promise<UpdateResult> {
    return this.#restorer.apply(update);
  }
}
