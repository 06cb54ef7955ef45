// Checks request bodies and frames as strictly as the Python package, and with its names for problems: an extra key is an error.
import { z } from 'zod';
import { isObject } from './json-object.js';
import type { ValidationProblem } from './frames.js';

export type JsonObject = Record<string, unknown>;

export type Checked<T> = { ok: true; value: T } | { ok: false; problems: ValidationProblem[] };

/** Maximum length of an idempotency key, in UTF-16 units. */
export const maxKeyLength = 255;

/** The Python package's messages by type of problem. The schemas below have such a type as their message. */
const words: Record<string, string> = {
  missing: 'Field required',
  string_type: 'Input should be a valid string',
  string_too_long: `String should have at most ${maxKeyLength} characters`,
  dict_type: 'Input should be a valid dictionary',
  int_type: 'Input should be a valid integer',
  float_type: 'Input should be a valid number',
  greater_than_equal: 'Input should be greater than or equal to 0',
  literal_error: "Input should be 'call_tool' or 'list_tools'",
};

const missingOr = (type: string) => ({
  error: ({ input }: { input?: unknown }) => (input === undefined ? 'missing' : type),
});
const string = z.string('string_type');
const shortString = string.max(maxKeyLength, 'string_too_long');
const int = z.int('int_type');
const rate = z.number('float_type').min(0, 'float_type').max(1, 'float_type');
const dictionary = z.custom<JsonObject>(isObject, missingOr('dict_type'));

/** Accepts null as well as an absent value. */
function maybe<T extends z.ZodType>(schema: T) {
  return schema.nullish().transform((value) => value ?? undefined);
}

const frames = {
  none: z.strictObject({ type: z.unknown() }).transform(() => ({})),
  optional: z
    .strictObject({ type: z.unknown(), data: dictionary.optional() })
    .transform(({ data }) => data ?? {}),
  required: z.strictObject({ type: z.unknown(), data: dictionary }).transform(({ data }) => data),
};

/** Checks a frame's own keys: `type` and, if it has one, `data`. */
export function checkFrame(frame: JsonObject, data: keyof typeof frames): Checked<JsonObject> {
  return check<JsonObject>(frames[data], frame, []);
}

// Unknown keys are dropped silently, as the package drops arguments that an environment's `reset` does not take. So is `env_variables`,
// because a task's variables belong to its world.
const reset = z
  .object({
    seed: maybe(int.min(0, 'greater_than_equal')),
    episode_id: maybe(shortString),
    task_key: maybe(string),
    split: maybe(string),
    index: maybe(int),
    env_key: maybe(string),
    try: maybe(int),
    token: maybe(string),
    fault_rate: maybe(rate),
    tool_error_rate: maybe(rate),
    idempotency_key: maybe(shortString),
  })
  .transform(({ episode_id, task_key, env_key, fault_rate, tool_error_rate, idempotency_key, ...given }) => ({
    ...given,
    try: given.try ?? 0,
    episodeId: episode_id,
    taskKey: task_key,
    environment: env_key,
    faultRate: fault_rate,
    toolErrorRate: tool_error_rate,
    idempotencyKey: idempotency_key,
  }));
export type ResetArguments = z.infer<typeof reset>;

export function checkReset(data: JsonObject, at: (string | number)[] = []): Checked<ResetArguments> {
  return check(reset, data, at);
}

const listTools = z
  .strictObject({ type: z.literal('list_tools'), metadata: dictionary.nullish() })
  .transform(({ type }) => ({ type }));
/** `type` is optional in a call, as on servers that use the action class CallToolAction. */
const callTool = z
  .strictObject({
    type: z.literal('call_tool', 'literal_error').nullish(),
    tool_name: z.string(missingOr('string_type')),
    arguments: dictionary.optional(),
    metadata: z
      .object(
        {
          turn: int.optional().catch(undefined),
          try: int.catch(0),
          idempotency_key: maybe(shortString),
        },
        'dict_type',
      )
      .nullish(),
  })
  .transform((call) => ({
    type: 'call_tool' as const,
    tool: call.tool_name,
    arguments: call.arguments ?? {},
    turn: call.metadata?.turn,
    try: call.metadata?.try ?? 0,
    idempotencyKey: call.metadata?.idempotency_key,
  }));
export type StepAction = z.infer<typeof listTools> | z.infer<typeof callTool>;

export function checkAction(data: JsonObject, at: (string | number)[] = []): Checked<StepAction> {
  return check<StepAction>(data.type === 'list_tools' ? listTools : callTool, data, at);
}

const grade = z
  .strictObject({
    token: maybe(string),
    final_answer: maybe(string),
    try: maybe(int),
    session_id: maybe(string),
    idempotency_key: maybe(shortString),
  })
  .transform((given) => ({
    token: given.token ?? '',
    finalAnswer: given.final_answer ?? '',
    try: given.try ?? 0,
    sessionId: given.session_id,
    idempotencyKey: given.idempotency_key,
  }));
export type GradeArguments = z.infer<typeof grade>;

export function checkGrade(data: JsonObject, at: (string | number)[] = []): Checked<GradeArguments> {
  return check(grade, data, at);
}

const split = z
  .string(missingOr('string_type'))
  .nullable()
  .transform((name) => name ?? '');
const taskQueries = {
  all: z.strictObject({ split }),
  task: z.strictObject({
    split,
    index: z
      .int(missingOr('int_type'))
      .nullable()
      .transform((at) => at ?? 0),
  }),
  task_range: z.strictObject({ split, start: maybe(int), stop: maybe(int) }),
};

interface TaskQuery {
  split: string;
  index?: number;
  start?: number | undefined;
  stop?: number | undefined;
}

/** The body of a task API route; no other keys are allowed. */
export function checkTaskQuery(body: JsonObject, route: keyof typeof taskQueries): Checked<TaskQuery> {
  return check<TaskQuery>(taskQueries[route], body, ['body']);
}

function check<T>(schema: z.ZodType<T>, value: JsonObject, at: (string | number)[]): Checked<T> {
  const checked = schema.safeParse(value);
  return checked.success
    ? { ok: true, value: checked.data }
    : { ok: false, problems: checked.error.issues.flatMap((issue) => problemsOf(issue, value, at)) };
}

function problemsOf(
  issue: z.core.$ZodIssue,
  value: JsonObject,
  at: (string | number)[],
): ValidationProblem[] {
  const path = issue.path as (string | number)[];
  const valueAt = (keys: (string | number)[]): unknown =>
    keys.reduce<unknown>((from, key) => (from as JsonObject)[key], value);
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      ...{ type: 'extra_forbidden', loc: [...at, ...path, key] },
      ...{ msg: 'Extra inputs are not permitted', input: valueAt([...path, key]) },
    }));
  }
  const type = issue.message;
  const input = valueAt(type === 'missing' ? path.slice(0, -1) : path);
  return [{ type, loc: [...at, ...path], msg: words[type] ?? type, input }];
}
