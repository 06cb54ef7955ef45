// Answers of endpoints, read as the turn that a policy would have written.
import { describe, expect, test } from 'vitest';
import { readReply } from '../../../src/data/preparation/teacher/chat-reply.js';

const usage = { prompt_tokens: 100, completion_tokens: 10 };
const read = (message: object) => readReply(JSON.stringify({ choices: [{ message }], usage }));
const call = '{"name": "refund", "arguments": {"order": 17}}';
const tagged = `<tool_call>${call}</tool_call>`;

describe('an answer', () => {
  test.each<[string, object, string]>([
    ['that is text', { content: 'Done. <done>' }, 'Done. <done>'],
    [
      'in parts',
      {
        content: [
          { type: 'text', text: 'Do' },
          { type: 'text', text: 'ne. <done>' },
        ],
      },
      'Done. <done>',
    ],
    [
      'with reasoning beside it',
      {
        content: [
          { type: 'reasoning', text: 'Hm.' },
          { type: 'text', text: 'Done. <done>' },
        ],
        reasoning_content: 'Hm.',
      },
      'Done. <done>',
    ],
    [
      'with a tool call',
      {
        content: null,
        tool_calls: [
          { id: 'c1', type: 'function', function: { name: 'refund', arguments: '{"order": 17}' } },
        ],
      },
      tagged,
    ],
    [
      'with a tool call whose numbers stay as they were written',
      {
        content: 'I look.',
        tool_calls: [{ function: { name: 'get', arguments: '{"id": 1915883588174806058}' } }],
      },
      'I look.\n<tool_call>{"name": "get", "arguments": {"id": 1915883588174806058}}</tool_call>',
    ],
    [
      'with arguments as an object',
      { tool_calls: [{ function: { name: 'refund', arguments: { order: 17 } } }] },
      '<tool_call>{"name": "refund", "arguments": {"order":17}}</tool_call>',
    ],
    [
      'with arguments that are a list',
      { tool_calls: [{ function: { name: 'list', arguments: [1] } }] },
      '<tool_call>{"name": "list", "arguments": "[1]"}</tool_call>',
    ],
    [
      'with arguments that are null as text',
      { tool_calls: [{ function: { name: 'list', arguments: 'null' } }] },
      '<tool_call>{"name": "list", "arguments": {}}</tool_call>',
    ],
    [
      'with a call without arguments',
      { tool_calls: [{ function: { name: 'list', arguments: '' } }] },
      '<tool_call>{"name": "list", "arguments": {}}</tool_call>',
    ],
    [
      'with arguments that are broken',
      { tool_calls: [{ function: { name: 'list', arguments: '{"a' } }] },
      '<tool_call>{"name": "list", "arguments": "{\\"a"}</tool_call>',
    ],
    [
      'with OpenAI’s older call',
      { content: null, function_call: { name: 'refund', arguments: '{"order": 17}' } },
      tagged,
    ],
    [
      'with a call in a code block',
      { content: `I refund.\n\`\`\`json\n${call}\n\`\`\`` },
      `I refund.\n${tagged}`,
    ],
    [
      'with a code block in the tags',
      { content: `<tool_call>\n\`\`\`json\n${call}\n\`\`\`\n</tool_call>` },
      `<tool_call>\n\`\`\`json\n${call}\n\`\`\`\n</tool_call>`,
    ],
    [
      'with a call in a code block and words behind it',
      { content: `Here: \`\`\`json\r\n${call}\`\`\`\nOne moment.` },
      `Here: ${tagged}\nOne moment.`,
    ],
    [
      'with a list of calls in a code block',
      { content: `\`\`\`\n[${call}, ${call}]\n\`\`\`` },
      `<tool_call>[${call}, ${call}]</tool_call>`,
    ],
    ['that is JSON with a name', { content: '{"name": "Ada"} <done>' }, '{"name": "Ada"} <done>'],
    ['that is nothing but JSON with a name', { content: '{"name": "Ada"}' }, '{"name": "Ada"}'],
    ['with a code block that does not end', { content: `\`\`\`json\n${call}` }, `\`\`\`json\n${call}`],
    ['with code within a line', { content: 'Run ```ls``` first. <done>' }, 'Run ```ls``` first. <done>'],
    ['with the tags in a code block', { content: `\`\`\`\n${tagged}\n\`\`\`` }, tagged],
    ['that is a call and nothing else', { content: call }, tagged],
    ['that is in a code block', { content: '```text\nIt is 41. <done>\n```' }, 'It is 41. <done>'],
    [
      'that is in a code block before its end',
      { content: '```\nIt is 41.\n```\n<done>' },
      'It is 41. <done>',
    ],
    [
      'with code in it',
      { content: 'See:\n```js\nf({"name": 1})\n```\n<done>' },
      'See:\n```js\nf({"name": 1})\n```\n<done>',
    ],
    [
      'with a block that is only thought of',
      { content: `<think>\n\`\`\`json\n${call}\n\`\`\`\n</think>\nNo. <done>` },
      `<think>\n\`\`\`json\n${call}\n\`\`\`\n</think>\nNo. <done>`,
    ],
    ['without words', { content: null }, ''],
  ])('%s', (_, message, text) => {
    expect(read(message)).toEqual({ text, tokens: { prompt: 100, completion: 10 } });
  });

  test('keeps the numbers of its arguments, and its counts may be 100.0', () => {
    const json = '{"id":1915883588174806058,"v":1.0}';
    const message = `{"tool_calls":[{"function":{"name":"get","arguments":${json}}}]}`;
    const counts = '{"prompt_tokens":100.0,"completion_tokens":10}';
    expect(readReply(`{"choices":[{"message":${message}}],"usage":${counts}}`)).toEqual({
      text: `<tool_call>{"name": "get", "arguments": ${json}}</tool_call>`,
      tokens: { prompt: 100, completion: 10 },
    });
  });

  test.each([
    ['blanks in a code block', `\`\`\`\n${' '.repeat(2_000_000)}x`],
    ['blanks in the tags', `<tool_call>\`\`\`\n${' '.repeat(2_000_000)}x`],
    ['blanks behind a code block', `\`\`\`\nx\n\`\`\`${' '.repeat(2_000_000)}x`],
    ['line breaks', `\`\`\`\n${'\n'.repeat(2_000_000)}x`],
    ['code blocks', '```\n'.repeat(500_000)],
    ['words of a language', `\`\`\`${'a'.repeat(2_000_000)}`],
  ])('of two megabytes is read at once: %s', (_, content) => {
    const began = performance.now();
    expect(read({ content })).toMatchObject({ text: content });
    expect(performance.now() - began).toBeLessThan(5_000);
  });

  test('may count all tokens instead of those of the answer', () => {
    const usage = '{"prompt_tokens":100,"total_tokens":110}';
    expect(readReply(`{"choices":[{"message":{"content":"x"}}],"usage":${usage}}`)).toMatchObject({
      tokens: { prompt: 100, completion: 10 },
    });
  });

  test.each([
    ['<html>502</html>', /not JSON/],
    ['{"choices": []}', /^does not answer as a chat endpoint: \{"choices": \[\]\}$/],
    ['{"error": {"message": "overloaded", "code": 529}}', /^answers with an error: overloaded$/],
    ['{"error": "overloaded", "choices": []}', /^answers with an error: overloaded$/],
    ['{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":1}}', /does not count tokens/],
    ['{"choices": [{"message": {"content": "x"}}]}', /does not count tokens/],
  ])('%s is named as what it is', (text, problem) => {
    expect(readReply(text)).toMatchObject({ problem: expect.stringMatching(problem) as string });
  });
});
