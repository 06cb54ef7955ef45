// The records of evaluations, which runs and sweeps share: what is measured, and what came of it.
import type { PassRate } from '../pass-rate.js';
import type { Digest, SamplingPlan } from './records.js';
import type { Numerics } from './numerics.js';

/** By `env_key`: the digest of what tells an environment from another one that plays the same tasks. */
export type EnvironmentIdentities = Record<string, Digest>;

/** What an evaluation measures; its digest names `evals/{state}/{suite}/`. */
export interface SuiteRecord {
  schema: 'longhaul.suite/1' | 'longhaul.suite/2';
  name: string;
  /** Identities of the environments of its tasks; absent in version 1. */
  environments?: EnvironmentIdentities;
  /** From 2 on: outcomes that were unknown in the round before are played again in this one. Absent: the first. */
  round?: number;
  /** The sweep that asked for all of it to be played again, whatever is there. */
  again?: string;
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

/** `runs/{run}/evaluations/{step}.{suite name}.json`: the evaluation that a run stands on, whoever has played it. */
export interface EvaluatedRecord {
  schema: 'longhaul.evaluated/1';
  run: string;
  step: number;
  suite_name: string;
  state: Digest;
  suite: Digest;
  observed: { at: string };
}

export interface EnvironmentResult {
  pass_at_1: PassRate;
  graded: number;
  unknown: number;
  mean_turns: number;
  mean_tool_calls: number;
  tool_errors: number;
}
