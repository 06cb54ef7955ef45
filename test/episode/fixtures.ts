import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import type { SamplingPlan } from '../../src/spec/records/parts.js';

export const sampling: SamplingPlan = {
  temperature: 1,
  max_turns: 6,
  max_input_length: 2000,
  max_generate_length: 200,
  max_sequence_length: 2400,
  tools_format: 'signatures',
  system_prompt: 'short',
  max_output_chars: 4000,
  max_episode_failures: 3,
};

/** What a coder has beside its tokenizer and template. */
export const hermes = { format: toolFormat('hermes'), eosTokens: [] };
