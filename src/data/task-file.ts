// Parses the `tasks.jsonl` and `demonstrations.jsonl` that users provide. Every problem is reported with its line.
import { z } from 'zod';
import { inOneLine, issueProblems } from '../spec/spec-issues.js';
import { sha256Hex } from '../base/sha256.js';
import { type Digest, digest } from '../spec/records/parts.js';
import type { Demonstration, Task } from '../spec/records/task.js';
import { inOurNames, jsonLines, taskRows } from './task-dialects.js';

const taskSchema = z.strictObject({
  task_key: z.string().min(1).max(200),
  prompt: z.string(),
  env_key: z.string().min(1),
  env_variables: z.record(z.string(), z.string()).default({}),
  difficulty: z.number().int().min(1).default(1),
  template: z.string().optional(),
  split: z.enum(['train', 'held_out']).default('train'),
  reset: z.record(z.string(), z.unknown()).exactOptional(),
  modality: z.enum(['tool_use', 'computer_use']).exactOptional(),
  env_version: z.string().exactOptional(),
  data_key: z.string().exactOptional(),
  data_version: z.string().exactOptional(),
  verifier: digest.exactOptional(),
  verifier_code: z.string().min(1).exactOptional(),
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

export class BadDataFile extends Error {
  constructor(
    readonly file: string,
    readonly problems: string[],
  ) {
    const shown = problems.slice(0, 20);
    const more = problems.length > shown.length ? [`… and ${problems.length - shown.length} more`] : [];
    super(`${file} is not usable:\n${[...shown, ...more].map((line) => `  ${line}`).join('\n')}`);
    this.name = 'BadDataFile';
  }
}

/**
 * Throws `BadDataFile`, which names each bad row, duplicate keys, and a last line that was cut off. `verifiers`: receives the code of the
 * rows' verifiers by its sha256.
 */
export function parseTasks(text: string, file: string, verifiers?: Map<Digest, string>): Task[] {
  const problems: string[] = [];
  const firstPlaceOf = new Map<string, string>();
  const tasks: Task[] = [];
  for (const { place, value } of taskRows(text, problems)) {
    const row = inOurNames(value);
    const parsed = taskSchema.safeParse(row);
    if (!parsed.success) {
      problems.push(...describe(place, parsed.error, taskSchema, row));
      continue;
    }
    const { verifier_code, ...task } = parsed.data;
    const earlier = firstPlaceOf.get(task.task_key);
    if (earlier !== undefined) {
      problems.push(
        `${place}: task_key "${task.task_key}" is already used in ${earlier}; keys must be unique`,
      );
      continue;
    }
    firstPlaceOf.set(task.task_key, place);
    const { template = task.env_key } = task;
    if (verifier_code === undefined) tasks.push({ ...task, template });
    else {
      const verifier = sha256Hex(verifier_code);
      verifiers?.set(verifier, verifier_code);
      tasks.push({ ...task, template, verifier });
    }
  }
  if (tasks.length === 0 && problems.length === 0)
    problems.push('the file has no task; write one JSON object per line');
  if (problems.length > 0) throw new BadDataFile(file, problems);
  return tasks;
}

export function parseDemonstrations(text: string, file: string): Demonstration[] {
  const problems: string[] = [];
  const demonstrations: Demonstration[] = [];
  for (const { line, value } of jsonLines(text, problems)) {
    const parsed = demonstrationSchema.safeParse(value);
    if (parsed.success) demonstrations.push(withoutUndefined(parsed.data));
    else problems.push(...describe(`line ${line}`, parsed.error, demonstrationSchema, value));
  }
  if (problems.length > 0) throw new BadDataFile(file, problems);
  return demonstrations;
}

function describe(place: string, error: z.ZodError, schema: z.ZodType, value: unknown): string[] {
  return issueProblems(error.issues, schema, value).map((problem) => `${place}: ${inOneLine(problem)}`);
}

function withoutUndefined(value: z.infer<typeof demonstrationSchema>): Demonstration {
  return JSON.parse(JSON.stringify(value)) as Demonstration;
}
