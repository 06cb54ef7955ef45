// Which node a run works on. Placement is never truth: where the node is gone, any other one takes over from the records.
import { log, sleep } from '@temporalio/workflow';
import { blockedUntilResumed, hasDiverged, nodeIsGone, untilMended } from './blocking.js';
import type { ControlDesk } from './control-desk.js';
import { orchestratorPolicy, placing } from './policies.js';
import { orchestrator, type Place } from './run-activities.js';
import type { RunProgress } from './run-progress.js';

export class NodePlacement {
  private placed: Promise<string> | null = null;
  private moving: Promise<boolean> | null = null;

  constructor(
    private readonly desk: ControlDesk,
    private readonly progress: RunProgress,
  ) {}

  /** Returns when at least one lease is held. */
  async ready(): Promise<void> {
    await this.node();
  }

  /**
   * The nodes whose leases are held now; updates and evaluations use the first. There may be fewer than the run has asked for,
   * and other ones with each step.
   */
  granted(): string[] {
    const { node } = this.progress.status;
    return node === null ? [] : [node];
  }

  /**
   * Runs `work` on the run's first node, and on another one where that node is gone; on `preferred` as long as its lease is
   * held. Waits for a person where `work` cannot go on, then does as `untilMended`.
   */
  onNode<T>(
    work: (place: Place) => Promise<T>,
    resumed?: (failure: string) => void,
    preferred?: string,
  ): Promise<T> {
    const attempt = async (): Promise<T> => {
      let used = '';
      const noted = (place: Place): Promise<T> => {
        used = place.node;
        return work(place);
      };
      try {
        return await this.onLivingNode(noted, preferred);
      } catch (error) {
        if (!hasDiverged(error) || !(await this.moveFrom(used))) throw error;
        return this.onLivingNode(work);
      }
    };
    return untilMended(this.desk, this.progress, attempt, resumed);
  }

  /** As `onNode`, but failures other than a lost node are the caller's. */
  async onLivingNode<T>(work: (place: Place) => Promise<T>, preferred?: string): Promise<T> {
    for (;;) {
      const first = await this.node();
      const node = preferred !== undefined && this.granted().includes(preferred) ? preferred : first;
      try {
        return await work({ node, tries: 0 });
      } catch (error) {
        if (!nodeIsGone(error)) throw error;
        if (this.progress.status.node === node) this.release();
      }
    }
  }

  /** To another node, where there is one; parts of a step that run side by side move together. */
  private moveFrom(node: string): Promise<boolean> {
    if (this.progress.status.node !== node) return Promise.resolve(true);
    this.moving ??= this.findElsewhere(node).finally(() => {
      this.moving = null;
    });
    return this.moving;
  }

  private async findElsewhere(node: string): Promise<boolean> {
    const { status } = this.progress;
    const summary = `find another node than ${node}, which disagrees with a record`;
    const found = await orchestrator('place/elsewhere', summary, orchestratorPolicy).findNode({
      run: status.run,
      besides: node,
    });
    // It was lost meanwhile: the search for a living one has the say.
    if (status.node !== node) return true;
    if (!found) return false;
    log.warn('A computation disagrees with its record; it is made once more on another node', {
      node,
      other: found.node,
    });
    this.placed = Promise.resolve(found.node);
    status.node = found.node;
    return true;
  }

  /** After a pause or a lost node: the next use asks again. A search that is under way is asking already. */
  release(): void {
    if (this.progress.status.node === null) return;
    this.placed = null;
    this.progress.status.node = null;
  }

  /** Parts of a step that run side by side share one search. */
  private node(): Promise<string> {
    if (!this.placed) {
      this.placed = this.find().finally(() => this.progress.placing(false));
      this.placed.catch(() => {
        this.placed = null;
      });
    }
    return this.placed;
  }

  private async find(): Promise<string> {
    const { status } = this.progress;
    let pause: number = placing.firstPauseMs;
    let waited = 0;
    for (let attempt = 1; ; attempt++) {
      const id = `place/${attempt}`;
      const found = await untilMended(this.desk, this.progress, () =>
        orchestrator(id, `find a node for step ${status.step + 1}`, orchestratorPolicy).findNode({
          run: status.run,
        }),
      );
      if (found) {
        status.node = found.node;
        return found.node;
      }
      this.progress.placing(true);
      if (waited >= placing.deadlineMs) {
        const minutes = Math.round(waited / 60_000);
        const remedy = 'Start a node worker (`longhaul up` starts one on this machine)';
        await blockedUntilResumed(
          this.desk,
          this.progress,
          `No node has been alive for ${minutes} minutes`,
          remedy,
        );
        [pause, waited] = [placing.firstPauseMs, 0];
        continue;
      }
      await sleep(pause, { summary: 'no node is alive; ask again' });
      waited += pause;
      pause = Math.min(pause * placing.backoff, placing.longestPauseMs);
    }
  }
}
