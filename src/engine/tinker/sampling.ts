// The policy engine over a Tinker server. It samples one state at a time, which its `StateKeeper` has loaded on the server.
import { createHash, randomUUID } from 'node:crypto';
import type { Digest } from '../../spec/records/parts.js';
import {
  EngineError,
  type EngineInfo,
  type GenerateRequest,
  type GenerateResult,
  type OnWaiting,
  type PolicyEngine,
} from '../policy-engine.js';
import { ModelLost } from './call-errors.js';
import type { TinkerService } from './service.js';

export interface ServedPolicy {
  /** The operator's name of the server, because addresses change. */
  service: string;
  /** The server's name of the model. */
  model: string;
}

/** Raised when the same requests would give other results. */
const version = 1;

export class TinkerEngine implements PolicyEngine {
  /** Set by the keeper while the state is held. */
  sampled: { state: Digest; path: string; maxWaitMs: number } | null = null;
  /** Called when a call shows that the server has lost the sampled model. */
  onLost: () => void = () => undefined;
  private known: Promise<EngineInfo> | null = null;
  private readonly incarnation = randomUUID();
  private tokens = 0;

  constructor(
    private readonly tinker: TinkerService,
    private readonly policy: ServedPolicy,
  ) {}

  /** Called before each episode, so the server's answer is kept. */
  info(): Promise<EngineInfo> {
    this.known ??= this.ask().catch((error: unknown) => {
      this.known = null;
      throw error;
    });
    return this.known;
  }

  private async ask(): Promise<EngineInfo> {
    const { service, model } = this.policy;
    const models = await this.tinker.models();
    if (!models.includes(model))
      throw new EngineError(
        'EngineMissing',
        `the Tinker server ${service} does not have ${model}; it has ${models.join(', ') || 'no model'}`,
      );
    return {
      incarnation: this.incarnation,
      build: `tinker ${service}`,
      numerics: { backend: 'tinker', version, service, model },
      gpu: null,
      instructionSet: 'remote',
      threads: 0,
    };
  }

  setVocabulary(): Promise<void> {
    return Promise.reject(new EngineError('BadInput', 'a Tinker server cannot end a turn at a stop text'));
  }

  async generate(
    request: GenerateRequest,
    signal?: AbortSignal,
    onWaiting?: OnWaiting,
  ): Promise<GenerateResult> {
    const { sampled } = this;
    if (sampled?.state !== request.state)
      throw new EngineError('WrongState', `the server holds ${sampled?.state ?? 'nothing'}`);
    const { tokens, logprobs, stop } = await this.tinker
      .sample(
        {
          model_path: sampled.path,
          tokens: request.tokens,
          max_tokens: request.max_new_tokens,
          seed: seedOf(request),
          stop: request.stop_tokens,
        },
        { maxWaitMs: sampled.maxWaitMs, ...(signal ? { signal } : {}), ...(onWaiting ? { onWaiting } : {}) },
      )
      .catch((error: unknown) => {
        if (error instanceof ModelLost && this.sampled === sampled) this.onLost();
        throw error;
      });
    this.tokens += tokens.length;
    // A sample that began with one state must not end as another one's.
    if (this.sampled !== sampled)
      throw new EngineError('WrongState', 'the server’s state was replaced while it was in use');
    return { tokens, logprobs, finish: stop };
  }

  stats(): Promise<Record<string, number>> {
    return Promise.resolve({ tokens: this.tokens });
  }

  close(): Promise<void> {
    this.tinker.close();
    return Promise.resolve();
  }
}

/** A seed of 31 bits for each place in each transcript, because a server gives equal samples to equal seeds. */
function seedOf({ key, tokens }: Pick<GenerateRequest, 'key' | 'tokens'>): number {
  const { seed, domain, step, slot, sample } = key;
  const place = [seed, domain, step, slot, sample, tokens.length].join(' ');
  return createHash('sha256').update(place).digest().readUInt32LE(0) >>> 1;
}
