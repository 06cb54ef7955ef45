import { describe, expect, test } from 'vitest';
import { finalAnswerOf, parseToolCall, saysDone } from '../../src/episode/tool-call-parser.js';

const close = { kind: 'call', call: { name: 'close_issue', arguments: { id: 'ISS-7Q2K' } } };

describe('a tool call', () => {
  test.each([
    '<tool_call>{"name":"close_issue","arguments":{"id":"ISS-7Q2K"}}</tool_call>',
    'I will close it.\n<tool_call>\n{"tool": "close_issue", "params": {"id": "ISS-7Q2K"}}\n</tool_call> <done>',
    '<function_call>{"name":"close_issue","arguments":{"id":"ISS-7Q2K"}}</function_call>',
    '<tool_call>{"name":"close_issue","arguments":{"id":"ISS-7Q2K"}}',
    '<tool_call>{"name":"close_issue","arguments":{"id":"ISS-7Q2K"}}<|im_end|>',
    '<tool_call>nonsense</tool_call><function_call>{"name":"close_issue","arguments":{"id":"ISS-7Q2K"}}</function_call>',
  ])('is parsed from %j', (text) => expect(parseToolCall(text)).toEqual(close));

  test('may leave its arguments out', () =>
    expect(parseToolCall('<tool_call>{"name":"x"}</tool_call>')).toEqual({
      kind: 'call',
      call: { name: 'x', arguments: {} },
    }));

  test('is the first call if a turn has several', () =>
    expect(
      parseToolCall('<tool_call>{"name":"a"}</tool_call><tool_call>{"name":"b"}</tool_call>'),
    ).toMatchObject({
      call: { name: 'a' },
    }));

  test.each([
    ['<tool_call>{"name":</tool_call>', /not valid JSON/],
    ['<tool_call>[1]</tool_call>', /must be a JSON object/],
    ['<tool_call>{"arguments":{}}</tool_call>', /no "name"/],
    ['<tool_call>{"name":"x","arguments":[]}</tool_call>', /"arguments"/],
  ])('%j is malformed, and the model gets the reason', (text, problem) => {
    const parsed = parseToolCall(text);
    expect(parsed.kind === 'malformed' && parsed.problem).toMatch(problem);
  });

  test('needs a tag', () => expect(parseToolCall('{"name":"x"}')).toEqual({ kind: 'none' }));
});

test('both forms of the end are recognised, in upper or lower case', () => {
  for (const text of ['<done>', 'All set. <DONE>', '[Done]']) expect(saysDone(text)).toBe(true);
  expect(saysDone('done')).toBe(false);
});

test('the final answer is the text without markers', () => {
  expect(finalAnswerOf('The total is 7. <done><|im_end|>')).toBe('The total is 7.');
  expect(finalAnswerOf('<tool_call>{"name":"x"}</tool_call>')).toBe('');
});
