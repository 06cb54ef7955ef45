import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import {
  chunkScript,
  ChunkWriter,
  inMarkup,
  type FinishedChunk,
  type TranscriptChunk,
} from '../../src/report/transcripts/transcript-chunks.js';
import {
  pickTranscripts,
  readableResult,
  transcriptReader,
} from '../../src/report/transcripts/transcripts.js';
import { cutSegments, segmentsOf as segmentsIn } from '../../src/report/transcripts/turn-segments.js';
import { toolFormat } from '../../src/episode/tool-formats/tool-format.js';
import type { TranscriptCoder } from '../../src/report/transcripts/transcripts.js';
import type { EpisodeRecord } from '../../src/spec/records/episode.js';
import { coderOf, decodeWith, episodeOf } from './recorded-run.js';

const toTranscript = (episode: EpisodeRecord, coder: TranscriptCoder) => transcriptReader(coder)(episode);
const segmentsOf = (text: string) =>
  segmentsIn(text, toolFormat('hermes'), { opensThinking: false, tools: [] });
const passed = episodeOf('t1', { status: 'graded', value: 1 });
const call = '{"name":"close_issue","arguments":{"id":"ISS-1"}}';

describe('an episode reads as a conversation', () => {
  test('without the marks of the chat template', () => {
    const transcript = toTranscript(
      passed,
      coderOf(decodeWith('Close ISS-1.', call, 'Tool result:\n{"ok":true}')),
    );
    expect(transcript).toMatchObject({ verdict: 'pass', request: 'Close ISS-1.', turns: 2 });
    expect(transcript.messages).toMatchObject([
      { role: 'system', text: 'Call one tool a turn.' },
      { role: 'user', text: 'Close ISS-1.' },
      { role: 'assistant', text: `<tool_call>${call}</tool_call>` },
      { role: 'environment', text: 'Tool result:\n{"ok":true}' },
      { role: 'assistant', text: '<done>', segments: [{ kind: 'done' }] },
    ]);
  });

  test.each([
    [1, 'pass'],
    [0.9, 'fail'],
    [0, 'fail'],
  ])('and the reward %d is a %s, as in pass@1', (value, verdict) => {
    expect(toTranscript(episodeOf('t1', { status: 'graded', value }), coderOf(String))).toMatchObject({
      verdict,
    });
  });

  test('and gives the reason of an unknown outcome in the server’s words', () => {
    const unknown = episodeOf('t1', { status: 'unknown', reason: 'grade', failures: 3 });
    const said = { ...unknown, observed: { ...unknown.observed, failure: 'it gave no grade' } };
    expect(toTranscript(unknown, coderOf(String)).reason).toBe('grade');
    expect(toTranscript(said, coderOf(String)).reason).toBe('grade: it gave no grade');
  });

  test('and gives the grader’s explanation with its grade', () => {
    const graded = episodeOf('t1', { status: 'graded', value: 0 });
    const { explanation: _, ...observed } = graded.observed;
    const explanation = 'issues ISS-7Q2K: assignee is "isaac", should be "marco"';
    expect(toTranscript({ ...graded, observed }, coderOf(String)).reason).toBe('reward 0');
    expect(toTranscript({ ...graded, observed: { ...observed, explanation } }, coderOf(String)).reason).toBe(
      `reward 0: ${explanation}`,
    );
  });

  test('and leaves text that the template does not open as it is', () => {
    const plain = toTranscript(
      passed,
      coderOf((tokens) => `<|turn|>${tokens.join(' ')}`),
    );
    const texts = ['1', '4', '6', '7'].map((token) => expect.stringContaining(`<|turn|>${token}`) as string);
    expect(plain.messages.map((message) => message.text)).toEqual(texts);
  });
});

describe('a turn is split', () => {
  test('into text, calls and the end', () => {
    expect(segmentsOf(`I look.<tool_call>${call}</tool_call><done>`)).toEqual([
      { kind: 'text', text: 'I look.' },
      { kind: 'call', name: 'close_issue', arguments: [['id', '"ISS-1"']] },
      { kind: 'done' },
    ]);
  });

  test.each(['{"name":', '[]', '{"arguments":{}}', '17'])(
    'and %s in the tags of a call is not a call',
    (body) => {
      expect(segmentsOf(`<tool_call>${body}</tool_call>`)).toEqual([{ kind: 'malformed', text: body }]);
    },
  );

  test('at the last mark of the end, in time that grows with the text', () => {
    expect(segmentsOf('I say <done> at the end. [done]')).toEqual([
      { kind: 'text', text: 'I say <done> at the end.' },
      { kind: 'done' },
    ]);
    const timed = (times: number): number => {
      const begun = performance.now();
      expect(segmentsOf('<done>'.repeat(times))).toHaveLength(2);
      return performance.now() - begun;
    };
    timed(1000);
    expect(timed(64_000)).toBeLessThan(Math.max(16 * timed(8_000), 500));
  });

  test('even if the closing tag of a call was not sampled', () => {
    expect(segmentsOf(`<tool_call>${call}`)).toMatchObject([{ kind: 'call', name: 'close_issue' }]);
  });
});

test('rows of a result are shown one a line, and text that is not JSON stays unchanged', () => {
  const issues = Array.from({ length: 3 }, (_, id) => ({ id, title: 'a title that takes some room' }));
  expect(readableResult(JSON.stringify({ issues })).split('\n')).toHaveLength(7);
  expect(readableResult('{"ok":true}')).toBe('{ "ok": true }');
  expect(readableResult('No tool call found {')).toBe('No tool call found {');
});

test('numbers of a result are shown as the model has read them', () => {
  const text = '{"id":1915883588174806058,"v":1.0}';
  expect(readableResult(text)).toBe('{ "id": 1915883588174806058, "v": 1.0 }');
  const rows = Array.from({ length: 3 }, () => `{"rate":0.50,"title":"a title that takes some room"}`).join();
  expect(readableResult(`result: {"all":[${rows}],"sum":1.50}`)).toMatch(
    /\{"rate":0\.50,.*\n.*\n[^]*"sum": 1\.50/,
  );
});

test('the segments of an endless turn are cut', () => {
  const call = {
    kind: 'call' as const,
    name: 'say',
    arguments: [['text', 'y'.repeat(500)]] as [string, string][],
  };
  const segments = [{ kind: 'text' as const, text: 'x'.repeat(50) }, call, call, { kind: 'done' as const }];
  const shown = cutSegments(segments, 100);
  expect(JSON.stringify(shown).length).toBeLessThan(400);
  expect(JSON.stringify(shown)).toMatch(/cut: 500 characters.*cut: 2 more parts/);
  expect(cutSegments(segments, 2000)).toEqual(segments);
});

test('failures come first, and environments take turns', () => {
  const episodes = ['a', 'a', 'a', 'b'].map((env_key, slot) => ({
    ...episodeOf(`${env_key}${slot}`, { status: 'graded', value: 0 }),
    env_key,
  }));
  const picked = pickTranscripts([passed, ...episodes], 2);
  expect(picked.map((episode) => episode.task_key)).toEqual(['a0', 'b3', 't1']);
});

describe('transcripts are written to chunks', () => {
  const hostile = '</script><script>alert(1)</script>\u2028\ud800"\'`${x}';
  const transcriptOf = (text: string) => toTranscript(passed, coderOf(decodeWith(text, call, text)));

  async function chunksOf(texts: readonly string[]): Promise<{ chunks: FinishedChunk[]; places: object[] }> {
    const chunks: FinishedChunk[] = [];
    const writer = new ChunkWriter((chunk) => Promise.resolve(void chunks.push(chunk)));
    const places = [];
    for (const text of texts) places.push(await writer.add(transcriptOf(text)));
    await writer.finish();
    return { chunks, places };
  }

  test('of a bounded size, and each transcript is at the place that the index gives', async () => {
    const texts = Array.from({ length: 30 }, (_, n) => `${n} ${'x'.repeat(20_000)}`);
    const { chunks, places } = await chunksOf(texts);
    expect(chunks.length).toBeGreaterThan(2);
    for (const { content } of chunks) expect(content.length).toBeLessThan(400_000);
    for (const [n, place] of places.entries()) {
      const { chunk, at } = place as { chunk: number; at: number };
      const { texts: held, transcripts } = JSON.parse(chunks[chunk]!.content) as TranscriptChunk;
      const [, task] = transcripts[at]!.talk.find(([who]) => who === 'task') as ['task', number];
      expect(held[task]).toBe(texts[n]);
    }
  });

  test('that are named by the hash of their content and store equal texts once', async () => {
    const [first, again] = [await chunksOf(['a', 'b']), await chunksOf(['a', 'b'])];
    expect(first).toEqual(again);
    const { texts } = JSON.parse(first.chunks[0]!.content) as TranscriptChunk;
    expect(texts.filter((text) => text === 'Call one tool a turn.')).toHaveLength(1);
  });

  test('and each file is one call with two strings, whatever the episodes contain', async () => {
    const { chunks } = await chunksOf([hostile]);
    const script = chunkScript(chunks[0]!);
    expect(script).toMatch(/^longhaulChunk\("[0-9a-f]{16}", "(?:[^"\\<\u2028]|\\.)*"\);\n$/);
    const heard: unknown[] = [];
    const longhaulChunk = (...given: unknown[]): number => heard.push(...given);
    runInNewContext(script, { longhaulChunk });
    expect(heard).toEqual([chunks[0]!.name, chunks[0]!.content]);
  });

  test('and a chunk inside the page cannot end its element', () => {
    const json = inMarkup(JSON.stringify(hostile));
    expect(json).not.toContain('<');
    expect(JSON.parse(json)).toBe(hostile);
  });
});
