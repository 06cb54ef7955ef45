import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { malformedCall, unwritableDemonstrations } from '../../src/data/demonstration-format.js';
import { refuseBadFiles } from '../../src/data/dataset-validation.js';
import { type BadDataFile, parseDemonstrations } from '../../src/data/task-file.js';
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { toolFormatNames } from '../../src/spec/tool-format-names.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { Demonstration } from '../../src/spec/records/task.js';
import { scratchFolder } from '../support/scratch-folder.js';

const demonstration = (kind: string, content: string): Demonstration => ({
  ...{ kind, task_key: 't', env_key: 'e' },
  messages: [
    { role: 'user', content: 'q' },
    { role: 'assistant', content },
  ],
});
const call = '<tool_call>{"name":"f","arguments":{"id":1.0}}</tool_call>';
const cut = '<tool_call>{"name":"f",</tool_call>';
const warm_start = [{ demonstrations: 'good' }, { demonstrations: 'bad' }] as RunSpec['warm_start'];

test.each(toolFormatNames)(
  'demonstrations that cannot be written in the format %s are refused, by phase',
  (name) => {
    const demonstrations = [
      ['good', call],
      ['bad', call],
      ['bad', cut],
      ['bad', cut],
      ['unused', cut],
    ].map(([kind = '', content = '']) => demonstration(kind, content));
    const demonstrationsByKind = new Map([
      ['good', [0]],
      ['bad', [1, 2, 3]],
      ['unused', [4]],
    ]);
    const dataset = { demonstrations, demonstrationsByKind, tools: {} };
    const problem = `message 2 of the demonstration of t cannot be written with the calls of ${name}: its call is malformed: the tool call is not valid JSON; 1 more cannot be written either`;
    const fix = 'correct or remove them, or set generator.tool_format: hermes';
    expect(unwritableDemonstrations({ warm_start }, toolFormat(name), dataset)).toEqual(
      // Demonstrations are in Hermes' format already.
      name === 'hermes' ? [] : [{ path: 'warm_start[1].demonstrations', problem, fix }],
    );
  },
);

describe('a demonstration file', () => {
  const line = (...calls: string[]): string =>
    `${JSON.stringify({
      kind: 'teacher',
      messages: calls.flatMap((content) => [
        { role: 'user', content: 'go on' },
        { role: 'assistant', content },
      ]),
    })}\n`;
  const good = '<tool_call>{"name": "refund", "arguments": {}}</tool_call>';
  const problems = (text: string) => {
    try {
      return parseDemonstrations(text, 'd', malformedCall).length;
    } catch (error) {
      return (error as BadDataFile).problems;
    }
  };

  it('with a malformed call is refused, with its line', () => {
    const bad = '<tool_call>{"name": "refund" "arguments": {}}</tool_call>';
    expect(problems(line(good) + line(good, bad))).toEqual([
      'line 2: messages[3].content has a malformed call: the tool call is not valid JSON',
    ]);
  });

  it('may have plain text, well-formed calls, and tags within the arguments of a format without tags', () => {
    expect(problems(line('Done. <done>', good) + line('<function=refund></function>'))).toBe(2);
    expect(problems(line('[TOOL_CALLS][{"name": "say", "arguments": {"text": "<tool_call>"}}]'))).toBe(1);
  });
});

test('a spec is refused by itself if a demonstration names an environment that it does not list', async () => {
  const folder = scratchFolder();
  const write = (name: string, rows: object[]): string => {
    writeFileSync(join(folder, name), rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    return join(folder, name);
  };
  const task = { env_key: 'crm', prompt: 'p' };
  const { messages } = demonstration('teacher', call);
  const spec = parseRunSpec({
    name: 'shown',
    model: { name: 'm', path: '/m' },
    data: {
      tasks: write('tasks.jsonl', [
        { ...task, task_key: 'a' },
        { ...task, task_key: 'b', split: 'held_out' },
      ]),
      demonstrations: write('shown.jsonl', [{ kind: 'teacher', env_key: 'shop', messages }]),
      ...{ eval_tasks: 1, final_eval_tasks: 1 },
    },
    environments: [{ env_key: 'crm' }],
    trainer: { max_training_steps: 1 },
  });
  await expect(refuseBadFiles(spec)).rejects.toThrow(
    'demonstrations name the environment "shop", which is not listed',
  );
});
