// A model that goes astray repeats a mark until its turn is full. Such a turn must not hold up the process.
import { describe, expect, test } from 'vitest';
import { toolFormat } from '../../../src/episode/tool-formats/tool-format.js';
import { actionOf } from '../../../src/episode/turn-action.js';
import { toolFormatNames } from '../../../src/spec/tool-format-names.js';

const tools = [
  {
    name: 'f',
    description: '',
    input_schema: { type: 'object' as const, properties: { a: { type: 'integer' }, b: {} } },
  },
];

const units = [
  ...[
    '<tool_call>',
    '<tool_call>{',
    '<tool_call>{"',
    '<tool_call>{"\\',
    '<tool_call>{\\"',
    '<tool_call>{"a":"',
  ],
  ...[
    '<tool_call>[',
    '<tool_call>[{',
    '<tool_call>{}',
    '<tool_call>{}x',
    '<tool_call>{}\n',
    '<function_call>{',
  ],
  ...[
    '<function=',
    '<function=f>',
    '<function=f',
    '<function=f></tool_call>',
    '<tool_call><function=f><parameter=a>',
  ],
  ...['<function=f><parameter=b>', '<function=f><parameter=b></parameter>x', '<function=f>\n<parameter=b>\n'],
  ...['<tool_call><function=f></parameter>', '<tool_call><function=f><parameter=a>\n1\n</parameter>'],
  ...['[TOOL_CALLS]', '[TOOL_CALLS]{', '[TOOL_CALLS][', '[TOOL_CALLS]f', '[TOOL_CALLS]f[CALL_ID] '],
  ...['[TOOL_CALLS]f[ARGS]{', '[ARGS]', '{\n', '[\n', '{"a":\n', '{"a":[\n', '{"name":"f","parameters":\n'],
  ...['{"name":"f"\n', '{}\n', '{};', '<|python_tag|>', '<|python_tag|>{', '"\n{', '\\"\n{', '\n{"'],
  ...['<|start|>', '<|channel|>', '<|channel|>analysis', '<|message|>', '<|end|>', ' to=', '<|call|>'],
  ...['<think>', '</think>', '<think></think>', '[THINK]', '<done>', '[done]', ' ', '\n', '\t{', '```'],
];
const ends = ['', '</parameter></function></tool_call>'];
const few = 4_000;

/** Milliseconds of processor time: other processes do not count. */
function duration(read: () => unknown): number {
  const begun = process.cpuUsage();
  read();
  return process.cpuUsage(begun).user / 1000;
}

/** A collection of garbage is in some measurements, and not in the shortest. */
const leastOf = (read: () => unknown): number => Math.min(...[1, 2, 3].map(() => duration(read)));

describe.each(toolFormatNames)('a turn of %s', (name) => {
  const read = (text: string) => (): unknown =>
    actionOf(text, toolFormat(name), { opensThinking: false, tools });

  test('of four times as many marks takes about four times as long to read', () => {
    for (const unit of units)
      for (const end of ends) {
        const long = duration(read(unit.repeat(4 * few) + end));
        // A fast one shows nothing: its time is noise.
        if (long < 300) continue;
        const growth = leastOf(read(unit.repeat(4 * few) + end)) / leastOf(read(unit.repeat(few) + end));
        expect([unit, end, growth < 10]).toEqual([unit, end, true]);
      }
  });
});
