// How an error explains a required key that the input lacks.
import { expect, test } from 'vitest';
import { z } from 'zod';
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
