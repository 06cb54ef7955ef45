// Preloaded into a program: kills it with SIGKILL at its DIE_AT_CALL-th call that changes a file system.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const fatal = Number(process.env.DIE_AT_CALL);
let calls = 0;
for (const name of ['open', 'link', 'unlink', 'rmdir', 'mkdir', 'rm']) {
  const original = fs.promises[name];
  fs.promises[name] = function (...args) {
    if (++calls === fatal) process.kill(process.pid, 'SIGKILL');
    return original.apply(this, args);
  };
}
syncBuiltinESMExports();
