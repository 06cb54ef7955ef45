// Models on a Tinker server: sessions that stay alive, models that begin without another's gradients, numbered training requests,
// saved states. Errors: call-errors.ts.
import type { ServedTokens } from '../../spec/budget.js';
import { InDoubt, ModelLost, TinkerRefused } from './call-errors.js';
import type { RequestOptions, TinkerClient, WaitOptions } from './futures.js';
import { SentTokens } from './sent-tokens.js';
import {
  BadTinkerAnswer,
  decodePass,
  decodeSamples,
  encodePass,
  type PassRequest,
  type PassResult,
  type SampledSequence,
} from './wire.js';

/** Adapters of a model on the server. */
export interface ServedLora {
  rank: number;
  seed: number;
}

export interface AdamParams {
  learning_rate: number;
  beta1: number;
  beta2: number;
  eps: number;
  weight_decay: number;
  /** Not every server clips; one that does not ignores it in silence. */
  grad_clip_norm?: number;
}

/** A training request's place: numbers count from 1 without gaps, and a number sent twice is one request. */
export interface Numbered {
  model_id: string;
  seq_id: number;
}

export interface SavedOnServer {
  checkpoint_id: string;
  checkpoint_type: 'training' | 'sampler';
  tinker_path: string;
}

interface SampleRequest {
  model_path: string;
  tokens: readonly number[];
  max_tokens: number;
  seed: number;
  /** Token ids; the first of them ends the sample, and is part of it. */
  stop: readonly number[];
}

/** A model and the session that keeps it alive. */
export interface CreatedModel {
  model: string;
  session: string;
}

type CreationOptions = WaitOptions & { waits?: boolean };

const beatMs = 10_000;
/** A process that uses its models no more, because their run has ended, must not keep their places on the server. */
const idleMs = 15 * 60_000;
const mostCreations = 3;
/** How often a server without a free place for a model is asked again. Dead clients lose theirs after minutes. */
const placePauseMs = 5_000;
/** Limit for unloading a model whose creation was given up. A model that is not unloaded ends with its session. */
const givenUpWithinMs = 20_000;
const nothing: AdamParams = { learning_rate: 0, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0 };

export class TinkerService {
  /** For each session that this process keeps alive, the function that ends its heartbeats. */
  private readonly beats = new Map<string, () => void>();
  private unloads = true;
  /** Time of the last use, on the client's clock. */
  private usedAt = 0;
  private open = 0;

  readonly sent = new SentTokens();

  constructor(private readonly client: TinkerClient) {}

  /** Names of the models that the server trains; the only evidence of what it serves. */
  async models(options: WaitOptions = {}): Promise<string[]> {
    const { supported_models: models } = await this.client.call(
      '/get_server_capabilities',
      undefined,
      options,
    );
    if (!Array.isArray(models)) throw new BadTinkerAnswer('the server does not list its models');
    return models.flatMap((model: unknown) => {
      const name = (model as { model_name?: unknown } | null)?.model_name;
      return typeof name === 'string' ? [name] : [];
    });
  }

  /**
   * Creates a model with fresh adapters, in its own session. A first model is created and unloaded before it, because on some servers a slot keeps
   * the gradients of its previous model, and this clears them. `once`: no first model, for a probe that looks for such gradients. `waits`: waits
   * for a free place, up to `maxWaitMs`; else the server's refusal is thrown (`isFull`).
   */
  async createModel(
    base: string,
    lora: ServedLora,
    { once = false, ...options }: CreationOptions & { once?: boolean } = {},
  ): Promise<CreatedModel> {
    // A model that was gone before it was unloaded has not cleared its slot.
    for (let tries = 1, isCleared = once; this.unloads && !isCleared && tries <= mostCreations; tries++) {
      const { model, session } = await this.create(base, lora, options);
      isCleared = await this.unload(model, options).catch((error: unknown) => {
        // The hosted service ends unused models itself, and has no unloading.
        if (!(error instanceof TinkerRefused)) throw error;
        this.unloads = false;
        return true;
      });
      this.release(session);
    }
    return this.create(base, lora, options);
  }

  /**
   * Creations have no numbers. If an answer is lost, a model may exist; it ends with its session, minutes later. A model whose creation was given
   * up is unloaded, because others wait for its place.
   */
  private async create(base: string, lora: ServedLora, options: CreationOptions): Promise<CreatedModel> {
    const { waits = true } = options;
    const giveUpAt = this.client.now() + (options.maxWaitMs ?? 0);
    for (let lost = 1; ;) {
      const session = await this.newSession(options);
      let made: string | undefined;
      try {
        const body = { session_id: session, base_model: base, lora_config: lora, model_role: 'policy' };
        const { model_id, request_id } = await this.client.call('/create_model', body, options);
        if (typeof model_id !== 'string' || typeof request_id !== 'string')
          throw new InDoubt('create_model was answered without a model id');
        made = model_id;
        await this.client.wait(request_id, options);
        return { model: model_id, session };
      } catch (error) {
        const isGivenUp = options.signal?.aborted ?? false;
        if (isGivenUp && made !== undefined)
          await this.unload(made, { signal: AbortSignal.timeout(givenUpWithinMs) }).catch(() => undefined);
        this.release(session);
        options.signal?.throwIfAborted();
        if (isFull(error) && waits && this.client.now() < giveUpAt)
          await this.client.pause(placePauseMs, options);
        else if (!(error instanceof InDoubt) || lost++ === mostCreations) throw error;
        options.onWaiting?.({ reason: error.message });
      }
    }
  }

  /** Ends the model. A step with rate 0 first clears its gradients, which would stay in its slot. False if the model was already gone. */
  async unload(model_id: string, options: WaitOptions = {}): Promise<boolean> {
    const repeated = { ...options, repeatable: true };
    try {
      await this.run('/optim_step', { model_id, adam_params: nothing }, repeated);
      await this.run('/unload_model', { model_id }, repeated);
      return true;
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof ModelLost)) throw error;
      return false;
    }
  }

  /** Only as a model's first request. `optimizer`: the moments too. */
  async loadWeights(
    place: Numbered,
    path: string,
    { optimizer = true, ...options }: RequestOptions & { optimizer?: boolean } = {},
  ): Promise<void> {
    await this.run('/load_weights', { ...place, path, optimizer }, options);
  }

  async pass(request: PassRequest, options: RequestOptions = {}): Promise<PassResult> {
    const train = request.data.reduce((sum, { tokens }) => sum + tokens.length, 0);
    const counting = this.counting({ train }, options);
    const answer = await this.run('/forward_backward', encodePass(request), counting);
    if (!(answer instanceof Uint8Array))
      throw new BadTinkerAnswer('the server answers a pass in JSON: it is older than skyrl 0.4');
    const result = decodePass(answer);
    if (result.outputs.length === request.data.length) return result;
    throw new BadTinkerAnswer(`${request.data.length} sequences came back as ${result.outputs.length}`);
  }

  /** Applies the gradients since the last step. Returns the server's figures, e.g. `skyrl.ai/grad_norm`. */
  async optimStep(
    place: Numbered,
    adam_params: AdamParams,
    options: RequestOptions = {},
  ): Promise<Record<string, number>> {
    const answer = await this.run('/optim_step', { ...place, adam_params }, options);
    return (answer as { metrics?: Record<string, number> | null }).metrics ?? {};
  }

  /** Saves weights and optimizer under `name`. Returns the path of the saved state. */
  saveWeights(place: Numbered, name: string, options: RequestOptions = {}): Promise<string> {
    return this.save('/save_weights', place, name, options);
  }

  /** Makes the model's weights those that samples under the returned path come from. */
  saveForSampler(place: Numbered, name: string, options: RequestOptions = {}): Promise<string> {
    return this.save('/save_weights_for_sampler', place, name, options);
  }

  private async save(call: string, place: Numbered, name: string, options: RequestOptions): Promise<string> {
    const counting = this.counting({ saves: 1 }, options);
    const { path } = (await this.run(call, { ...place, path: name }, counting)) as { path?: unknown };
    if (typeof path === 'string') return path;
    throw new BadTinkerAnswer(`${call} was answered without a path`);
  }

  /** Whole saved states of a model, those that were cut off left out. Empty for a model that the server does not know. */
  async checkpoints(model_id: string, options: WaitOptions = {}): Promise<SavedOnServer[]> {
    const path = `/training_runs/${encodeURIComponent(model_id)}/checkpoints`;
    const answer = await this.client.call(path, undefined, options).catch((error: unknown) => {
      const gone = error instanceof ModelLost || (error instanceof TinkerRefused && error.status === 404);
      if (gone) return { checkpoints: [] };
      throw error;
    });
    return answer['checkpoints'] as SavedOnServer[];
  }

  /** Removes a saved state, if it is there. */
  removeCheckpoint(
    model_id: string,
    { checkpoint_type, checkpoint_id }: Pick<SavedOnServer, 'checkpoint_type' | 'checkpoint_id'>,
    signal?: AbortSignal,
  ): Promise<void> {
    const [model, checkpoint] = [model_id, checkpoint_id].map(encodeURIComponent);
    const kind = checkpoint_type === 'training' ? 'weights' : 'sampler_weights';
    return this.client.remove(`/training_runs/${model}/checkpoints/${kind}/${checkpoint}`, signal);
  }

  /** The adapters of a state that was saved for sampling, as a tar.gz in PEFT's form. */
  archive(model_id: string, checkpoint_id: string, options: WaitOptions = {}): Promise<Uint8Array> {
    const [model, checkpoint] = [model_id, checkpoint_id].map(encodeURIComponent);
    return this.client.download(`/training_runs/${model}/checkpoints/${checkpoint}/archive`, options);
  }

  /** A sample whose answer is lost is asked for again: it is paid twice, and changes nothing. */
  async sample(request: SampleRequest, options: WaitOptions = {}): Promise<SampledSequence> {
    const { model_path, tokens, max_tokens, seed, stop } = request;
    const answer = await this.run(
      '/asample',
      {
        model_path,
        prompt: { chunks: [{ type: 'encoded_text', tokens }] },
        num_samples: 1,
        sampling_params: { max_tokens, seed, stop, temperature: 1 },
      },
      this.counting({ prefill: tokens.length }, { ...options, repeatable: true }),
    );
    if (!(answer instanceof Uint8Array))
      throw new BadTinkerAnswer('the server answers a sample in JSON: it is older than skyrl 0.4');
    const [sampled] = decodeSamples(answer);
    if (sampled) {
      this.sent.add({ sample: sampled.tokens.length });
      return sampled;
    }
    throw new BadTinkerAnswer('the server answered a sample request without a sequence');
  }

  /** Waits between two looks at the server. */
  pause(ms: number, options: WaitOptions): Promise<void> {
    return this.client.pause(ms, options);
  }

  /** A model whose request is open is in use. */
  private async run(...request: Parameters<TinkerClient['run']>): ReturnType<TinkerClient['run']> {
    this.open += 1;
    try {
      return await this.client.run(...request);
    } finally {
      this.open -= 1;
      this.usedAt = this.client.now();
    }
  }

  private counting(part: Partial<ServedTokens>, options: RequestOptions): RequestOptions {
    return {
      ...options,
      onSent: () => {
        options.onSent?.();
        this.sent.add(part);
      },
    };
  }

  /** A session beats before its first model: a server never ends one that has not. */
  private async newSession(options: WaitOptions): Promise<string> {
    const body = { tags: ['longhaul'], sdk_version: 'longhaul', user_metadata: {} };
    const { session_id } = await this.client.call('/create_session', body, options);
    if (typeof session_id !== 'string')
      throw new BadTinkerAnswer('create_session was answered without an id');
    await this.client.call('/session_heartbeat', { session_id }, options);
    this.keepAlive(session_id);
    return session_id;
  }

  /** Servers end a session, and with it its models, minutes after its last beat. */
  keepAlive(session_id: string): void {
    this.usedAt = this.client.now();
    if (this.beats.has(session_id)) return;
    const beat = (): void => {
      const isIdle = this.open === 0 && this.client.now() - this.usedAt > idleMs;
      if (isIdle) return this.release(session_id);
      // A beat that fails is followed by another; the requests of the models show whether they are alive.
      void this.client.call('/session_heartbeat', { session_id }, { maxWaitMs: 0 }).catch(() => undefined);
    };
    this.beats.set(session_id, this.client.every(beatMs, beat));
  }

  release(session: string): void {
    this.beats.get(session)?.();
    this.beats.delete(session);
  }

  close(): void {
    for (const session of this.beats.keys()) this.release(session);
  }
}

/** All places for models are taken. */
export function isFull(error: unknown): error is TinkerRefused {
  return (
    error instanceof TinkerRefused && /maximum number|too many (models|adapters)|no free/i.test(error.detail)
  );
}
