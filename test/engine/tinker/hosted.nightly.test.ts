// A server of somebody's own, the hosted service above all: run each night where its address and key are given. It costs a few thousand tokens.
import { describe, expect, test } from 'vitest';
import { checkTinker } from '../../../src/cli/stack/tinker-checks.js';

const { LONGHAUL_TINKER: url, LONGHAUL_SERVED_MODEL: model, TINKER_API_KEY: key } = process.env;
const needs = 'needs LONGHAUL_TINKER, and TINKER_API_KEY if the server asks for a key';

describe.skipIf(!url)(`the Tinker server that LONGHAUL_TINKER names (${needs})`, () => {
  test('has the model, knows numbers or not, and restores the optimizer', async () => {
    const target = { url: url!, model: model ?? null, spec: null, ...(key ? { key } : {}) };
    const wrong = (await checkTinker(target)).filter(({ ok }) => !ok);
    expect(wrong).toEqual([]);
  });
});
