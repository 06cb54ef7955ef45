// Makes sure that files of the project `pure` start no process and open no server.
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { Server } from 'node:net';

const needsOthers = (what: string) => (): never => {
  throw new Error(`${what}: such a test is named *.server.test.ts`);
};

const childProcess = createRequire(import.meta.url)('node:child_process') as Record<string, unknown>;
for (const name of ['spawn', 'spawnSync', 'exec', 'execSync', 'execFile', 'execFileSync', 'fork'])
  childProcess[name] = needsOthers(`${name}() starts a process`);
Server.prototype.listen = needsOthers('listen() opens a server');
syncBuiltinESMExports();
