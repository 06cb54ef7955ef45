// People who change a run all the time: an update now and then, and a stream of them around each new beginning of its workflow.
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Client, WorkflowHandle } from '@temporalio/client';
import type { ControlRecord } from '../src/spec/records/control-records.js';
import type { ControlState } from '../src/activities/contracts.js';
import { controlFolder } from '../src/store/objects/layout.js';
import type { ObjectStore } from '../src/store/objects/object-store.js';
import { readSequence } from '../src/store/records/records.js';
import { pauseUpdate, resumeUpdate, setHyperparametersUpdate } from '../src/workflows/messages.js';
import type { trainingRun } from '../src/workflows/run/training-run.js';

export interface TrafficPlan {
  /** Longest pause between two updates far from a new beginning; the mean is half of it. */
  longestPauseMs: number;
  /** Events from which on an execution may begin anew at any boundary. */
  nearEvents: number;
  /** Learning rates that mean nothing, so that the run stays what it is. */
  lr: number;
}

interface Sent {
  id: string;
  kind: ControlRecord['change']['kind'];
  /** Number of the control record that the answer names; null: refused, or nothing new was to be recorded. */
  n: number | null;
}

export interface TrafficFigures {
  sent: number;
  /** Sent while the workflow was about to begin anew or had just done so. */
  near_beginnings: number;
  /** Accepted, and not to be found in the records. */
  lost: number;
  /** Recorded more than once. */
  doubled: number;
  /** Refused, though the run was open. */
  refused: number;
  pauses: number;
}

export class UpdateTraffic {
  readonly #sent: Sent[] = [];
  readonly #refusals: string[] = [];
  #near = 0;
  #over = false;
  #running: Promise<void> = Promise.resolve();

  constructor(
    private readonly client: Client,
    private readonly workflowId: string,
    private readonly plan: TrafficPlan,
  ) {}

  start(): void {
    this.#running = this.#go();
  }

  /** Resolves when the last update is answered; the run is left unpaused. */
  async stop(): Promise<void> {
    this.#over = true;
    await this.#running;
  }

  async #go(): Promise<void> {
    const handle = this.client.workflow.getHandle<typeof trainingRun>(this.workflowId);
    for (let i = 0; !this.#over; i += 1) {
      const near = await this.#isNear(handle);
      if (!near) await delay(Math.random() * this.plan.longestPauseMs);
      else this.#near += 1;
      if (i % 10 !== 9) {
        await this.#send(handle, 'setHyperparameters', i);
        continue;
      }
      await this.#send(handle, 'pause', i);
      await this.#send(handle, 'resume', i);
    }
  }

  async #isNear(handle: WorkflowHandle<typeof trainingRun>): Promise<boolean> {
    // The next execution may not be there yet.
    const historyLength = await handle.describe().then(
      (found) => found.historyLength,
      () => 0,
    );
    return historyLength >= this.plan.nearEvents || historyLength <= 60;
  }

  async #send(handle: WorkflowHandle<typeof trainingRun>, kind: Sent['kind'], i: number): Promise<void> {
    const id = `${kind}-${i}-${randomUUID().slice(0, 8)}`;
    try {
      const { n } = await this.#execute(handle, kind, i, id);
      this.#sent.push({ id, kind, n });
    } catch (error) {
      const open = await handle.describe().then(
        ({ status }) => status.name === 'RUNNING',
        () => true,
      );
      if (open) this.#refusals.push(`${kind}: ${(error as Error).message}`);
    }
  }

  #execute(
    handle: WorkflowHandle<typeof trainingRun>,
    kind: Sent['kind'],
    i: number,
    updateId: string,
  ): Promise<ControlState> {
    if (kind === 'pause') return handle.executeUpdate(pauseUpdate, { updateId });
    if (kind === 'resume') return handle.executeUpdate(resumeUpdate, { updateId });
    const lr = this.plan.lr * (1 + (i % 100) / 1_000);
    return handle.executeUpdate(setHyperparametersUpdate, { updateId, args: [{ lr }] });
  }

  /** Compares what was answered with the control records. */
  async figures(store: ObjectStore, run: string): Promise<TrafficFigures> {
    const records = await readSequence(store, controlFolder(run), 'control');
    // A record carries the execution's id before the update's own.
    const recorded = (id: string): ControlRecord[] =>
      records.filter(({ update_id }) => update_id.endsWith(`/${id}`));
    const found = this.#sent.map((sent) => ({ sent, records: recorded(sent.id) }));
    for (const problem of new Set(this.#refusals))
      process.stderr.write(`an update was refused: ${problem}\n`);
    return {
      sent: this.#sent.length,
      near_beginnings: this.#near,
      lost: found.filter(({ records: its, sent }) => its.length === 0 || its[0]?.n !== sent.n).length,
      doubled: found.filter(({ records: its }) => its.length > 1).length,
      refused: this.#refusals.length,
      pauses: this.#sent.filter(({ kind }) => kind === 'pause').length,
    };
  }
}
