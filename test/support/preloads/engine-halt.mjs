// Runs between a node worker and its engine. When the engine has been asked for a given number of turns of one step, it passes nothing more
// on: then every episode is in the middle of a turn. Arguments: a file, the engine, the engine's own arguments. The file contains `{domain,
// step, turns}`. It is removed at the halt, and may be written again for another process.
import { spawn } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';

const [file, engine, ...args] = process.argv.slice(2);
const worker = new Socket({ fd: 3 });
const child = spawn(engine, args, { stdio: ['ignore', 'ignore', 'inherit', 'pipe'] });
const served = child.stdio[3];
for (const socket of [worker, served]) socket.on('error', () => undefined);
child.once('exit', (code, signal) => process.exit(signal ? 1 : (code ?? 1)));
// The engine itself ends in the same way when its worker is gone.
worker.on('close', () => child.kill('SIGKILL'));
served.pipe(worker);

let asked = 0;
let halted = false;
let buffered = Buffer.alloc(0);
worker.on('data', (bytes) => {
  buffered = Buffer.concat([buffered, bytes]);
  // A frame is: its length, the request's id, the header's length, the header, the arrays (docs/engine-protocol.md).
  while (!halted && buffered.length >= 12 && buffered.length >= 4 + buffered.readUInt32LE(0)) {
    const length = 4 + buffered.readUInt32LE(0);
    const header = JSON.parse(buffered.toString('utf8', 12, 12 + buffered.readUInt32LE(8)));
    const wanted = header.verb === 'generate' ? wantedHalt() : null;
    if (wanted && wanted.domain === header.key.domain && wanted.step === header.key.step) asked += 1;
    if (wanted && asked >= wanted.turns) {
      halted = true;
      served.unpipe(worker);
      served.resume();
      rmSync(file);
      return;
    }
    served.write(buffered.subarray(0, length));
    buffered = buffered.subarray(length);
  }
});

function wantedHalt() {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return null;
  }
}
