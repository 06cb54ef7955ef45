import { expect, test } from 'vitest';
import { unwritableDemonstrations } from '../../src/data/demonstration-format.js';
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import { toolFormatNames } from '../../src/spec/tool-format-names.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { Demonstration } from '../../src/spec/records/task.js';

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
