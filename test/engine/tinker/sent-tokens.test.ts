// Each request to a Tinker server is counted in one update: the next that its run commits.
import { expect, test } from 'vitest';
import { itemOf, sentFor, SentTokens } from '../../../src/engine/tinker/sent-tokens.js';
import type { ServedTokens } from '../../../src/spec/budget.js';

const nothing = { train: 0, prefill: 0, sample: 0, saves: 0 };
const none = new Map<string, Partial<ServedTokens>>();

function send(sent: SentTokens, item: string, part: Partial<ServedTokens>, run = 'r'): Promise<void> {
  return sentFor({ run, item }, async () => {
    await Promise.resolve();
    sent.add(part);
  });
}

test('what was sent is added up by run, repeats included', async () => {
  const sent = new SentTokens();
  sent.add({ train: 1_000 });
  await Promise.all([
    send(sent, itemOf.update(1), { train: 5 }),
    send(sent, itemOf.update(1), { train: 5 }),
    send(sent, itemOf.other, { prefill: 7, saves: 1 }),
    send(sent, itemOf.update(1), { train: 90 }, 'another'),
  ]);
  expect(sent.offer('r', 'at 1', none)).toEqual({ ...nothing, train: 10, prefill: 7, saves: 1 });
  expect(sent.offer('another', 'at 1', none)).toEqual({ ...nothing, train: 90 });
});

test('what an update has counted is not counted again, and what was sent meanwhile is', async () => {
  const sent = new SentTokens();
  await send(sent, itemOf.update(1), { train: 5 });
  sent.offer('r', 'at 1', none);
  await send(sent, itemOf.other, { saves: 1 });
  sent.committed('r', 1, 'at 1');
  expect(sent.offer('r', 'at 2', none)).toEqual({ ...nothing, saves: 1 });
});

test('an update that was not written leaves all of it to the next one', async () => {
  const sent = new SentTokens();
  await send(sent, itemOf.update(1), { train: 5 });
  sent.offer('r', 'at 1', none);
  await send(sent, itemOf.update(1), { train: 5 });
  expect(sent.offer('r', 'at 2', none)).toEqual({ ...nothing, train: 10 });
});

test('for an episode that a dead process began, the larger of sent and recorded tokens counts', async () => {
  const sent = new SentTokens();
  await send(sent, itemOf.episode(3, 0, 0), { prefill: 30, sample: 3 });
  await send(sent, itemOf.episode(3, 0, 1), { prefill: 40, sample: 4 });
  const recorded = new Map([
    [itemOf.episode(3, 0, 0), { prefill: 50, sample: 5 }],
    [itemOf.episode(3, 0, 1), { prefill: 20, sample: 2 }],
    [itemOf.episode(3, 1, 0), { prefill: 10, sample: 1 }],
  ]);
  expect(sent.offer('r', 'at 3', recorded)).toEqual({ ...nothing, prefill: 100, sample: 10 });
});

test('items of a step that another process committed are not counted again', async () => {
  const sent = new SentTokens();
  await send(sent, itemOf.episode(3, 0, 0), { prefill: 30 });
  await send(sent, itemOf.episode(30, 0, 0), { prefill: 4 });
  await send(sent, itemOf.other, { prefill: 2 });
  sent.offer('r', 'at 3', none);
  sent.committed('r', 3, 'at another time');
  expect(sent.offer('r', 'at 4', none)).toEqual({ ...nothing, prefill: 6 });
});
