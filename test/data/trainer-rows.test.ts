// Rows of other trainers are tasks where their meaning is certain; else there is one message for each kind of row.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { readSource } from '../../src/data/data-source.js';
import { BadDataFile, parseDemonstrations, parseTasks } from '../../src/data/task-file.js';
import { scratchFolder } from '../support/scratch-folder.js';

const tasksOf = (...rows: unknown[]) =>
  parseTasks(rows.map((row) => `${JSON.stringify(row)}\n`).join(''), 'tasks.jsonl');
function problemsOf(rows: readonly unknown[]): readonly string[] {
  try {
    tasksOf(...rows);
  } catch (error) {
    if (error instanceof BadDataFile) return error.problems;
    throw error;
  }
  return [];
}
const ask = (content: unknown) => [{ role: 'user', content }];
const own = { task_key: 'a', env_key: 'crm', prompt: 'Refund order 17.' };

describe('a row is a task', () => {
  test.each<[string, object, object]>([
    ['with its prompt as one message', { ...own, prompt: ask('Hello.') }, { prompt: 'Hello.' }],
    [
      'with its prompt in parts',
      {
        ...own,
        prompt: ask([
          { type: 'text', text: 'Hel' },
          { type: 'text', text: 'lo.' },
        ]),
      },
      { prompt: 'Hello.' },
    ],
    ['with its prompt as JSON text', { ...own, prompt: JSON.stringify(ask('Hello.')) }, { prompt: 'Hello.' }],
    [
      'with a prompt that begins like a list',
      { ...own, prompt: '[{"a": 1}] is what?' },
      { prompt: '[{"a": 1}] is what?' },
    ],
    ['with a list of other things', { ...own, prompt: '[{"a": 1}]' }, { prompt: '[{"a": 1}]' }],
    [
      'with a column version beside an answer',
      { ...own, env_version: '1', answer: '42' },
      { ...own, env_version: '1', reset: { answer: '42' } },
    ],
    [
      'with key for task_key, and an answer',
      { key: 'a', env_key: 'crm', prompt: 'x', answer: '42' },
      { task_key: 'a', reset: { answer: '42' } },
    ],
    [
      'of SkyRL Fleet Training’s prepared files',
      { prompt: ask('Hello.'), env_class: 'fleet_task', task_key: 'k', data_source: 'github' },
      { task_key: 'k', env_key: 'github', prompt: 'Hello.', split: 'train' },
    ],
    [
      'of verl',
      {
        data_source: 'openai/gsm8k',
        prompt: ask('1+1?'),
        ability: 'math',
        reward_model: { style: 'rule', ground_truth: '2' },
        extra_info: { split: 'test', index: 7 },
      },
      {
        task_key: 'openai/gsm8k/test/7',
        env_key: 'openai/gsm8k',
        prompt: '1+1?',
        split: 'held_out',
        reset: {
          reward_model: { style: 'rule', ground_truth: '2' },
          extra_info: { split: 'test', index: 7 },
        },
      },
    ],
    [
      'of SkyRL Gym',
      {
        data_source: 'x',
        env_class: 'gsm8k',
        prompt: ask('1+1?'),
        reward_spec: { method: 'rule', ground_truth: '2' },
        extra_info: { split: 'train', index: 0 },
      },
      { task_key: 'gsm8k/train/0', env_key: 'gsm8k', split: 'train' },
    ],
    [
      'of questions with names of its own',
      { task_key: 'q1', env_key: 'math', question: '1+1?', answer: '2' },
      { prompt: '1+1?', reset: { answer: '2' } },
    ],
    [
      'with columns beside its own keys, none of which is lost',
      { ...own, id: 5, data_source: 'x', answer: '2', reset: { level: 1 } },
      { ...own, reset: { id: 5, data_source: 'x', answer: '2', level: 1 } },
    ],
    [
      'with a number as its key among the extra columns',
      { prompt: 'x', data_source: 'crm', extra_info: { task_key: 17, split: 'train' } },
      { task_key: '17', env_key: 'crm', split: 'train' },
    ],
    [
      'whose variables are numbers and booleans',
      { ...own, env_variables: { LIMIT: 5, RATE: 0.5, IS_ADMIN: true, NAME: 'Ada' } },
      { env_variables: { LIMIT: '5', RATE: '0.5', IS_ADMIN: 'true', NAME: 'Ada' } },
    ],
  ])('%s', (_, row, task) => {
    expect(tasksOf(row)).toEqual([expect.objectContaining(task)]);
  });

  // As JSON text: JavaScript would not write these numbers so.
  test.each([
    ['"id":1915883588174806058', '1915883588174806058'],
    ['"id":1915883588174806058.0', '1915883588174806058'],
    ['"id":3.0', '3'],
    ['"id":-0', '0'],
    ['"id":2e3', '2000'],
    ['"extra_info":{"index":3.0}', 'crm/3'],
    ['"extra_info":{"index":3.0,"split":"test"}', 'crm/test/3'],
    ['"index":1915883588174806058', 'crm/1915883588174806058'],
    ['"id":null,"index":"a7"', 'crm/a7'],
  ])('with the key of its %s', (column, key) => {
    expect(parseTasks(`{"prompt":"x","data_source":"crm",${column}}\n`, 'tasks.jsonl')[0]?.task_key).toBe(
      key,
    );
  });

  test.each([
    ['train', 'train'],
    ['Train', 'train'],
    ['training', 'train'],
    ...['test', 'test_hard', 'val_seen', 'val', 'Validation', 'eval', 'dev', 'held_out', 'trainval', '2'].map(
      (split): [string, string] => [split, 'held_out'],
    ),
    ['', 'train'],
  ])('of the split %j', (split, ours) => {
    const extra_info = { split, index: 0 };
    expect(tasksOf({ prompt: 'x', data_source: 'crm', extra_info })[0]?.split).toBe(ours);
  });

  it('also if it is a demonstration with such variables', () => {
    const messages = [...ask('Hello.'), { role: 'assistant', content: 'Hello. <done>' }];
    const text = JSON.stringify({ kind: 'x', env_variables: { LIMIT: 5 }, messages });
    expect(parseDemonstrations(text, 'd.jsonl')[0]?.env_variables).toEqual({ LIMIT: '5' });
  });
});

describe('a number is not taken for an object', () => {
  test.each([
    ['"reset":1.0', 'reset must be a mapping of keys to values, not 1.0'],
    ['"reset":1.0,"answer":"2"', 'reset must be a mapping of keys to values, not 1.0'],
    ['"env_variables":1.0', 'env_variables must be a mapping of keys to values, not 1.0'],
    ['"task_key":1.0,"answer":"2"', 'task_key must be text, not 1.0'],
    [
      '"id":1.5,"data_source":"crm"',
      'it has data_source, id, as rows of other trainers do; give it a task_key',
    ],
  ])('%s', (columns, problem) => {
    const named = columns.includes('_key') || columns.includes('"id"') ? '' : '"task_key":"a",';
    const text = `{"env_key":"crm","prompt":"x",${named}${columns}}\n`;
    expect(() => parseTasks(text, 'tasks.jsonl')).toThrow(`line 1: ${problem}`);
  });
});

describe('twenty rows of one kind have one message', () => {
  const rows = (row: (n: number) => object) => Array.from({ length: 20 }, (_, n) => row(n));
  test.each<[string, (n: number) => object, RegExp]>([
    [
      'questions and answers',
      (n) => ({ question: `What is ${n}?`, answer: String(n) }),
      /^line 1: it has question, answer, as rows of other trainers do; give it a task_key of its own, and the env_key of the environment that grades it \(and 19 more lines, such as line 2\)$/,
    ],
    ['prompts alone', (n) => ({ prompt: ask(`What is ${n}?`) }), /^line 1: .*task_key.*and 19 more lines/],
    [
      'system messages',
      (n) => ({
        ...own,
        task_key: String(n),
        prompt: [{ role: 'system', content: 'You are.' }, ...ask('x')],
      }),
      /^line 1: prompt has a system message.*and 19 more/,
    ],
    [
      'conversations',
      (n) => ({
        ...own,
        task_key: String(n),
        prompt: [...ask('a'), { role: 'assistant', content: 'b' }, ...ask('c')],
      }),
      /prompt has 3 messages; an episode begins with one/,
    ],
    [
      'pictures',
      (n) => ({ ...own, task_key: String(n), prompt: ask([{ type: 'image_url', image_url: {} }]) }),
      /not text/,
    ],
    [
      'other values',
      (n) => ({ ...own, task_key: String(n), prompt: n }),
      /^line 1: prompt must be text, not 0 \(/,
    ],
    [
      'lists as Python writes them',
      (n) => ({ ...own, task_key: String(n), prompt: "[{'role': 'user', 'content': 'Hello.'}]" }),
      /^line 1: prompt is a list of something else than messages/,
    ],
    [
      'rows of Alpaca',
      (n) => ({ instruction: 'Add.', input: String(n), output: '3' }),
      /^line 1: it has instruction, as rows for supervised training do; a task has prompt.*and 19 more/,
    ],
    [
      'conversations of a teacher',
      (n) => ({ messages: ask(String(n)) }),
      /^line 1: it has messages, as rows/,
    ],
    ['rows of preferences', () => ({ chosen: 'a', rejected: 'b' }), /^line 1: it has chosen, as rows/],
    [
      'a version beside our keys',
      (n) => ({ ...own, task_key: String(n), version: '1', answer: '42' }),
      /^line 1: there is no key "version"; keys here: .*env_version/,
    ],
    [
      'keys of Fleet that are spelt otherwise',
      (n) => ({ key: String(n), env_id: 'crm', prompt: 'x', envvariables: {}, created_at: 'x' }),
      /^line 1: there is no key "envvariables"; did you mean env_variables\?/,
    ],
    [
      'mistyped keys',
      (n) => ({ ...own, task_key: String(n), promt: 'x' }),
      /"promt"; did you mean prompt\? \(and/,
    ],
  ])('%s', (_, row, message) => {
    const found = problemsOf(rows(row)).filter((problem) => !problem.includes('env_key is missing'));
    expect(found).toHaveLength(1);
    expect(found[0]).toMatch(message);
  });

  it('and different kinds have their own', () => {
    const mixed = rows((n) =>
      n % 2 === 0 ? { ...own, prompt: n } : { ...own, split: 'test', task_key: String(n) },
    );
    expect(problemsOf(mixed).map((problem) => problem.slice(0, 6))).toEqual(['line 1', 'line 2']);
  });
});

describe('a file of another format is named, with what to do', () => {
  const folder = scratchFolder();
  test.each([
    ['PAR1\x15\x04', /is a Parquet file; write its rows as JSON lines/],
    ['\x1f\x8b\x08', /compressed with gzip; unpack it/],
    ['task_key,prompt,env_key\n1,Do it.,a\n', /is a CSV file; .*pandas\.read_csv/],
    ['task_key\tprompt\n1\t{"a": 1}\n', /is a CSV file/],
    ['version https://git-lfs.github.com/spec/v1\n', /pointer of Git LFS/],
  ])('%j', async (begins, message) => {
    const path = join(folder, 'train.parquet');
    writeFileSync(path, Buffer.from(`${begins}\x00\xff`, 'latin1'));
    await expect(readSource(path, () => undefined)).rejects.toThrow(message);
  });
});
