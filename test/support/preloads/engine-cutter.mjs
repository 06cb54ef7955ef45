// Stands between a node worker and its engine, once: passes frames on, sends half of one reply, and aborts both itself and the
// engine there. Arguments: whole replies before that, the engine, the engine's own arguments.
import { spawn } from 'node:child_process';
import { Socket } from 'node:net';

const [whole, engine, ...args] = process.argv.slice(2);
const worker = new Socket({ fd: 3 });
const child = spawn(engine, args, { stdio: ['ignore', 'ignore', 'inherit', 'pipe'] });
const served = child.stdio[3];
for (const socket of [worker, served]) socket.on('error', () => undefined);
child.once('exit', (code) => process.exit(code ?? 1));
// As the engine itself does when its worker is gone.
worker.on('close', () => child.kill('SIGKILL'));
worker.pipe(served);

let left = Number(whole);
let buffered = Buffer.alloc(0);
served.on('data', (bytes) => {
  buffered = Buffer.concat([buffered, bytes]);
  // A frame is its length in 4 bytes, then so many more (docs/engine-protocol.md).
  while (buffered.length >= 4 && left >= 0) {
    const length = 4 + buffered.readUInt32LE(0);
    if (left === 0) {
      left = -1;
      worker.write(buffered.subarray(0, Math.min(buffered.length, length >> 1)), () => {
        child.kill('SIGABRT');
        process.kill(process.pid, 'SIGABRT');
      });
      return;
    }
    if (buffered.length < length) return;
    worker.write(buffered.subarray(0, length));
    buffered = buffered.subarray(length);
    left -= 1;
  }
});
