import { createHash } from 'node:crypto';
import { expect, it } from 'vitest';
import { readToolAnswer } from '../../src/environments/tool-results.js';
import { resultObservation } from '../../src/episode/observation.js';

const bytes = Buffer.from('not really a picture');
const sha256 = createHash('sha256').update(bytes).digest('hex');
const image = { type: 'image', data: bytes.toString('base64') };

function read(content: unknown[]) {
  const answer = readToolAnswer({ result: { content, is_error: false } });
  if (answer.kind === 'failed') throw new Error(answer.message);
  return answer.result;
}

it.each([
  [{ mimeType: 'image/png' }, 'image/png', '[image image/png, 20 bytes]'],
  [{ mime_type: 'image/jpeg' }, 'image/jpeg', '[image image/jpeg, 20 bytes]'],
  [{}, '', '[image, 20 bytes]'],
])('an image becomes a block without its bytes, which the model reads as a line: %j', (says, mime, line) => {
  const result = read([
    { type: 'text', text: 'Here:' },
    { ...image, ...says },
  ]);
  expect(result.content).toEqual([
    { type: 'text', text: 'Here:' },
    { type: 'image', mime, sha256, size: bytes.length },
  ]);
  expect(resultObservation(result, 1000)).toBe(`Tool result:\nHere:\n${line}`);
});

it('the model reads text blocks as lines, and what has no form as JSON', () => {
  const link = { type: 'resource_link', uri: 'file:///x' };
  const result = read([{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }, link, { type: 'image' }]);
  expect(resultObservation(result, 1000)).toBe(
    `Tool result:\na\nb\n${JSON.stringify(link)}\n{"type":"image"}`,
  );
  expect(resultObservation(result, 3)).toMatch(
    /^Tool result:\na\nb\n\[TRUNCATED: 3 of \d+ characters shown\]$/,
  );
});
