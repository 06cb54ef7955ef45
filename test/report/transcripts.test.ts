import { describe, expect, test } from 'vitest';
import { transcriptViewer } from '../../src/report/transcript-viewer.js';
import { pickTranscripts, readableResult, segmentsOf, toTranscript } from '../../src/report/transcripts.js';
import { decodeWith, episodeOf } from './recorded-run.js';

const passed = episodeOf('t1', { status: 'graded', value: 1 });
const call = '{"name":"close_issue","arguments":{"id":"ISS-1"}}';

describe('an episode reads as a conversation', () => {
  test('without the marks of the chat template', () => {
    const transcript = toTranscript(passed, decodeWith('Close ISS-1.', call, 'Tool result:\n{"ok":true}'));
    expect(transcript).toMatchObject({ verdict: 'pass', request: 'Close ISS-1.', turns: 2 });
    expect(transcript.messages).toEqual([
      { role: 'system', text: 'Call one tool a turn.' },
      { role: 'user', text: 'Close ISS-1.' },
      { role: 'assistant', text: `<tool_call>${call}</tool_call>` },
      { role: 'environment', text: 'Tool result:\n{"ok":true}' },
      { role: 'assistant', text: '<done>' },
    ]);
  });

  test('whose template is another one: as it is', () => {
    const plain = toTranscript(passed, (tokens) => `<|turn|>${tokens.join(' ')}`);
    expect(plain.messages.map((message) => message.text)).toEqual(['1 2 3', '4 5', '6', '7']);
  });
});

describe('a turn is taken apart', () => {
  test('into words, calls and the end', () => {
    expect(segmentsOf(`I look.<tool_call>${call}</tool_call><done>`)).toEqual([
      { kind: 'text', text: 'I look.' },
      { kind: 'call', name: 'close_issue', arguments: [['id', '"ISS-1"']] },
      { kind: 'done' },
    ]);
  });

  test.each(['{"name":', '[]', '{"arguments":{}}', '17'])('and %s is no call', (body) => {
    expect(segmentsOf(`<tool_call>${body}</tool_call>`)).toEqual([{ kind: 'malformed', text: body }]);
  });

  test('also where the closing tag was not sampled', () => {
    expect(segmentsOf(`<tool_call>${call}`)).toMatchObject([{ kind: 'call', name: 'close_issue' }]);
  });
});

test('rows of a result stand on lines of their own; what is no JSON stays', () => {
  const issues = Array.from({ length: 3 }, (_, id) => ({ id, title: 'a title that takes some room' }));
  expect(readableResult(JSON.stringify({ issues })).split('\n')).toHaveLength(7);
  expect(readableResult('{"ok":true}')).toBe('{ "ok": true }');
  expect(readableResult('No tool call found {')).toBe('No tool call found {');
});

test('failures come first, and environments take turns', () => {
  const episodes = ['a', 'a', 'a', 'b'].map((env_key, slot) => ({
    ...episodeOf(`${env_key}${slot}`, { status: 'graded', value: 0 }),
    env_key,
  }));
  const picked = pickTranscripts([passed, ...episodes], 2);
  expect(picked.map((episode) => episode.task_key)).toEqual(['a0', 'b3', 't1']);
});

test('nothing of an episode becomes markup', () => {
  const hostile = '<script>alert(1)</script><img src=x onerror=alert(2)>\'"';
  const unknown = { ...episodeOf(hostile, { status: 'unknown', reason: hostile, failures: 1 }) };
  const texts = [
    decodeWith(hostile, JSON.stringify({ name: hostile, arguments: { [hostile]: hostile } }), hostile),
    decodeWith(hostile, hostile, `Error: {"error":${JSON.stringify(hostile)}}`),
  ];
  const html = transcriptViewer(texts.map((decode) => toTranscript(unknown, decode)));
  expect(html).toContain('&lt;script&gt;');
  expect(html).not.toMatch(/<script|<img|onerror=alert\(2\)>/);
});
