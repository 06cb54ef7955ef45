// Request bodies and frames, checked as strictly as the package checks them: a key too many is an error.
import type { ValidationProblem } from './frames.js';

export type JsonObject = Record<string, unknown>;

export type Checked<T> = { ok: true; value: T } | { ok: false; problems: ValidationProblem[] };

export interface ResetArguments {
  seed: number | undefined;
  episodeId: string | undefined;
  taskKey: string | undefined;
  split: string | undefined;
  index: number | undefined;
  environment: string | undefined;
  try: number;
  token: string | undefined;
  faultRate: number | undefined;
  toolErrorRate: number | undefined;
  idempotencyKey: string | undefined;
}

export type StepAction =
  | { type: 'list_tools' }
  | {
      type: 'call_tool';
      tool: string;
      arguments: JsonObject;
      turn: number | undefined;
      try: number;
      idempotencyKey: string | undefined;
    };

export interface GradeArguments {
  token: string;
  finalAnswer: string;
  try: number;
  sessionId: string | undefined;
  idempotencyKey: string | undefined;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

class Problems {
  readonly list: ValidationProblem[] = [];

  add(type: string, loc: (string | number)[], msg: string, input: unknown): void {
    this.list.push({ type, loc, msg, input });
  }

  extraKeys(value: JsonObject, known: readonly string[], at: (string | number)[] = []): void {
    for (const key of Object.keys(value)) {
      if (!known.includes(key)) {
        this.add('extra_forbidden', [...at, key], 'Extra inputs are not permitted', value[key]);
      }
    }
  }

  optional<T>(
    value: JsonObject,
    key: string,
    expected: string,
    accepts: (v: unknown) => v is T,
    at: (string | number)[] = [],
  ): T | undefined {
    const given = value[key];
    if (given === undefined || given === null) return undefined;
    if (accepts(given)) return given;
    this.add(`${expected}_type`, [...at, key], `Input should be a valid ${words[expected]}`, given);
    return undefined;
  }

  text(value: JsonObject, key: string, maxLength: number, at: (string | number)[] = []): string | undefined {
    const given = this.optional(value, key, 'string', isString, at);
    if (given !== undefined && given.length > maxLength) {
      const msg = `String should have at most ${maxLength} characters`;
      this.add('string_too_long', [...at, key], msg, given);
    }
    return given;
  }

  missing(value: JsonObject, key: string, at: (string | number)[] = []): void {
    this.add('missing', [...at, key], 'Field required', value);
  }

  result<T>(value: T): Checked<T> {
    return this.list.length === 0 ? { ok: true, value } : { ok: false, problems: this.list };
  }
}

const words: Record<string, string> = {
  string: 'string',
  dict: 'dictionary',
  int: 'integer',
  float: 'number',
};
/** Limit of an idempotency key, in UTF-16 units. */
export const maxKeyLength = 255;

const isString = (value: unknown): value is string => typeof value === 'string';
const isInteger = (value: unknown): value is number => Number.isSafeInteger(value);
const isRate = (value: unknown): value is number => typeof value === 'number' && value >= 0 && value <= 1;

/** A frame's own keys: `type` and, where it has one, `data`. */
export function checkFrame(frame: JsonObject, data: 'required' | 'optional' | 'none'): Checked<JsonObject> {
  const problems = new Problems();
  problems.extraKeys(frame, data === 'none' ? ['type'] : ['type', 'data']);
  if (data === 'none') return problems.result({});
  if (frame.data === undefined) {
    if (data === 'required') problems.missing(frame, 'data');
    return problems.result({});
  }
  if (!isObject(frame.data)) {
    problems.add('dict_type', ['data'], 'Input should be a valid dictionary', frame.data);
    return problems.result({});
  }
  return problems.result(frame.data);
}

/**
 * Unknown keys are dropped in silence, as the package drops what an environment's `reset` does not take;
 * `env_variables` too, since a built-in task's variables belong to its world.
 */
export function checkReset(data: JsonObject, at: (string | number)[] = []): Checked<ResetArguments> {
  const problems = new Problems();
  const seed = problems.optional(data, 'seed', 'int', isInteger, at);
  if (seed !== undefined && seed < 0) {
    problems.add('greater_than_equal', [...at, 'seed'], 'Input should be greater than or equal to 0', seed);
  }
  return problems.result({
    seed,
    episodeId: problems.text(data, 'episode_id', 255, at),
    taskKey: problems.optional(data, 'task_key', 'string', isString, at),
    split: problems.optional(data, 'split', 'string', isString, at),
    index: problems.optional(data, 'index', 'int', isInteger, at),
    environment: problems.optional(data, 'env_key', 'string', isString, at),
    try: problems.optional(data, 'try', 'int', isInteger, at) ?? 0,
    token: problems.optional(data, 'token', 'string', isString, at),
    faultRate: problems.optional(data, 'fault_rate', 'float', isRate, at),
    toolErrorRate: problems.optional(data, 'tool_error_rate', 'float', isRate, at),
    idempotencyKey: problems.text(data, 'idempotency_key', maxKeyLength, at),
  });
}

/** `type` may be left out of a call, as with servers whose action class is CallToolAction. */
export function checkAction(data: JsonObject, at: (string | number)[] = []): Checked<StepAction> {
  const problems = new Problems();
  const metadata = problems.optional(data, 'metadata', 'dict', isObject, at) ?? {};
  const type = data.type ?? 'call_tool';
  if (type === 'list_tools') {
    problems.extraKeys(data, ['type', 'metadata'], at);
    return problems.result({ type });
  }
  if (type !== 'call_tool') {
    problems.add('literal_error', [...at, 'type'], "Input should be 'call_tool' or 'list_tools'", type);
  }
  problems.extraKeys(data, ['type', 'metadata', 'tool_name', 'arguments'], at);
  if (data.tool_name === undefined) problems.missing(data, 'tool_name', at);
  else if (!isString(data.tool_name)) {
    problems.add('string_type', [...at, 'tool_name'], 'Input should be a valid string', data.tool_name);
  }
  if (data.arguments !== undefined && !isObject(data.arguments)) {
    problems.add('dict_type', [...at, 'arguments'], 'Input should be a valid dictionary', data.arguments);
  }
  return problems.result({
    type: 'call_tool',
    tool: String(data.tool_name),
    arguments: isObject(data.arguments) ? data.arguments : {},
    turn: isInteger(metadata.turn) ? metadata.turn : undefined,
    try: isInteger(metadata.try) ? metadata.try : 0,
    idempotencyKey: problems.text(metadata, 'idempotency_key', maxKeyLength, [...at, 'metadata']),
  });
}

export function checkGrade(data: JsonObject, at: (string | number)[] = []): Checked<GradeArguments> {
  const problems = new Problems();
  problems.extraKeys(data, ['token', 'final_answer', 'try', 'session_id', 'idempotency_key'], at);
  return problems.result({
    token: problems.optional(data, 'token', 'string', isString, at) ?? '',
    finalAnswer: problems.optional(data, 'final_answer', 'string', isString, at) ?? '',
    try: problems.optional(data, 'try', 'int', isInteger, at) ?? 0,
    sessionId: problems.optional(data, 'session_id', 'string', isString, at),
    idempotencyKey: problems.text(data, 'idempotency_key', maxKeyLength, at),
  });
}

/** Body of a task API route: exactly these keys. */
export function checkTaskQuery(
  body: JsonObject,
  keys: { required: readonly string[]; optional: readonly string[] },
): Checked<{ split: string; index: number; start: number | undefined; stop: number | undefined }> {
  const problems = new Problems();
  problems.extraKeys(body, [...keys.required, ...keys.optional], ['body']);
  for (const key of keys.required) if (body[key] === undefined) problems.missing(body, key, ['body']);
  return problems.result({
    split: problems.optional(body, 'split', 'string', isString, ['body']) ?? '',
    index: problems.optional(body, 'index', 'int', isInteger, ['body']) ?? 0,
    start: problems.optional(body, 'start', 'int', isInteger, ['body']),
    stop: problems.optional(body, 'stop', 'int', isInteger, ['body']),
  });
}
