// Holds the files of the project `pure` to their name. They share a process and its modules, so what one of them leaves behind is
// there for the next.
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { Server } from 'node:net';
import { afterAll, expect, vi } from 'vitest';

const needsOthers = (what: string) => (): never => {
  throw new Error(`${what}: such a test is named *.server.test.ts`);
};

const childProcess = createRequire(import.meta.url)('node:child_process') as Record<string, unknown>;
for (const name of ['spawn', 'spawnSync', 'exec', 'execSync', 'execFile', 'execFileSync', 'fork'])
  childProcess[name] = needsOthers(`${name}() starts a process`);
Server.prototype.listen = needsOthers('listen() opens a server');
syncBuiltinESMExports();

const environment = { ...process.env };
afterAll(() => {
  expect(vi.isFakeTimers(), 'the file leaves false timers on').toBe(false);
  expect({ ...process.env }, 'the file leaves the environment changed').toEqual(environment);
});
