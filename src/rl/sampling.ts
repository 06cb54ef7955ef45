// The sampling settings that plans and suites contain.
import type { SamplingPlan } from '../spec/records/parts.js';
import type { GeneratorSpec } from '../spec/run-spec.js';
import { evaluationPlay } from '../spec/schedule.js';

/** Sampling of training episodes. */
export function samplingOf(generator: GeneratorSpec): SamplingPlan {
  const { top_p, top_k } = generator;
  return {
    ...common(generator),
    ...(top_p === undefined ? {} : { top_p }),
    ...(top_k === undefined ? {} : { top_k }),
  };
}

/** Sampling of evaluations: the full distribution at their own temperature, independent of the training settings. */
export function evaluationSampling(generator: GeneratorSpec): SamplingPlan {
  return { ...common(generator), temperature: evaluationPlay(generator).temperature };
}

function common(generator: GeneratorSpec): SamplingPlan {
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
    stop,
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
    ...(stop === undefined ? {} : { stop }),
  };
}
