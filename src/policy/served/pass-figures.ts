// What a Tinker server's answers to a step's passes say beside the gradients, and which of it makes the model unfit (R37).
import type { Datum } from '../../engine/tinker/wire.js';
import { InstanceGivenUp, NonFiniteStep } from './given-up.js';

/** What the server computed beside the gradients, over the tokens that are trained on. */
export class PassFigures {
  private tokens = 0;
  private loss = 0;
  private apart = 0;
  private furthest = 0;
  private gradNorms: number[] = [];
  private finite = true;

  add(data: readonly Datum[], outputs: readonly Record<string, number[]>[]): void {
    for (const [index, { inputs }] of data.entries()) {
      const { logprobs = [], elementwise_loss: losses = [] } = outputs[index] ?? {};
      const old = inputs['logprobs']?.data;
      for (const [at, weight] of (inputs['weights']?.data ?? []).entries()) {
        if (weight === 0) continue;
        const logprob = logprobs[at] ?? NaN;
        if (!Number.isFinite(logprob)) this.finite = false;
        const apart = old ? Math.abs(logprob - (old[at] ?? 0)) : 0;
        this.tokens += 1;
        this.loss += losses[at] ?? 0;
        this.apart += apart;
        this.furthest = Math.max(this.furthest, apart);
      }
    }
  }

  /** Before the optimizer's step (R37). `compares`: the weights are still those that the episodes were sampled from. */
  check(tolerance: number, compares: boolean): void {
    if (!this.finite) throw new InstanceGivenUp('the trainer has log-probs that are not finite');
    const apart = this.apart / Math.max(this.tokens, 1);
    if (compares && apart > tolerance)
      throw new InstanceGivenUp(
        `the trainer's log-probs lie ${apart.toFixed(4)} from the sampled ones on average, and model.served.logprob_tolerance ` +
          `is ${tolerance}: trainer and sampler differ in weights, tokenizer or sampling`,
      );
  }

  stepped(metrics: Record<string, number>): void {
    const norm = metrics['skyrl.ai/grad_norm'] ?? metrics['grad_norm'];
    if (norm !== undefined) this.gradNorms.push(norm);
    if (norm !== undefined && !Number.isFinite(norm))
      throw new NonFiniteStep('the optimizer’s step had a gradient that is not finite');
  }

  metrics(): Record<string, number> {
    return {
      loss: this.loss / Math.max(this.tokens, 1),
      max_logprob_difference: this.furthest,
      ...(this.gradNorms.length === 0
        ? {}
        : { grad_norm: this.gradNorms.reduce((sum, one) => sum + one, 0) / this.gradNorms.length }),
    };
  }
}
