// One schedule, from its first operation to its verdict: processes that take the runs' steps, others that take over or evaluate, and at last a
// healthy one that finishes what is left.
import type { GenerateResult } from '../../../../src/engine/policy-engine.js';
import { updateKey } from '../../../../src/store/record-keys.js';
import { areEqual, haveEqualWeights, logprobOf, type Adapters } from './adapters.js';
import { Disturbances } from './disturbances.js';
import { MemoryStore } from './memory-store.js';
import { Random } from './random.js';
import type { Schedule } from './schedule.js';
import { Scheduler, settled } from './scheduler.js';
import { type Script, type ScriptedRun, writeScript } from './script.js';
import { SimulatedServer } from './server.js';
import { type Inspected, type Verdict, verdictOn } from './verdict.js';
import { Worker, type World } from './worker.js';

type Task =
  | { kind: 'step'; run: ScriptedRun; step: number }
  | { kind: 'evaluation' | 'checkpoint' | 'inspection'; run: ScriptedRun; step: number };

const mostWorkers = 3;
const mostOperations = 60_000;
/** Failures of one task in a row before a process gives up: a person must look. */
const mostAttempts = 8;
const nodes = ['a', 'b', 'c'];
/** Operations. */
const wakeEvery = 200;
const visitEvery = 60;

const scripts = new Map<string, Promise<Script>>();

/** Simulates a schedule. `trace`: gets the events, in order. */
export async function simulate(
  schedule: Schedule,
  { trace, Server = SimulatedServer }: { trace?: string[]; Server?: typeof SimulatedServer } = {},
): Promise<Verdict> {
  const options = JSON.stringify(schedule.script);
  const known = scripts.get(options) ?? writeScript(schedule.script);
  scripts.set(options, known);
  const script = await known;
  return new Simulation(schedule, script, Server, trace).run();
}

class Simulation {
  private readonly random: Random;
  private readonly memory = new MemoryStore();
  private readonly server: SimulatedServer;
  private readonly scheduler: Scheduler;
  private readonly disturbances: Disturbances;
  private readonly world: World;
  private readonly workers: Worker[] = [];
  private readonly tasks: Task[];
  private readonly done = new Set<Task>();
  private readonly wrongSamples: string[] = [];
  /** Why a process gave up, in order. */
  private readonly failures: Error[] = [];
  private trainer: Worker | null = null;
  private started = 0;
  private phase: 'disturbed' | 'healed' | 'inspected' = 'disturbed';
  /** The models that hold the last states, according to a process that starts after all others. */
  private readonly inspected: Inspected[] = [];
  /** Numbers of operations. */
  private visitAt: number;
  private wakeAt = Infinity;

  constructor(
    private readonly schedule: Schedule,
    private readonly script: Script,
    Server: typeof SimulatedServer,
    private readonly trace: string[] | undefined,
  ) {
    const random = new Random(schedule.seed ^ 0x5bd1e995);
    this.random = random;
    const say = trace ? (event: () => string) => void trace.push(event()) : () => undefined;
    const { movement, numbered } = schedule.script;
    const nameOf = (adapters: Adapters): string => this.nameOf(adapters);
    this.server = new Server({ movement, numbered, lies: schedule.lies, say, nameOf });
    this.scheduler = new Scheduler(
      random,
      schedule.switchEvery,
      (actor, what, writes) => this.disturbances.atOperation(actor, what, writes),
      say,
    );
    this.disturbances = new Disturbances(
      schedule,
      random,
      this.server,
      {
        kill: (actor) => this.scheduler.kill(actor),
        freeze: (actor) => {
          actor.frozen = true;
          this.wakeAt = this.scheduler.operations + random.until(wakeEvery);
        },
        takeOver: () => this.takeOver(),
        lapse: () => this.lapse(),
      },
      say,
    );
    const { memory, scheduler, disturbances } = this;
    const sampled: World['sampled'] = (...sample) => this.checkSample(...sample);
    this.world = { memory, scheduler, disturbances, random, say, sampled };
    this.tasks = this.tasksOf();
    this.visitAt = schedule.visitors > 0 ? random.until(visitEvery / schedule.visitors) : Infinity;
    for (const [key, bytes] of script.records) memory.create(key, bytes);
  }

  async run(): Promise<Verdict> {
    while (this.scheduler.operations < mostOperations) {
      await settled();
      if (!this.direct()) break;
      this.scheduler.turn();
      this.scheduler.fireTimers(this.workers);
      this.server.advanceTo(this.scheduler.nowMs);
    }
    const { memory, server, script, wrongSamples, failures } = this;
    const isEnded = this.tasks.every((task) => this.done.has(task));
    return verdictOn({
      ...{
        memory,
        server,
        script,
        wrongSamples,
        inspected: this.inspected,
        operations: this.scheduler.operations,
      },
      failure: isEnded ? null : (failures.at(-1) ?? null),
      isStuck: this.scheduler.operations >= mostOperations,
      nameOf: (adapters) => this.nameOf(adapters),
    });
  }

  /** Decides who works. False when all is done. */
  private direct(): boolean {
    const isBusy = (worker: Worker): boolean => worker.job !== null && !worker.dead && !worker.frozen;
    const isLeft = this.tasks.some((task) => !this.done.has(task));
    if (this.phase === 'disturbed') {
      this.wakeSome();
      this.visit();
      if (isLeft && this.failures.length < 4) {
        if (!this.trainer || !isBusy(this.trainer)) this.takeOver();
        return true;
      }
      this.heal();
      return true;
    }
    if (this.workers.some(isBusy)) return true;
    if (this.phase === 'inspected' || isLeft) return false;
    this.inspect();
    return true;
  }

  /** From here on there are no faults. Frozen processes continue, and a new process finishes the runs. */
  private heal(): void {
    this.phase = 'healed';
    this.world.say(() => 'all is well from here on');
    this.disturbances.end();
    this.server.wrongLoad = null;
    for (const worker of this.workers) worker.frozen = false;
    const free = nodes.find((node) => !this.workers.some((worker) => worker.node === node && !worker.dead));
    this.trainer = this.start(free ?? 'd');
    this.work(this.trainer);
  }

  /** After all processes have ended, a successor of the last one reads the runs' last states. */
  private inspect(): void {
    this.phase = 'inspected';
    for (const worker of this.workers) this.scheduler.kill(worker);
    const inspector = this.start(this.trainer?.node ?? 'd');
    this.trainer = inspector;
    const step = this.schedule.script.steps;
    for (const run of this.script.runs) this.tasks.push({ kind: 'inspection', run, step });
    this.work(inspector);
  }

  private wakeSome(): void {
    const { operations } = this.scheduler;
    if (operations < this.wakeAt) return;
    this.wakeAt = operations + this.random.until(wakeEvery);
    const frozen = this.workers.filter((worker) => worker.frozen && !worker.dead);
    if (frozen.length === 0) {
      this.wakeAt = Infinity;
      return;
    }
    const woken = this.random.pick(frozen);
    this.world.say(() => `${woken.name} wakes up`);
    woken.frozen = false;
  }

  /** A process evaluates a state, often an older one, while another one trains. */
  private visit(): void {
    const { operations } = this.scheduler;
    if (operations < this.visitAt) return;
    this.visitAt = operations + this.random.until(visitEvery / this.schedule.visitors);
    const visitor = this.idleOrNew(this.trainer);
    if (!visitor) return;
    const run = this.random.pick(this.script.runs);
    const step = run.after + this.random.below(this.committed(run) - run.after + 1);
    // The parent may not have come to the fork yet.
    if (step > 0 && this.committed(this.script.runs[0]!) < run.after) return;
    this.world.say(() => `${visitor.name} evaluates step ${step} of ${run.run}`);
    void this.attempt(visitor, { kind: 'evaluation', run, step });
  }

  private committed({ run, after }: ScriptedRun): number {
    let step = after;
    while (this.memory.objects.has(updateKey(run, step + 1))) step += 1;
    return step;
  }

  private takeOver(): void {
    const next = this.idleOrNew(null);
    if (!next) {
      // All processes are frozen: one of them must go on.
      const frozen = this.workers.find((worker) => worker.frozen && !worker.dead);
      if (frozen && !this.workers.some((worker) => !worker.dead && !worker.frozen)) frozen.frozen = false;
      return;
    }
    this.trainer = next;
    this.world.say(() => `${next.name} takes the steps`);
    this.work(next);
  }

  /** A process without work, or a new one on a node that has none. */
  private idleOrNew(except: Worker | null): Worker | null {
    const alive = this.workers.filter((worker) => !worker.dead);
    const idle = alive.filter((worker) => worker.job === null && !worker.frozen && worker !== except);
    const free = nodes.filter((node) => !alive.some((worker) => worker.node === node));
    if (idle.length > 0 && (free.length === 0 || this.random.chance(0.5))) return this.random.pick(idle);
    if (free.length === 0 || alive.length >= mostWorkers) return null;
    return this.start(this.random.chance(0.6) ? free[0]! : this.random.pick(free));
  }

  private start(node: string): Worker {
    const worker = new Worker(`${node}${++this.started}`, node, this.world);
    this.workers.push(worker);
    return worker;
  }

  private lapse(): void {
    this.scheduler.nowMs += 400_000;
    this.scheduler.fireTimers(this.workers);
    this.server.advanceTo(this.scheduler.nowMs);
  }

  /** Takes tasks for as long as no other process has taken over. */
  private work(worker: Worker): void {
    const next = (): void => {
      const task = this.tasks.find((task) => !this.done.has(task));
      if (task && worker === this.trainer)
        void this.attempt(worker, task).then((isDone) => {
          if (isDone) next();
        });
    };
    next();
  }

  /** As Temporal tries an activity again. False if it is given up. */
  private async attempt(worker: Worker, task: Task): Promise<boolean> {
    const { kind, run, step } = task;
    worker.job = `${kind} ${step} of ${run.run}`;
    for (let failed = 1; ; failed++)
      try {
        await this.take(worker, task);
        this.done.add(task);
        worker.job = null;
        return true;
      } catch (error) {
        this.world.say(() => `${worker.name}: ${worker.job} fails: ${(error as Error).message}`);
        if (failed === mostAttempts) {
          this.failures.push(error as Error);
          worker.job = null;
          return false;
        }
        await this.scheduler.pause(worker, 1000 * failed);
      }
  }

  private async take(worker: Worker, { kind, run, step }: Task): Promise<void> {
    if (kind === 'evaluation') return worker.sample(run, step, 2, 'visitor');
    if (kind === 'inspection') {
      // It continues as if there were a next step, to find out which model that step would change.
      await worker.sample(run, step, 1, 'run');
      const model = worker.sampledModel;
      this.inspected.push({ run, step, model, held: this.server.models.get(model ?? '')?.adapters ?? null });
      return;
    }
    if (kind === 'checkpoint') return worker.checkpoint(run, step);
    await worker.collect(run, step);
    const provenance = this.phase === 'disturbed' && this.random.chance(0.01) ? 'on a fresh engine' : 'held';
    await worker.update(run, step, provenance);
  }

  /** The steps of both runs in turn, with evaluations and checkpoints between them. */
  private tasksOf(): Task[] {
    const { random, schedule } = this;
    const left = this.script.runs.map((run) => ({ run, step: run.after + 1 }));
    const [main] = left;
    const tasks: Task[] = [];
    const last = schedule.script.steps;
    for (;;) {
      const open = left.filter(
        (one) => one.step <= last && (one === main || (main !== undefined && main.step > one.run.after)),
      );
      if (open.length === 0) return tasks;
      const one = random.pick(open);
      const { run, step } = one;
      one.step += 1;
      tasks.push({ kind: 'step', run, step });
      if (random.chance(schedule.evaluations))
        tasks.push({
          kind: 'evaluation',
          run,
          step: random.chance(0.6) ? step : run.after + random.below(step - run.after + 1),
        });
      if (random.chance(schedule.checkpoints)) tasks.push({ kind: 'checkpoint', run, step });
    }
  }

  private checkSample(
    run: ScriptedRun,
    step: number,
    prompt: readonly number[],
    sample: GenerateResult,
  ): void {
    const { adapters } = run.states[step]!;
    const all = [...prompt, ...sample.tokens];
    const isWrong = sample.logprobs.some((logprob, at) => {
      const place = prompt.length + at;
      const expected = logprobOf(adapters, [all[place - 1]!, all[place]!], this.schedule.script.movement);
      return logprob !== Math.fround(expected);
    });
    if (!isWrong) return;
    this.world.say(() => `WRONG: a sample of step ${step} of ${run.run} comes from other weights`);
    this.wrongSamples.push(`step ${step} of ${run.run}`);
  }

  /** The state that these adapters are, for a person. */
  private nameOf(adapters: Adapters): string {
    for (const { run, states, after } of this.script.runs)
      for (const [step, state] of states.entries()) {
        if (step < after) continue;
        if (areEqual(adapters, state.adapters)) return `state ${step} of ${run}`;
        if (haveEqualWeights(adapters, state.adapters))
          return `the weights of step ${step} of ${run} with other moments`;
      }
    return `NO STATE OF A RUN, after ${adapters.steps} optimizer's steps`;
  }
}
