// How an error explains a required key that the input lacks.
import { expect, test } from 'vitest';
import { z } from 'zod';
import { InvalidSpec } from '../../src/spec/invalid-spec.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { inOneLine, issueProblems } from '../../src/spec/spec-issues.js';

test.each([
  [
    '[the folder](guide/own-model.md); excludes [`url`](#model)',
    'model.path is missing; it says: the folder; excludes `url`',
  ],
  ['one of [0, 1] (both count)', 'model.path is missing; it says: one of [0, 1] (both count)'],
])(
  'a missing key is explained by its description, with links replaced by their text: %s',
  (description, line) => {
    const schema = z.strictObject({ model: z.strictObject({ path: z.string().describe(description) }) });
    const input = { model: {} };
    const { error } = schema.safeParse(input);
    expect(issueProblems(error?.issues ?? [], schema, input).map(inOneLine)).toEqual([line]);
  },
);

const sound = {
  name: 'run',
  model: { name: 'm', path: '/models/m' },
  data: { tasks: '/data/tasks.jsonl' },
  environments: [{ env_key: 'crm', url: 'http://10.0.0.5:8000' }],
  trainer: { max_training_steps: 10 },
};
const problemsOf = (change: object): string[] => {
  try {
    parseRunSpec({ ...sound, ...change });
  } catch (error) {
    if (error instanceof InvalidSpec) return error.problems.map(inOneLine);
    throw error;
  }
  return [];
};

test.each<[unknown, string[]]>([
  [{ enable_thinking: false, reasoning_effort: 'low', budget: 512 }, []],
  [{ effort: 'none' }, []],
  [{ a: null }, ['.a must be text or a number or true or false, not null']],
  [{ a: [1] }, ['.a must be text or a number or true or false, not [1]']],
  [
    { 'enable-thinking': false },
    [
      '.enable-thinking is not a name of a template’s variable; did you mean generator.chat_template_kwargs.enable_thinking?',
    ],
  ],
  [{ '1st': 1 }, ['.1st is not a name of a template’s variable']],
  [[], [' must be a mapping of keys to values, not []']],
  ['enable_thinking', [' must be a mapping of keys to values, not "enable_thinking"']],
  ...['false', 'True', ' FALSE '].map((text): [unknown, string[]] => [
    { enable_thinking: text },
    ['.enable_thinking is text, which a template takes for true: write it without quotation marks'],
  ]),
])('chat_template_kwargs %j are checked in words', (chat_template_kwargs, problems) => {
  expect(problemsOf({ generator: { chat_template_kwargs } })).toEqual(
    problems.map((problem) => `generator.chat_template_kwargs${problem}`),
  );
});

test('a value that is a number or true is not suggested as the text that was given', () => {
  const environment = (no_call: unknown) => ({ environments: [{ ...sound.environments[0], no_call }] });
  expect(problemsOf(environment('0'))).toEqual([
    'environments[0].no_call must be 0 or "unknown", not "0"; write 0 without quotation marks',
  ]);
  expect(problemsOf(environment('unknwon'))).toEqual([
    'environments[0].no_call must be 0 or "unknown", not "unknwon"; did you mean "unknown"?',
  ]);
});
