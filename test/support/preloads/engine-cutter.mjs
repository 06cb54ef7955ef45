// Runs between a node worker and its engine. It passes frames on, then sends only half of one reply and aborts itself and the engine.
// Arguments: number of whole replies before that, the engine, the engine's own arguments.
import { spawn } from 'node:child_process';
import { Socket } from 'node:net';

const [whole, engine, ...args] = process.argv.slice(2);
const worker = new Socket({ fd: 3 });
const child = spawn(engine, args, { stdio: ['ignore', 'ignore', 'inherit', 'pipe'] });
const served = child.stdio[3];
for (const socket of [worker, served]) socket.on('error', () => undefined);
child.once('exit', (code) => process.exit(code ?? 1));
// The engine itself ends in the same way when its worker is gone.
worker.on('close', () => child.kill('SIGKILL'));
worker.pipe(served);

let left = Number(whole);
let buffered = Buffer.alloc(0);
served.on('data', (bytes) => {
  buffered = Buffer.concat([buffered, bytes]);
  // A frame is a length in 4 bytes, followed by that many bytes (docs/engine-protocol.md).
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
