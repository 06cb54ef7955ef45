// Tasks and demonstrations. Types only.

/** A prompt with an environment and a verifier. One line of `tasks.jsonl`. */
export interface Task {
  task_key: string;
  prompt: string;
  env_key: string;
  /** Runtime facts for the prompt: CURRENT_DATE (the only date in it), LOGGED_IN_USER, LOGGED_IN_NAME, … */
  env_variables: Record<string, string>;
  difficulty: number;
  /** Kind of task that the curriculum keeps a pass rate for; `env_key` if the data has none. */
  template: string;
  split: 'train' | 'held_out';
}

export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
}

/** A tool as a server offers it; `input_schema` is JSON Schema of an object. */
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

/** One line of `demonstrations.jsonl`: a conversation to imitate. Loss falls on `assistant` messages only. */
export interface Demonstration {
  /** Phase that reads it, e.g. `drill` or `teacher`. */
  kind: string;
  /** Absent: the conversation has no system prompt (drills). */
  env_key?: string;
  task_key?: string;
  env_variables?: Record<string, string>;
  messages: DemonstrationMessage[];
}

export type DemonstrationMessage =
  | { role: 'user'; content: string }
  /** The literal text the model is to produce for one turn, tool-call tags and `<done>` included. */
  | { role: 'assistant'; content: string }
  /** Raw text of a tool's result; the episode's own wording is put around it. */
  | { role: 'tool'; content: string };
