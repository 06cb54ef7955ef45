// Parses the `tasks.jsonl` and `demonstrations.jsonl` that users provide. Every problem is reported with its line.
import { numberIn } from '../base/json.js';
import { z } from 'zod';
import { inOneLine, issueProblems } from '../spec/spec-issues.js';
import { sha256Hex } from '../base/sha256.js';
import { type Digest, digest } from '../spec/records/parts.js';
import type { Demonstration, Task } from '../spec/records/task.js';
import { type Row, RowReader, rowsOf } from './row-reader.js';
import { fleetRow, withTextVariables } from './task-dialects.js';
import { trainerRow } from './trainer-rows.js';

const taskSchema = z.strictObject({
  task_key: z.string().min(1).max(200),
  prompt: z.string(),
  env_key: z.string().min(1),
  env_variables: z.record(z.string(), z.string()).default({}),
  difficulty: z.preprocess((given) => numberIn(given) ?? given, z.number().int().min(1).default(1)),
  template: z.string().optional(),
  split: z.enum(['train', 'held_out']).default('train'),
  reset: z.record(z.string(), z.unknown()).exactOptional(),
  modality: z.enum(['tool_use', 'computer_use']).exactOptional(),
  env_version: z.string().exactOptional(),
  data_key: z.string().exactOptional(),
  data_version: z.string().exactOptional(),
  verifier: digest.exactOptional(),
  verifier_code: z.string().min(1).exactOptional(),
  verifier_runtime_version: z.string().min(1).exactOptional(),
});

const demonstrationSchema = z.strictObject({
  kind: z.string().min(1),
  env_key: z.string().optional(),
  task_key: z.string().optional(),
  env_variables: z.record(z.string(), z.string()).optional(),
  messages: z
    .array(z.strictObject({ role: z.enum(['user', 'assistant', 'tool']), content: z.string() }))
    .min(2)
    .superRefine((messages, context) => {
      const wrong = messages.findIndex(({ role }, index) => !roleFits(role, index));
      if (wrong < 0) return;
      const wanted = wrong === 0 ? 'user' : wrong % 2 === 1 ? 'assistant' : 'user or tool';
      context.addIssue({
        code: 'custom',
        path: [wrong, 'role'],
        message: `must be ${wanted}: a conversation begins with the user, and every second message is the assistant's`,
      });
    }),
});

function roleFits(role: string, index: number): boolean {
  return index === 0 ? role === 'user' : (role === 'assistant') === (index % 2 === 1);
}

const solutionSchema = z.strictObject({
  task_key: z.string().min(1),
  calls: z
    .array(
      z.strictObject({ name: z.string().min(1), arguments: z.record(z.string(), z.unknown()).default({}) }),
    )
    .default([]),
  final_answer: z.string().default(''),
});

/** One line of `solutions.jsonl`: calls and a final answer that solve a task. */
export type Solution = z.output<typeof solutionSchema>;

export class BadDataFile extends Error {
  /** One line for each kind of problem, with the place of the first. */
  readonly problems: readonly string[];

  constructor(
    readonly file: string,
    found: readonly string[],
  ) {
    const problems = byKind(found);
    const shown = problems.slice(0, 20);
    const more = problems.length > shown.length ? [`… and ${problems.length - shown.length} more`] : [];
    super(`${file} is not usable:\n${[...shown, ...more].map((line) => `  ${line}`).join('\n')}`);
    this.name = 'BadDataFile';
    this.problems = problems;
  }
}

/** Rows of one kind have the same problem, but for the value that was found. */
function byKind(found: readonly string[]): string[] {
  const kinds = new Map<string, { first: string; places: string[] }>();
  for (const problem of found) {
    const [, place = '', text = problem] = /^((?:line|task) \d+): ([^]*)$/.exec(problem) ?? [];
    const kind = place === '' ? text : `: ${text.replace(/, not [^]*?(?=; did you mean |$)/, '')}`;
    const known = kinds.get(kind);
    if (known) known.places.push(place);
    else kinds.set(kind, { first: problem, places: [] });
  }
  return [...kinds.values()].map(({ first, places }) => {
    const [second = ''] = places;
    if (places.length === 0 || second === '') return first;
    const noun = second.startsWith('line') ? 'line' : 'task';
    return places.length === 1
      ? `${first} (and ${second})`
      : `${first} (and ${places.length} more ${noun}s, such as ${second})`;
  });
}

/** Receives the code of a verifier. */
export type VerifierSink = (sha256: Digest, code: string) => void;

/** Collects the tasks of a file, row by row. */
export class TaskRows {
  private readonly problems: string[] = [];
  private readonly reader = new RowReader(this.problems);
  private readonly firstPlaceOf = new Map<string, string>();
  private readonly tasks: Task[] = [];

  constructor(
    private readonly file: string,
    private readonly onVerifier: VerifierSink = () => undefined,
  ) {}

  push(piece: string): void {
    for (const row of this.reader.push(piece)) this.take(row);
  }

  /**
   * Throws `BadDataFile`, which names each bad row, duplicate keys, and an end that was cut off. Rows of SkyRL Fleet Training may repeat a
   * key: all of them are returned, and the selection takes the first.
   */
  end(): Task[] {
    for (const row of this.reader.end()) this.take(row);
    const { tasks, problems } = this;
    if (tasks.length === 0 && problems.length === 0)
      problems.push('the file has no task; write one JSON object per line');
    if (problems.length > 0) throw new BadDataFile(this.file, problems);
    return tasks;
  }

  private take({ place, value }: Row): void {
    const fleet = fleetRow(value);
    const converted = trainerRow(fleet ?? value);
    if ('problem' in converted) {
      this.problems.push(`${place}: ${converted.problem}`);
      return;
    }
    const row = withTextVariables(converted.row);
    const parsed = taskSchema.safeParse(row);
    if (!parsed.success) {
      this.problems.push(...describe(place, parsed.error, taskSchema, row));
      return;
    }
    const { verifier_code, ...task } = parsed.data;
    const earlier = this.firstPlaceOf.get(task.task_key);
    if (earlier !== undefined && !fleet) {
      this.problems.push(
        `${place}: task_key "${task.task_key}" is already used in ${earlier}; keys must be unique`,
      );
      return;
    }
    this.firstPlaceOf.set(task.task_key, place);
    const { template = task.env_key } = task;
    if (verifier_code === undefined) this.tasks.push({ ...task, template });
    else {
      const verifier = sha256Hex(verifier_code);
      this.onVerifier(verifier, verifier_code);
      this.tasks.push({ ...task, template, verifier });
    }
  }
}

/** All tasks of a text; see `TaskRows.end`. */
export function parseTasks(text: string, file: string, onVerifier?: VerifierSink): Task[] {
  const rows = new TaskRows(file, onVerifier);
  rows.push(text);
  return rows.end();
}

/** `problemOf`: what else is wrong with a demonstration; null if nothing is. */
export function parseDemonstrations(
  text: string,
  file: string,
  problemOf: (demonstration: Demonstration) => string | null = () => null,
): Demonstration[] {
  const problems: string[] = [];
  const demonstrations: Demonstration[] = [];
  for (const { place, value } of rowsOf(text, problems)) {
    const parsed = demonstrationSchema.safeParse(withTextVariables(value));
    if (!parsed.success) {
      problems.push(...describe(place, parsed.error, demonstrationSchema, value));
      continue;
    }
    const demonstration = withoutUndefined(parsed.data);
    const problem = problemOf(demonstration);
    if (problem !== null) problems.push(`${place}: ${problem}`);
    demonstrations.push(demonstration);
  }
  if (problems.length > 0) throw new BadDataFile(file, problems);
  return demonstrations;
}

/** Throws `BadDataFile`, which names each bad line, and each task that has two solutions. */
export function parseSolutions(text: string, file: string): Solution[] {
  const problems: string[] = [];
  const solutions = new Map<string, Solution>();
  for (const { place, value } of rowsOf(text, problems)) {
    const parsed = solutionSchema.safeParse(value);
    if (!parsed.success) problems.push(...describe(place, parsed.error, solutionSchema, value));
    else if (solutions.has(parsed.data.task_key))
      problems.push(`${place}: the task "${parsed.data.task_key}" has a solution already; keep one of them`);
    else solutions.set(parsed.data.task_key, parsed.data);
  }
  if (problems.length > 0) throw new BadDataFile(file, problems);
  return [...solutions.values()];
}

function describe(place: string, error: z.ZodError, schema: z.ZodType, value: unknown): string[] {
  return issueProblems(error.issues, schema, value).map((problem) => `${place}: ${inOneLine(problem)}`);
}

function withoutUndefined(value: z.infer<typeof demonstrationSchema>): Demonstration {
  return JSON.parse(JSON.stringify(value)) as Demonstration;
}
