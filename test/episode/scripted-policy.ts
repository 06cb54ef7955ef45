// Drives the loop with scripted turns instead of an engine: it returns the tokens of each turn's text.
import type { GenerateRequest, GenerateResult, PolicyEngine } from '../../src/engine/policy-engine.js';
import type { Tokenizer } from '../../src/episode/tokenizer.js';

export interface ScriptedPolicy extends Pick<PolicyEngine, 'generate'> {
  readonly requests: GenerateRequest[];
}

/** Returns `turns[n]` for a transcript with n earlier turns, counted by its generation prompts. */
export function scriptedPolicy(tokenizer: Tokenizer, turns: readonly string[]): ScriptedPolicy {
  const requests: GenerateRequest[] = [];
  return {
    requests,
    async generate(request, signal): Promise<GenerateResult> {
      signal?.throwIfAborted();
      requests.push({ ...request, tokens: [...request.tokens] });
      const text = tokenizer.decode(request.tokens);
      const turn = text.split('<|im_start|>assistant\n').length - 2;
      const tokens = tokenizer
        .encode(turns[turn] ?? 'I have nothing to say.')
        .slice(0, request.max_new_tokens);
      const last = tokens.at(-1);
      const finish = last !== undefined && request.stop_tokens.includes(last) ? 'stop' : 'length';
      return { tokens: [...tokens], logprobs: tokens.map((_, i) => -(i + 1) / 16), finish };
    },
  };
}
