// A run that no living node fits is told the one remedy that applies to it.
import { expect, test } from 'vitest';
import type { LeaseRequest } from '../../../src/activities/contracts.js';
import type { Numerics } from '../../../src/spec/records/numerics.js';
import { waitingReason } from '../../../src/workflows/pool/waiting-reason.js';

const engine: Numerics = { backend: 'cpu', version: 2 };
const tinker: Numerics = { backend: 'tinker', version: 1, service: 'skyrl', model: 'Qwen/Qwen3-8B' };

function reason(request: Partial<LeaseRequest>, numerics: Numerics) {
  const asked = { lease: 'l', run: 'mine', numerics: null, ...request } as LeaseRequest;
  const node = { id: 'local', numerics, suspected: false, holders: [] };
  return waitingReason(asked, { within: [node], alive: ['local'], draining: [] });
}

test.each<[string, Partial<LeaseRequest>, Numerics, RegExp, RegExp]>([
  [
    'a new Tinker run',
    { served: 'Qwen/Qwen3-8B' },
    engine,
    /LONGHAUL_SERVED_MODEL=Qwen\/Qwen3-8B/,
    /rebase|engine/,
  ],
  ['a Tinker run that began', { numerics: tinker }, engine, /LONGHAUL_TINKER_SERVICE=skyrl/, /rebase|engine/],
  ['a run with an engine', {}, tinker, /such an engine/, /rebase|SERVED_MODEL/],
  [
    'a run with an engine, in bf16',
    { backend: 'bf16-sm90' },
    engine,
    /LONGHAUL_NUMERICS=bf16-sm90/,
    /rebase/,
  ],
  [
    'a run of older numerics',
    { numerics: { ...engine, version: 1 } },
    engine,
    /longhaul rebase mine/,
    /NAME|TINKER/,
  ],
])('%s', (_, request, offered, has, lacks) => {
  const { cause, remedy } = reason(request, offered);
  expect(cause).toBe('unfit');
  expect(remedy).toMatch(has);
  expect(remedy).not.toMatch(lacks);
});

test('a run that may wait has no remedy', () => {
  expect(reason({ numerics: engine }, engine)).not.toHaveProperty('remedy');
});
