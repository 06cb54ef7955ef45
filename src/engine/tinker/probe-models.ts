// Models that a Tinker server is probed with, one at a time. Each is flushed and unloaded whatever became of its probe, and what is sent
// is counted.
import { InDoubt } from './call-errors.js';
import type { TinkerClient, WaitOptions } from './futures.js';
import type { AdamParams, Numbered, ServedLora, TinkerService } from './service.js';
import { encodePass, type Datum, type PassRequest } from './wire.js';

interface ProbedServer {
  client: TinkerClient;
  service: TinkerService;
  /** As the server names it. */
  model: string;
  lora: ServedLora;
  /** Ends a probe that the server does not finish. */
  signal: AbortSignal;
}

interface SavedByProbe {
  model: string;
  name: string;
}

interface ProbeCost {
  tokens: number;
  passes: number;
  steps: number;
}

/** Removing a model has its own deadline. */
const removeWithinMs = 60_000;
/** A server that is away is reported, not waited for. */
export const briefly = { maxWaitMs: 2_000 };
/** Small enough for a step that goes where its gradient points, large enough to be seen in log-probs of low precision. */
const rate: AdamParams = { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0 };

export class ProbeModels {
  readonly cost: ProbeCost = { tokens: 0, passes: 0, steps: 0 };
  /** What could not be removed. */
  readonly left: string[] = [];

  private readonly saved: SavedByProbe[] = [];
  private hasBegun = false;

  constructor(private readonly server: ProbedServer) {}

  /** Makes a model, probes it, and removes it. Errors: those of call-errors.ts. */
  async with<T>(probe: (model: ProbeModel) => Promise<T>): Promise<T> {
    const { service, model: base, lora, signal } = this.server;
    const { model, session } = await service.createModel(base, lora, {
      signal,
      ...briefly,
      once: this.hasBegun,
    });
    this.hasBegun = true;
    try {
      return await probe(new ProbeModel(model, this.server, this.cost, this.saved));
    } finally {
      await this.attempt(`model ${model}`, async (options) => void (await service.unload(model, options)));
      service.release(session);
    }
  }

  /** Removes gradients that a model left behind because its server has no flush. */
  async flush(): Promise<void> {
    const { service, model: base, lora } = this.server;
    await this.attempt('gradients of an unloaded model', async (options) => {
      const { model, session } = await service.createModel(base, lora, options);
      await service.unload(model, options);
      service.release(session);
    });
  }

  async close(): Promise<void> {
    for (const { model, name } of this.saved.splice(0)) {
      const saved = { checkpoint_type: 'training', checkpoint_id: name } as const;
      await this.attempt(`saved state ${name} of ${model}`, ({ signal }) =>
        this.server.service.removeCheckpoint(model, saved, signal),
      );
    }
  }

  /** What cannot be removed is reported beside the finding: an error here would hide the probe's own failure. */
  private async attempt(what: string, remove: (options: WaitOptions) => Promise<void>): Promise<void> {
    try {
      await remove({ signal: AbortSignal.timeout(removeWithinMs), ...briefly });
    } catch (error) {
      this.left.push(`${what}: ${(error as Error).message}`);
    }
  }
}

export class ProbeModel {
  private next = 1;

  constructor(
    private readonly id: string,
    private readonly server: ProbedServer,
    private readonly cost: ProbeCost,
    private readonly saved: SavedByProbe[],
  ) {}

  /** For each text, the log-probs of its tokens from the second on. */
  async logprobs(texts: readonly (readonly number[])[]): Promise<number[][]> {
    const data = texts.map((text) => ({
      tokens: text.slice(0, -1),
      inputs: { target_tokens: { dtype: 'int64' as const, data: text.slice(1) } },
    }));
    const request = { model_id: this.id, data, loss_fn: 'cross_entropy', forward_only: true };
    const { outputs } = await this.server.service.pass(this.counted(request), this.options);
    return outputs.map(({ logprobs = [] }) => logprobs);
  }

  async pass(data: readonly Datum[], loss_fn = 'importance_sampling'): Promise<void> {
    await this.server.service.pass(this.counted({ ...this.place(), data, loss_fn }), this.options);
  }

  /** Sends the same bytes under the same number twice. Says whether both were answered as one request. */
  async passTwice(data: readonly Datum[]): Promise<boolean> {
    const { client } = this.server;
    const request = { ...this.place(), data, loss_fn: 'importance_sampling' };
    const ids: string[] = [];
    for (let sent = 0; sent < 2; sent++) {
      const bytes = encodePass(this.counted(request));
      const { request_id } = await client.call('/forward_backward', bytes, this.options);
      if (typeof request_id !== 'string') throw new InDoubt('a pass was answered without a request id');
      ids.push(request_id);
    }
    for (const id of ids) await client.wait(id, this.options);
    return ids[0] === ids[1];
  }

  async step(adam: Partial<AdamParams> = {}): Promise<void> {
    this.cost.steps += 1;
    await this.server.service.optimStep(this.place(), { ...rate, ...adam }, this.options);
  }

  async save(name: string): Promise<string> {
    // A save may be carried out although its answer does not come.
    this.saved.push({ model: this.id, name });
    return this.server.service.saveWeights(this.place(), name, this.options);
  }

  /** Only as the model's first request. */
  async load(path: string): Promise<void> {
    await this.server.service.loadWeights(this.place(), path, this.options);
  }

  /** Unloads the model without flushing its gradients, as other clients do. */
  async unloadUnflushed(): Promise<void> {
    await this.server.client.run('/unload_model', { model_id: this.id }, this.options);
  }

  private place(): Numbered {
    return { model_id: this.id, seq_id: this.next++ };
  }

  private counted(request: PassRequest): PassRequest {
    this.cost.passes += 1;
    for (const { tokens } of request.data) this.cost.tokens += tokens.length;
    return request;
  }

  private get options(): WaitOptions {
    return { signal: this.server.signal, ...briefly };
  }
}
