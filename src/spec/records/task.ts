// Types of tasks and demonstrations.
import type { Digest } from './parts.js';

/** One line of `tasks.jsonl`: a prompt with an environment and a verifier. */
export interface Task {
  task_key: string;
  /** If empty, the environment's reset shows the prompt. */
  prompt: string;
  env_key: string;
  /** Values for the prompt: CURRENT_DATE (the only date in the prompt), LOGGED_IN_USER, LOGGED_IN_NAME, … */
  env_variables: Record<string, string>;
  difficulty: number;
  /** Kind of task; the curriculum keeps one pass rate for each. `env_key` if the data names no template. */
  template: string;
  split: 'train' | 'held_out';
  /** Sent with the `reset` that opens the task's world, for servers that choose their task by keys of their own. */
  reset?: Record<string, unknown>;
  /** Absent: `tool_use`. */
  modality?: 'tool_use' | 'computer_use';
  env_version?: string;
  /** Version of the environment's initial data. */
  data_key?: string;
  data_version?: string;
  /** sha256 of the verifier's code, which is stored separately. */
  verifier?: Digest;
  /** Fleet's runtime that the verifier was written for. */
  verifier_runtime_version?: string;
}

export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
}

/** A tool of an environment server; `input_schema` is the JSON Schema of an object. */
export interface ToolSpec {
  name: string;
  description: string;
  input_schema: JsonSchemaObject;
}

export interface JsonSchemaObject {
  type: 'object';
  properties: Record<string, { type?: string; description?: string; enum?: readonly unknown[] }>;
  required?: string[];
  [key: string]: unknown;
}

/** One line of `demonstrations.jsonl`: a conversation to imitate. Only `assistant` messages carry a loss. */
export interface Demonstration {
  /** Kind of the phases that train on it, for example `drill` or `teacher`. */
  kind: string;
  /** Absent if the conversation has no system prompt, as in drills. */
  env_key?: string;
  task_key?: string;
  env_variables?: Record<string, string>;
  messages: DemonstrationMessage[];
}

export type DemonstrationMessage =
  | { role: 'user'; content: string }
  /** The exact text that the model should produce in one turn, with its tool-call tags and `<done>`. */
  | { role: 'assistant'; content: string }
  /** Raw text of a tool's result; the prompt puts the same words around it as in an episode. */
  | { role: 'tool'; content: string };
