// Tasks, tools and demonstrations as the server lists them: rows that a trainer reads.

export interface TaskRow {
  task_key: string;
  prompt: string;
  env_key: string;
  /** Values for the prompt: CURRENT_DATE (the only date in the prompt), LOGGED_IN_USER, LOGGED_IN_NAME, … */
  env_variables: Record<string, string>;
  difficulty: number;
  /** Kind of task. */
  template: string;
  split: 'train' | 'held_out';
}

export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
}

/** `input_schema` is the JSON Schema of an object. */
export interface ToolSpec {
  name: string;
  description: string;
  input_schema: ObjectSchema;
}

export interface ObjectSchema {
  type: 'object';
  properties: Record<string, { type?: string; description?: string; enum?: readonly unknown[] }>;
  required?: string[];
  [key: string]: unknown;
}

/** A conversation to imitate. Only `assistant` messages carry a loss. */
export interface Demonstration {
  kind: string;
  /** Absent if the conversation has no system prompt, as in drills. */
  env_key?: string;
  task_key?: string;
  env_variables?: Record<string, string>;
  messages: DemonstrationMessage[];
}

export interface DemonstrationMessage {
  role: 'user' | 'assistant' | 'tool';
  content: string;
}
