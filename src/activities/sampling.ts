// The sampling settings that plans and suites fix.
import type { SamplingPlan } from '../spec/records.js';
import type { GeneratorSpec } from '../spec/run-spec.js';

export function samplingOf(generator: GeneratorSpec): SamplingPlan {
  const {
    temperature,
    max_turns,
    max_input_length,
    max_generate_length,
    max_sequence_length,
    tools_format,
    system_prompt,
    max_output_chars,
    max_episode_failures,
  } = generator;
  return {
    temperature,
    max_turns,
    max_input_length,
    max_generate_length,
    max_sequence_length,
    tools_format,
    system_prompt,
    max_output_chars,
    max_episode_failures,
  };
}
