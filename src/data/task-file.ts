// Parses the `tasks.jsonl` and `demonstrations.jsonl` that users provide. Every problem is reported with its line.
import { z } from 'zod';
import { inOneLine, issueProblems } from '../spec/spec-issues.js';
import type { Demonstration, Task } from '../spec/records/task.js';

const taskSchema = z.strictObject({
  task_key: z.string().min(1).max(200),
  prompt: z.string(),
  env_key: z.string().min(1),
  env_variables: z.record(z.string(), z.string()).default({}),
  difficulty: z.number().int().min(1).default(1),
  template: z.string().optional(),
  split: z.enum(['train', 'held_out']).default('train'),
  reset: z.record(z.string(), z.unknown()).exactOptional(),
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

/** Throws `BadDataFile`, which names each bad line, duplicate keys, and a last line that was cut off. */
export function parseTasks(text: string, file: string): Task[] {
  const problems: string[] = [];
  const firstLineOf = new Map<string, number>();
  const tasks: Task[] = [];
  for (const { line, value } of jsonLines(text, problems)) {
    const parsed = taskSchema.safeParse(value);
    if (!parsed.success) {
      problems.push(...describe(line, parsed.error, taskSchema, value));
      continue;
    }
    const earlier = firstLineOf.get(parsed.data.task_key);
    if (earlier !== undefined) {
      problems.push(
        `line ${line}: task_key "${parsed.data.task_key}" is already used in line ${earlier}; keys must be unique`,
      );
      continue;
    }
    firstLineOf.set(parsed.data.task_key, line);
    const { template = parsed.data.env_key } = parsed.data;
    tasks.push({ ...parsed.data, template });
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
    else problems.push(...describe(line, parsed.error, demonstrationSchema, value));
  }
  if (problems.length > 0) throw new BadDataFile(file, problems);
  return demonstrations;
}

function* jsonLines(text: string, problems: string[]): Generator<{ line: number; value: unknown }> {
  const lines = text.split('\n');
  for (const [index, content] of lines.entries()) {
    if (content.trim() === '') continue;
    let value: unknown;
    try {
      value = JSON.parse(content);
    } catch {
      const cutOff =
        index === lines.length - 1
          ? ' (the file seems cut off: its last line does not end with a line break)'
          : '';
      problems.push(`line ${index + 1}: not JSON${cutOff}`);
      continue;
    }
    yield { line: index + 1, value };
  }
}

function describe(line: number, error: z.ZodError, schema: z.ZodType, value: unknown): string[] {
  return issueProblems(error.issues, schema, value).map((problem) => `line ${line}: ${inOneLine(problem)}`);
}

function withoutUndefined(value: z.infer<typeof demonstrationSchema>): Demonstration {
  return JSON.parse(JSON.stringify(value)) as Demonstration;
}
