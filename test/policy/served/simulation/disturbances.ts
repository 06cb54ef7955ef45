// Injects the faults of a schedule: into processes at their operations, into calls on their way, and into the server.
import { InDoubt, NotConnected } from '../../../../src/engine/tinker/call-errors.js';
import { haveEqualWeights } from './adapters.js';
import type { Random } from './random.js';
import { type FaultKind, faultKinds, type Schedule } from './schedule.js';
import type { Actor } from './scheduler.js';
import type { Answer, SimulatedServer } from './server.js';

interface Call {
  path: string;
  body: object | Uint8Array | undefined;
  method: string;
}

/** Faults that hit the next call to which they apply. */
const ofCalls: readonly FaultKind[] = [
  'lost',
  'doubled',
  'delayed',
  'late-sample',
  'cut-off',
  'erring',
  'away',
];

/** A write is hit by a fault as often as so many reads. */
const weightOfWrite = 4;
/** A late request arrives within so many operations. */
const mostLate = 200;

export interface Hands {
  kill(actor: Actor): void;
  freeze(actor: Actor): void;
  takeOver(): void;
  lapse(): void;
}

export class Disturbances {
  brought = 0;
  private untilFault: number;
  private ofNextCall: FaultKind | null = null;
  private late: { call: Call; in: number }[] = [];
  private slowFor = 0;
  private sending: { actor: Actor; call: Call } | null = null;
  private readonly kinds: FaultKind[];

  constructor(
    private readonly schedule: Schedule,
    private readonly random: Random,
    private readonly server: SimulatedServer,
    private readonly hands: Hands,
    private readonly say: (event: () => string) => void,
  ) {
    this.untilFault = schedule.mostFaults > 0 ? random.until(schedule.faultEvery) : Infinity;
    this.kinds = faultKinds.flatMap((kind) => new Array<FaultKind>(schedule.faults[kind] ?? 0).fill(kind));
  }

  /** Ends the faults; late requests arrive. */
  end(): void {
    this.untilFault = Infinity;
    this.ofNextCall = null;
    this.slowFor = 0;
    for (const one of this.late) one.in = Math.min(one.in, this.random.below(30));
    this.pass();
  }

  /** Events that happen independently of the processes. */
  private pass(): void {
    if (this.server.slow && --this.slowFor <= 0) {
      this.server.slow = false;
      this.server.work();
    }
    if (this.late.length === 0) return;
    for (const one of this.late) one.in -= 1;
    const arrived = this.late.filter((one) => one.in <= 0);
    this.late = this.late.filter((one) => one.in > 0);
    for (const { call } of arrived) {
      this.say(() => `network: a late ${call.path} arrives`);
      this.server.handle(call.path, call.body, call.method);
    }
  }

  atOperation(actor: Actor, what: string, writes: boolean): void {
    if (this.late.length > 0 || this.server.slow) this.pass();
    this.untilFault -= writes ? weightOfWrite : 1;
    if (this.untilFault > 0) return;
    this.brought += 1;
    this.untilFault =
      this.brought < this.schedule.mostFaults ? this.random.until(this.schedule.faultEvery) : Infinity;
    const kind = this.random.pick(this.kinds);
    this.say(() => `fault: ${kind}, as ${actor.name} is at ${what}`);
    this.bring(kind, actor);
  }

  private bring(kind: FaultKind, actor: Actor): void {
    const { server, hands, random } = this;
    if (ofCalls.includes(kind)) {
      this.ofNextCall = kind;
      return;
    }
    if (kind === 'kill') {
      if (this.sending?.actor === actor && random.chance(0.5)) this.delay(this.sending.call);
      hands.kill(actor);
    } else if (kind === 'freeze') hands.freeze(actor);
    else if (kind === 'take-over') hands.takeOver();
    else if (kind === 'lapse') hands.lapse();
    else if (kind === 'restart') server.restart();
    else if (kind === 'wipe') {
      server.wipe();
      server.restart();
    } else if (kind === 'evict') {
      const models = [...server.models.keys()];
      if (models.length > 0) server.evict(random.pick(models));
    } else if (kind === 'slow') {
      server.slow = true;
      this.slowFor = 1 + random.below(40);
    } else
      // Moments that are not those of the weights nobody notices (docs/tinker.md).
      server.wrongLoad = ({ adapters: wanted }) => {
        const others = [...server.saves.values()].filter(
          ({ type, adapters }) =>
            type === 'training' && adapters && !(wanted && haveEqualWeights(adapters, wanted)),
        );
        return others.length > 0 ? random.pick(others).adapters : null;
      };
  }

  /** Between this and the call's first operation nothing else happens. */
  sends(actor: Actor, call: Call): void {
    this.sending = { actor, call };
  }

  sent(): void {
    this.sending = null;
  }

  deliver(call: Call): Answer {
    const { path, body, method } = call;
    const kind = this.canMeet(call) ? this.ofNextCall : null;
    if (kind !== null) {
      this.ofNextCall = null;
      this.say(() => `network: ${path} is ${kind}`);
    }
    switch (kind) {
      case 'away':
        throw new NotConnected('no server answers');
      case 'erring':
        return path === '/retrieve_future'
          ? { status: 410, value: { detail: 'the result has expired' } }
          : { status: 503, value: { detail: 'overloaded' } };
      case 'delayed':
      case 'late-sample':
        this.delay(call);
        throw new InDoubt(`${path} was not answered`);
      case 'lost':
        if (this.random.chance(0.7)) this.server.handle(path, body, method);
        throw new InDoubt(`${path} was not answered`);
      case 'cut-off':
        return this.server.cutOff(() => this.server.handle(path, body, method));
      case 'doubled':
        this.server.handle(path, body, method);
        return this.server.handle(path, body, method);
      default:
        return this.server.handle(path, body, method);
    }
  }

  /** No doubled requests for a server without numbers: it would carry them out twice, and nobody could notice. */
  private canMeet({ path, body }: Call): boolean {
    const isRequest = body !== undefined && path !== '/retrieve_future';
    const isSample = path === '/asample';
    if (this.ofNextCall === 'late-sample') return isSample;
    if (this.ofNextCall === 'cut-off') return isRequest;
    if (this.ofNextCall === 'delayed') return isRequest && !isSample;
    if (this.ofNextCall === 'doubled') return isRequest && this.schedule.script.numbered;
    return true;
  }

  private delay(call: Call): void {
    const isAllowed = call.path !== '/asample' || this.schedule.faults['late-sample'] !== undefined;
    if (call.body !== undefined && call.path !== '/retrieve_future' && isAllowed)
      this.late.push({ call, in: 1 + this.random.below(mostLate) });
  }
}
