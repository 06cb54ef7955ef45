// Data files from users: all problems are reported together, each with its line.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BadDataFile, parseDemonstrations, parseTasks } from '../../src/data/task-file.js';

const task = (key: string): Record<string, unknown> => ({
  task_key: key,
  prompt: 'Do it.',
  env_key: 'tracker',
});
const jsonl = (items: readonly unknown[]): string =>
  items.map((item) => `${JSON.stringify(item)}\n`).join('');

function problemsOf(text: string): readonly string[] {
  try {
    parseTasks(text, 'tasks.jsonl');
  } catch (error) {
    if (error instanceof BadDataFile) return error.problems;
    throw error;
  }
  return [];
}

describe('a task file', () => {
  it('fills in defaults for the keys that a line leaves out', () => {
    expect(parseTasks(jsonl([task('a')]), 'tasks.jsonl')).toEqual([
      { ...task('a'), env_variables: {}, difficulty: 1, template: 'tracker', split: 'train' },
    ]);
  });

  it('may have blank lines, Windows line ends, and no line feed at the end', () => {
    const text = `${JSON.stringify(task('a'))}\r\n\r\n${JSON.stringify(task('b'))}`;
    expect(parseTasks(text, 'tasks.jsonl').map(({ task_key }) => task_key)).toEqual(['a', 'b']);
  });

  it('reports a duplicate key with both lines', () => {
    expect(problemsOf(jsonl([task('a'), task('b'), task('a')]))).toEqual([
      'line 3: task_key "a" is already used in line 1; keys must be unique',
    ]);
  });

  it('that was cut off is reported at its last line', () => {
    const text = jsonl([task('a'), task('b')]);
    expect(problemsOf(text.slice(0, -20))).toEqual([
      'line 2: not JSON (the file seems cut off: its last line does not end with a line break)',
    ]);
  });

  it('reports every bad line, including mistyped keys', () => {
    const text = `${jsonl([task('a'), { ...task('b'), promt: 'x' }, { ...task('c'), split: 'test' }])}{"task_key":\n[]\n`;
    const found = problemsOf(text);
    expect(found.map((problem) => problem.slice(0, 6))).toEqual(['line 2', 'line 3', 'line 4', 'line 5']);
    expect(found[0]).toContain('promt');
    expect(found[1]).toContain('split');
    expect(found[2]).toBe('line 4: not JSON');
  });

  it('says for each bad line what is expected and what was found', () => {
    const bad = [{ ...task('a'), prompt: 5 }, { ...task('b'), promt: 'x' }, { prompt: 'x', env_key: 'y' }, 7];
    expect(problemsOf(jsonl([...bad, { ...task('c'), split: 'heldout' }]))).toEqual([
      'line 1: prompt must be text, not 5',
      'line 2: there is no key "promt"; did you mean prompt?',
      'line 3: task_key is missing',
      'line 4: it must be a mapping of keys to values, not 7',
      'line 5: split must be "train" or "held_out", not "heldout"; did you mean "held_out"?',
    ]);
  });

  it('without a task says what it must contain', () => {
    expect(problemsOf('\n')).toEqual(['the file has no task; write one JSON object per line']);
  });

  it('shows the first twenty problems and counts the others', () => {
    const error = (() => {
      try {
        return parseTasks(
          jsonl(Array.from({ length: 50 }, (_, n) => ({ ...task('a'), [`x${n}`]: 1 }))),
          'tasks.jsonl',
        );
      } catch (thrown) {
        return thrown;
      }
    })();
    expect(error).toBeInstanceOf(BadDataFile);
    const lines = (error as BadDataFile).message.split('\n');
    expect(lines[0]).toBe('tasks.jsonl is not usable:');
    expect(lines).toHaveLength(22);
    expect(lines.at(-1)).toBe('  … and 30 more');
  });

  it('is either parsed or refused with its lines, whatever it contains', () => {
    const line = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.json(),
      fc
        .record({ task_key: fc.string(), prompt: fc.string(), env_key: fc.string() })
        .map((value) => JSON.stringify(value)),
      fc.constantFrom('{"__proto__":{"task_key":"a"}}', '{"task_key":"a","task_key":"b"}', 'null', '-', '[['),
    );
    fc.assert(
      fc.property(fc.array(line), (lines) => {
        const text = lines.join('\n');
        for (const parse of [parseTasks, parseDemonstrations]) {
          try {
            const items = parse(text, 'data.jsonl');
            expect(items.length).toBeLessThanOrEqual(text.split('\n').length);
          } catch (error) {
            if (!(error instanceof BadDataFile)) throw error;
            expect(error.problems.length).toBeGreaterThan(0);
          }
        }
      }),
      { numRuns: 300 },
    );
  });

  it('is the same after writing and parsing', () => {
    const text = fc.string({ minLength: 1, maxLength: 30 });
    const wellFormed = fc.record({
      task_key: text,
      prompt: text,
      env_key: text,
      env_variables: fc.dictionary(
        text.filter((name) => name !== '__proto__'),
        fc.string(),
      ),
      difficulty: fc.integer({ min: 1, max: 9 }),
      template: text,
      split: fc.constantFrom('train', 'held_out'),
    });
    fc.assert(
      fc.property(
        fc.uniqueArray(wellFormed, { selector: ({ task_key }) => task_key, minLength: 1, maxLength: 8 }),
        (tasks) => {
          expect(JSON.stringify(parseTasks(jsonl(tasks), 'tasks.jsonl'))).toBe(JSON.stringify(tasks));
        },
      ),
      { numRuns: 200 },
    );
  });
});

describe('a demonstration file', () => {
  it('may be empty, and reports bad lines', () => {
    expect(parseDemonstrations('', 'demonstrations.jsonl')).toEqual([]);
    const messages = [{ role: 'user', content: 'hi' }];
    expect(() => parseDemonstrations(jsonl([{ kind: 'drill', messages }]), 'demonstrations.jsonl')).toThrow(
      /demonstrations\.jsonl is not usable:\n {2}line 1: messages/,
    );
    expect(() =>
      parseDemonstrations(
        jsonl([{ kind: 'drill', messages: [...messages, { role: 'asistant', content: '' }] }]),
        'd',
      ),
    ).toThrow(/line 1: messages\[1\].role must be .*did you mean "assistant"/);
  });

  it.each([
    [['assistant', 'user'], /line 1: messages\[0\].role must be user/],
    [['user', 'tool', 'assistant'], /line 1: messages\[1\].role must be assistant/],
    [['user', 'assistant', 'assistant'], /line 1: messages\[2\].role must be user or tool/],
  ])('with the turns %j reports the first turn out of order', (roles, message) => {
    const messages = roles.map((role) => ({ role, content: 'x' }));
    expect(() => parseDemonstrations(jsonl([{ kind: 'drill', messages }]), 'd')).toThrow(message);
  });

  it('may end with either kind of turn', () => {
    const messages = ['user', 'assistant', 'tool', 'assistant', 'user'].map((role) => ({
      role,
      content: 'x',
    }));
    expect(parseDemonstrations(jsonl([{ kind: 'drill', messages }]), 'd')).toEqual([
      { kind: 'drill', messages },
    ]);
  });
});
