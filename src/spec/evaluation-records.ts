// The records of evaluations, which runs and sweeps share: what is measured, and what came of it.
import type { PassRate } from './pass-rate.js';
import type { Digest, Numerics, SamplingPlan } from './records.js';

/** What an evaluation measures; its digest names `evals/{state}/{suite}/`. */
export interface SuiteRecord {
  schema: 'longhaul.suite/1';
  name: string;
  tasks: { task_key: string; env_key: string; template: string; seed: number }[];
  samples_per_task: number;
  sampling: SamplingPlan;
  seed: number;
  digests: { tokenizer: Digest; chat_template: Digest; tool_parser: string; dataset: Digest };
  numerics: Numerics;
}

/** One of version 1 has 0 where nothing was graded, and is read as null. */
export interface EvaluationResult {
  schema: 'longhaul.evaluation/1' | 'longhaul.evaluation/2';
  state: Digest;
  suite: Digest;
  suite_name: string;
  pass_at_1: PassRate;
  graded: number;
  unknown: number;
  environments: Record<string, EnvironmentResult>;
  templates: Record<string, { passed: number; graded: number }>;
  observed: {
    run: string;
    step: number;
    seconds: number;
    committed_at: string;
    metrics: Record<string, number>;
  };
}

export interface EnvironmentResult {
  pass_at_1: PassRate;
  graded: number;
  unknown: number;
  mean_turns: number;
  mean_tool_calls: number;
  tool_errors: number;
}
