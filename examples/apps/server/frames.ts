// The frames of OpenEnv 0.10 as text, and the types of their contents.
import type { ToolSpec } from '../task-row.js';

export type ErrorCode =
  | 'INVALID_JSON'
  | 'UNKNOWN_TYPE'
  | 'VALIDATION_ERROR'
  | 'EXECUTION_ERROR'
  | 'CAPACITY_REACHED'
  | 'SESSION_ERROR'
  /** Our own code: the request has another grading token than the server. */
  | 'FORBIDDEN';

type ToolErrorType = 'execution_error' | 'invalid_args' | 'tool_not_found';

/** One problem in a request body, in pydantic's form. */
export interface ValidationProblem {
  type: string;
  loc: (string | number)[];
  msg: string;
  input: unknown;
}

/** An observation. It always contains `metadata`. In a frame, metadata that is not empty is also beside the observation. */
export interface Observation {
  fields: Record<string, unknown>;
  metadata: Record<string, unknown>;
  reward: number | null;
  done: boolean;
}

export function errorFrame(code: ErrorCode, message: string, detail: Record<string, unknown> = {}): string {
  return JSON.stringify({ type: 'error', data: { message, code, ...detail } });
}

export function observationData(observation: Observation): Record<string, unknown> {
  const { fields, metadata, reward, done } = observation;
  const data = { observation: { metadata, ...fields }, reward, done };
  return Object.keys(metadata).length === 0 ? data : { ...data, metadata };
}

export function observationFrame(observation: Observation): string {
  return JSON.stringify({ type: 'observation', data: observationData(observation) });
}

/** Result of a tool that returns text, in FastMCP's form. */
export function textResult(text: string): Record<string, unknown> {
  return {
    content: [{ type: 'text', text, annotations: null, meta: null }],
    structured_content: { result: text },
    meta: { fastmcp: { wrap_result: true } },
    data: text,
    is_error: false,
  };
}

/** Tools as `step` lists them. Each description must be a string: otherwise Python clients drop the whole list. */
export function toolList(tools: readonly ToolSpec[]): Record<string, unknown>[] {
  return tools.map(({ name, description, input_schema }) => ({ name, description, input_schema }));
}

/** Tools as JSON-RPC lists them. */
export function mcpToolList(tools: readonly ToolSpec[]): Record<string, unknown>[] {
  return tools.map(({ name, description, input_schema }) => ({
    name,
    description,
    inputSchema: input_schema,
  }));
}

/** Guesses the type from the message exactly as the Python package does; no code should depend on it. */
export function toolErrorType(message: string): ToolErrorType {
  const text = message.toLowerCase();
  if (text.includes('not found') || text.includes('unknown tool')) return 'tool_not_found';
  return text.includes('invalid') || text.includes('argument') ? 'invalid_args' : 'execution_error';
}
