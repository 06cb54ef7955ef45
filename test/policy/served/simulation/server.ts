// A Tinker server in memory, with the peculiarities of the stock server: slots keep gradients, request numbers are remembered longer than models
// live, the sampler shares the trainer's weights, and a restart cuts off saves.
import type { AdamParams } from '../../../../src/engine/tinker/service.js';
import {
  type Adapters,
  copyOf,
  freshAdapters,
  logprobOf,
  noGradient,
  passOver,
  step,
  withoutMoments,
} from './adapters.js';
import { latin1Of, type Pass, readPass, writePass, writeSample } from './server-bytes.js';

export const servedName = 'sim';

export interface Answer {
  status: number;
  value: unknown;
}

interface Slot {
  model: string | null;
  /** Stays when a model is unloaded. */
  gradient: number[];
}

interface Model {
  slot: Slot;
  session: string;
  adapters: Adapters;
  /** Name of the sampler's state that the slot has loaded. */
  sampler: string | null;
  /** True after the first training request; the model can then load nothing. */
  isBegun: boolean;
  /** True if its slot has gradients of the previous model. */
  hasLeft: boolean;
}

interface Save {
  model: string;
  type: 'training' | 'sampler';
  name: string;
  complete: boolean;
  /** Null: the files are gone, though the server lists them. */
  adapters: Adapters | null;
}

interface Request {
  id: string;
  carryOut: () => Answer;
  answer: Answer | null;
}

export interface ServerOptions {
  movement: number;
  /** If false, a request that arrives twice is carried out twice. */
  numbered: boolean;
  /** If true, a load of missing files leaves fresh adapters and reports no error. */
  lies: boolean;
  say: (event: () => string) => void;
  /** Names the state that these adapters are, for a trace. */
  nameOf: (adapters: Adapters) => string;
}

const sessionMs = 300_000;
const slots = 3;

export class SimulatedServer {
  readonly models = new Map<string, Model>();
  readonly saves = new Map<string, Save>();
  /** Models that took a step with gradients of an earlier model in their slot. */
  readonly trainedOnLeft: string[] = [];
  /** What the next load gives in place of its state. */
  wrongLoad: ((wanted: Save) => Adapters | null) | null = null;
  /** True while submitted requests wait: the server carries them out later. */
  slow = false;
  private readonly slots: Slot[] = Array.from({ length: slots }, () => ({
    model: null,
    gradient: noGradient(),
  }));
  private readonly requests = new Map<string, Request>();
  private readonly numbers = new Map<string, { body: string; id: string }>();
  private readonly sessions = new Map<string, number>();
  private queue: Request[] = [];
  private count = 0;
  private nowMs = 0;

  constructor(private readonly options: ServerOptions) {}

  handle(path: string, body: object | Uint8Array | undefined, method: string): Answer {
    if (body === undefined) return this.read(path, method);
    if (body instanceof Uint8Array) return this.takePass(body);
    const json = body as Record<string, never>;
    switch (path) {
      case '/create_session':
        return this.createSession();
      case '/session_heartbeat':
        this.sessions.set(json['session_id']!, this.nowMs);
        return ok({});
      case '/create_model':
        return this.takeCreation(json);
      case '/retrieve_future':
        return this.retrieve(json['request_id']!);
      case '/load_weights':
        return this.takeLoad(json);
      case '/optim_step':
        return this.take(path, json, () => this.optimStep(json['model_id']!, json['adam_params']!));
      case '/unload_model':
        return this.take(path, json, () => this.unload(json['model_id']!));
      case '/save_weights':
        return this.takeSave(path, json, 'training');
      case '/save_weights_for_sampler':
        return this.takeSave(path, json, 'sampler');
      case '/asample':
        return this.submit(() => this.sample(json));
      default:
        return { status: 404, value: { detail: `no such path: ${path}` } };
    }
  }

  /** Carries out what was submitted. */
  work(): void {
    const queue = this.queue;
    this.queue = [];
    for (const request of queue) request.answer = request.carryOut();
  }

  restart(): void {
    for (const slot of this.slots) {
      slot.model = null;
      slot.gradient = noGradient();
    }
    this.models.clear();
  }

  /** Restarts after it has taken a request and before it carries it out. */
  cutOff(take: () => Answer): Answer {
    const wasSlow = this.slow;
    this.slow = true;
    const answer = take();
    this.restart();
    this.slow = wasSlow;
    if (!wasSlow) this.work();
    return answer;
  }

  /** The files of all saved states; the server's lists stay. */
  wipe(): void {
    for (const save of this.saves.values()) save.adapters = null;
  }

  /** Ends a model without the flush that a client sends. */
  evict(model: string): void {
    const found = this.models.get(model);
    if (!found) return;
    found.slot.model = null;
    this.models.delete(model);
  }

  /** Ends the models of sessions that have not beaten for long. */
  advanceTo(nowMs: number): void {
    this.nowMs = nowMs;
    for (const [id, { session }] of this.models)
      if (nowMs - (this.sessions.get(session) ?? 0) > sessionMs) {
        this.options.say(() => `server: ${id} ends with its session`);
        this.evict(id);
      }
  }

  private read(path: string, method: string): Answer {
    if (path === '/get_server_capabilities') return ok({ supported_models: [{ model_name: servedName }] });
    const [, , model, , kind, name] = path.split('/').map(decodeURIComponent) as [string, ...string[]];
    const listed = [...this.saves.values()].filter((save) => save.model === model && save.complete);
    if (method === 'DELETE') {
      const type = kind === 'weights' ? 'training' : 'sampler';
      const found = listed.find((save) => save.name === name && save.type === type);
      if (!found) return { status: 404, value: { detail: 'checkpoint not found' } };
      this.options.say(() => `server: ${model} ${name} is removed`);
      this.saves.delete(keyOf(found));
      return ok({});
    }
    return ok({
      checkpoints: listed.map((save) => ({
        ...{ checkpoint_id: save.name, checkpoint_type: save.type },
        tinker_path: pathOf(save),
      })),
    });
  }

  private createSession(): Answer {
    const session = `session${++this.count}`;
    this.sessions.set(session, this.nowMs);
    return ok({ session_id: session });
  }

  private takeCreation(body: Record<string, never>): Answer {
    const model = `m${++this.count}`;
    const submitted = this.submit(() => {
      const slot = this.slots.find((slot) => slot.model === null);
      if (!slot) return refused(`Maximum number of LoRA adapters (${slots}) reached`);
      slot.model = model;
      this.models.set(model, {
        ...{ slot, session: body['session_id']!, adapters: freshAdapters(), sampler: null, isBegun: false },
        hasLeft: dirty(slot) !== '',
      });
      this.options.say(() => `server: ${model} in slot ${this.slots.indexOf(slot)}${dirty(slot)}`);
      return ok({ model_id: model });
    });
    return ok({ ...(submitted.value as object), model_id: model });
  }

  /** A known number with the same body is the same request. */
  private take(path: string, body: Record<string, never>, carryOut: () => Answer): Answer {
    return this.numbered(body['model_id']!, body['seq_id'], `${path} ${JSON.stringify(body)}`, () =>
      this.submit(carryOut),
    );
  }

  private numbered(model: string, number: number | undefined, body: string, submit: () => Answer): Answer {
    if (number === undefined || !this.options.numbered) return submit();
    const key = `${model} ${number}`;
    const known = this.numbers.get(key);
    if (known?.body === body) return ok({ request_id: known.id });
    if (known) return { status: 409, value: { detail: 'Training request sequence number was reused' } };
    const answer = submit();
    const { request_id: id } = answer.value as { request_id?: string };
    if (id !== undefined) this.numbers.set(key, { body, id });
    return answer;
  }

  private submit(carryOut: () => Answer): Answer {
    const request: Request = { id: `r${++this.count}`, carryOut, answer: null };
    this.requests.set(request.id, request);
    this.queue.push(request);
    if (!this.slow) this.work();
    return ok({ request_id: request.id });
  }

  private retrieve(id: string): Answer {
    const request = this.requests.get(id);
    if (!request) return { status: 404, value: { detail: 'Future not found' } };
    if (request.answer) return request.answer;
    return { status: 408, value: null };
  }

  private takePass(body: Uint8Array): Answer {
    const pass = readPass(body);
    return this.numbered(pass.model, pass.number, latin1Of(body), () => this.submit(() => this.pass(pass)));
  }

  private pass({ model, sequences, forwardOnly }: Pass): Answer {
    const found = this.models.get(model);
    if (!found) return notLoaded(model);
    const { adapters, slot } = found;
    found.isBegun = true;
    const gradient = forwardOnly ? null : slot.gradient;
    const { movement } = this.options;
    return ok(writePass(sequences.map((sequence) => passOver(adapters, sequence, movement, gradient))));
  }

  private optimStep(model: string, adam: AdamParams): Answer {
    const found = this.models.get(model);
    if (!found) return notLoaded(model);
    found.isBegun = true;
    if (found.hasLeft && adam.learning_rate > 0) this.trainedOnLeft.push(model);
    found.hasLeft = false;
    const norm = step(found.adapters, found.slot.gradient, adam);
    if (adam.learning_rate > 0)
      this.options.say(() => `server: ${model} now holds ${this.options.nameOf(found.adapters)}`);
    return ok({ metrics: { 'skyrl.ai/grad_norm': norm } });
  }

  private takeLoad(body: Record<string, never>): Answer {
    const [model, path]: [string, string] = [body['model_id']!, body['path']!];
    return this.take('/load_weights', body, () => {
      const found = this.models.get(model);
      if (!found) return notLoaded(model);
      if (found.isBegun) return refused('load_weights is only for the first request');
      found.isBegun = true;
      const save = [...this.saves.values()].find((save) => pathOf(save) === path);
      if (!save?.complete) return refused(`checkpoint ${path} is not found`);
      const wrong = this.wrongLoad;
      this.wrongLoad = null;
      const adapters = wrong ? wrong(save) : save.adapters;
      if (!adapters && !this.options.lies) return refused(`the files of ${path} are missing`);
      found.adapters = body['optimizer'] ? copyOf(adapters ?? freshAdapters()) : loadedFrom(adapters);
      this.options.say(
        () => `server: ${model} has loaded ${path}, and holds ${this.options.nameOf(found.adapters)}`,
      );
      return ok({ type: 'load_weights' });
    });
  }

  private takeSave(path: string, body: Record<string, never>, type: Save['type']): Answer {
    const [model, name]: [string, string] = [body['model_id']!, body['path']!];
    return this.numbered(model, body['seq_id'], `${path} ${JSON.stringify(body)}`, () => {
      const save: Save = { model, type, name, complete: false, adapters: null };
      const key = keyOf(save);
      if (this.saves.has(key)) return { status: 409, value: { detail: 'Checkpoint already exists' } };
      this.saves.set(key, save);
      return this.submit(() => {
        const found = this.models.get(model);
        if (!found) return notLoaded(model);
        save.adapters = copyOf(found.adapters);
        save.complete = true;
        if (type === 'sampler') found.sampler = name;
        this.options.say(() => `server: ${pathOf(save)} is saved: ${this.options.nameOf(found.adapters)}`);
        return ok({ path: pathOf(save) });
      });
    });
  }

  private unload(model: string): Answer {
    const found = this.models.get(model);
    if (!found) return notLoaded(model);
    this.options.say(() => `server: ${model} is unloaded${dirty(found.slot)}`);
    this.evict(model);
    return ok({ type: 'unload_model' });
  }

  /** A slot has only one state, so sampling another path replaces the trainer's weights. */
  private sample(body: Record<string, never>): Answer {
    const path: string = body['model_path']!;
    const save = [...this.saves.values()].find((save) => save.type === 'sampler' && pathOf(save) === path);
    const model = path.replace('tinker://', '').split('/')[0] as string;
    const found = this.models.get(model);
    if (!found) return notLoaded(model);
    if (!save?.complete) return refused(`checkpoint ${path} is not found`);
    const { nameOf, say, movement } = this.options;
    if (found.sampler !== save.name) {
      if (!save.adapters) return refused(`the files of ${path} are missing`);
      say(
        () =>
          `server: sampling ${path} puts ${nameOf(save.adapters!)} into ${model}, which held ${nameOf(found.adapters)}`,
      );
      found.adapters = { ...found.adapters, weights: [...save.adapters.weights] };
      found.sampler = save.name;
    }
    const { prompt, sampling_params: parameters } = body as unknown as {
      prompt: { chunks: { tokens: number[] }[] };
      sampling_params: { seed: number; max_tokens: number };
    };
    const all = [...prompt.chunks[0]!.tokens];
    const logprobs: number[] = [];
    for (let at = 0; at < parameters.max_tokens; at++) {
      const token = (parameters.seed + 7 * at) % 60;
      logprobs.push(logprobOf(found.adapters, [all.at(-1)!, token], movement));
      all.push(token);
    }
    return ok(writeSample(all.slice(-parameters.max_tokens), logprobs));
  }
}

function loadedFrom(adapters: Adapters | null): Adapters {
  return adapters ? withoutMoments(adapters) : freshAdapters();
}

const keyOf = ({ model, type, name }: Save): string => `${model} ${type} ${name}`;

export const pathOf = ({ model, type, name }: Pick<Save, 'model' | 'type' | 'name'>): string =>
  type === 'training' ? `tinker://${model}/weights/${name}` : `tinker://${model}/${name}`;

const dirty = ({ gradient }: Slot): string => (gradient.some((one) => one !== 0) ? ', with gradients' : '');

const ok = (value: unknown): Answer => ({ status: 200, value });
const refused = (detail: string): Answer => ({ status: 400, value: { detail } });
const notLoaded = (model: string): Answer => refused(`Model ${model} not loaded`);
