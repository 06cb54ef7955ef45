// The gates judge rewards as pass@1 does: a sum that reaches `success_at` is full, however a server rounds.
import { afterEach, expect, it } from 'vitest';
import { checkGate, type GateResult } from '../../src/data/preparation/gates.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import { FailureLedger } from '../../src/episode/failure-ledger.js';
import type { GateName } from '../../src/spec/records/preparation-records.js';
import { type ForeignServer, startForeignServer } from '../environments/foreign-server.js';
import { counterTask } from '../environments/stand-in.js';

let foreign: ForeignServer;

afterEach(() => foreign.close());

async function gate(
  name: GateName,
  first: number | null,
  rule: { success_at?: number },
): Promise<GateResult> {
  const reward = rule.success_at === undefined ? ('last' as const) : ('sum' as const);
  const backend = createOpenEnvBackend({ url: foreign.url, maxSessions: 1, reward, ...rule });
  const task = counterTask(2);
  const call = { name: 'look', arguments: {} };
  const solution = { task_key: task.task_key, calls: [call, call, call], final_answer: '' };
  const input = { task, solution, first: { value: first }, ledger: new FailureLedger([]) };
  return checkGate(backend, name, input, new AbortController().signal).finally(() => backend.close());
}

it.each([
  ['0.7', 2.1],
  ['0.1', 0.3],
])('accepts a solution of three steps of %s where success_at is %d', async (reward, success_at) => {
  foreign = await startForeignServer(() => reward);
  expect(await gate('solution', null, { success_at })).toMatchObject({ passed: true, value: 1 });
  const short = await gate('solution', null, { success_at: success_at + 1e-6 });
  expect(short).toMatchObject({ passed: false });
});

it.each([
  ['solution', null, '0.9999999999999999', true],
  ['solution', null, '0.99999', false],
  ['repeat', 0.9999999999999999, '1', true],
  ['repeat', 0.5, '0.5000000000000001', false],
  ['repeat', 1, '1.5', false],
  ['nothing', null, '0.00000000000000005', true],
  ['nothing', null, '0.001', false],
] as const)('the gate %s after %s, with the reward %s: %s', async (name, first, reward, passed) => {
  foreign = await startForeignServer(() => reward);
  expect(await gate(name, first, {})).toMatchObject({ passed });
});
