// Decides which process runs. A process stops at each operation on the store and at each call of the server; there it continues, waits for another
// process, is frozen, or is killed. Equal seeds give equal orders.
import type { Random } from './random.js';

/** A process of the simulation. */
export interface Actor {
  name: string;
  dead: boolean;
  frozen: boolean;
  /** Its periodic tasks, such as heartbeats. */
  timers: Set<Timer>;
}

interface Timer {
  everyMs: number;
  at: number;
  act: () => void;
}

interface Parked {
  actor: Actor;
  what: string;
  readyAt: number;
  goOn: () => void;
}

export class Scheduler {
  nowMs = 0;
  operations = 0;
  private readonly parked: Parked[] = [];
  private running: Actor | null = null;
  private untilSwitch: number;

  constructor(
    private readonly random: Random,
    /** One in so many operations lets another process go first. */
    private readonly switchEvery: number,
    /** Called before the first half of each operation. May kill or freeze the actor. */
    private readonly disturb: (actor: Actor, what: string, writes: boolean) => void,
    private readonly say: (event: () => string) => void,
  ) {
    this.untilSwitch = random.until(switchEvery);
  }

  /** An operation of a process. `writes`: the process may also be stopped between the write and its notification. */
  async at<T>(actor: Actor, what: string, act: () => T, writes = false): Promise<T> {
    await this.moment(actor, what, writes, true);
    const result = act();
    if (writes) await this.moment(actor, `after ${what}`, writes, true);
    return result;
  }

  /** Waits on the simulation's clock. */
  pause(actor: Actor, ms: number): Promise<void> {
    return this.park(actor, 'pause', this.nowMs + ms);
  }

  every(actor: Actor, everyMs: number, act: () => void): () => void {
    const timer = { everyMs, at: this.nowMs + everyMs, act };
    actor.timers.add(timer);
    return () => actor.timers.delete(timer);
  }

  private moment(
    actor: Actor,
    what: string,
    writes: boolean,
    mayDisturb: boolean,
  ): Promise<void> | undefined {
    this.operations += 1;
    if (mayDisturb && !actor.dead && !actor.frozen) this.disturb(actor, what, writes);
    if (actor === this.running && !actor.dead && !actor.frozen && --this.untilSwitch > 0) return undefined;
    if (actor === this.running && this.untilSwitch <= 0)
      this.untilSwitch = this.random.until(this.switchEvery);
    return this.park(actor, what, 0);
  }

  private park(actor: Actor, what: string, readyAt: number): Promise<void> {
    return new Promise((resolve) => {
      if (!actor.dead) this.parked.push({ actor, what, readyAt, goOn: resolve });
    });
  }

  /** Lets one process continue after all have stopped. False if none can, because all wait for something else, are frozen, or are dead. */
  turn(): boolean {
    const awake = this.parked.filter(({ actor }) => !actor.dead && !actor.frozen);
    if (awake.length === 0) return false;
    let ready = awake.filter(({ readyAt }) => readyAt <= this.nowMs);
    if (ready.length === 0) {
      this.nowMs = Math.min(...awake.map(({ readyAt }) => readyAt));
      ready = awake.filter(({ readyAt }) => readyAt <= this.nowMs);
    } else this.nowMs += 1;
    const next = this.random.pick(ready);
    this.parked.splice(this.parked.indexOf(next), 1);
    if (this.running !== next.actor) this.say(() => `${next.actor.name} goes on with ${next.what}`);
    this.running = next.actor;
    next.goOn();
    return true;
  }

  /** Lets time pass for the timers of processes that run. */
  fireTimers(actors: readonly Actor[]): void {
    for (const actor of actors)
      if (!actor.dead && !actor.frozen)
        for (const timer of actor.timers)
          if (timer.at <= this.nowMs) {
            timer.at = this.nowMs + timer.everyMs;
            timer.act();
          }
  }

  kill(actor: Actor): void {
    actor.dead = true;
    actor.timers.clear();
    for (let at = this.parked.length - 1; at >= 0; at--)
      if (this.parked[at]!.actor === actor) this.parked.splice(at, 1);
  }
}

/** Waits until all work that does not need the scheduler is done; microtasks come first. */
export const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
