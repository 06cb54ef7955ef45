// The race for a folder's lock (R29). A fault would show in only one of hundreds of rounds.
import { type ChildProcess, spawn } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, expect, it } from 'vitest';
import { ended } from '../../support/servers/temporal-server.js';

const scratch = mkdtempSync(join(tmpdir(), 'longhaul-lock-'));
const children: ChildProcess[] = [];
afterAll(async () => {
  await Promise.all(children.map((child) => ended(child, 'SIGKILL')));
  rmSync(scratch, { recursive: true });
});

it('is never held twice when six processes race for a dead holder’s lock, 600 times', async () => {
  const fixture = new URL('../fixtures/contend-for-folder.mjs', import.meta.url).pathname;
  const contender = async () => {
    const child = spawn(process.execPath, [fixture], { stdio: ['pipe', 'pipe', 'inherit'] });
    children.push(child);
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const next = async () => (await lines.next()).value as string;
    expect(await next()).toBe('ready');
    const ask = (line: string) => {
      child.stdin.write(`${line}\n`);
      return next();
    };
    return { child, ask };
  };
  const dead = mkdtempSync(join(scratch, 'dead-'));
  const holder = await contender();
  expect(await holder.ask(`lock ${dead} 0`)).toBe('held');
  await ended(holder.child, 'SIGKILL');
  const contenders = await Promise.all(Array.from({ length: 6 }, contender));
  const held: number[] = [];
  for (let round = 0; round < 600; round++) {
    const folder = join(scratch, `round-${round}`);
    cpSync(dead, folder, { recursive: true });
    const from = Date.now() + 4;
    const answers = await Promise.all(contenders.map(({ ask }) => ask(`lock ${folder} ${from}`)));
    expect(answers.filter((answer) => answer !== 'held' && answer !== 'refused')).toEqual([]);
    held.push(answers.filter((answer) => answer === 'held').length);
    await Promise.all(contenders.map(({ ask }) => ask('release')));
  }
  expect({ once: held.filter((n) => n === 1).length, otherwise: held.filter((n) => n !== 1) }).toEqual({
    once: 600,
    otherwise: [],
  });
});
