import { expect, it } from 'vitest';
import { sha256Hex } from '../../../src/base/sha256.js';
import { zip } from '../../../src/environments/fleet/zip.js';

it('equal contents are equal bytes, whatever made them: their sha256 names a verifier at Fleet', () => {
  const file = zip([
    ['requirements.txt', 'fleet-python'],
    ['verifier.py', 'def verify(env):\n    return 1\n'],
  ]);
  expect(sha256Hex(file)).toBe('c4dc1e379b58a3d02136165a7ca242b9f4798fd18f3e03ea5be3488dd5743738');
});
