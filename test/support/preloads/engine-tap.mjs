// Runs between a node worker and its engine. It passes all frames on, and writes a line for each `generate` and `update` request.
// Arguments: file to append to, the engine, the engine's own arguments.
import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
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

let buffered = Buffer.alloc(0);
worker.on('data', (bytes) => {
  served.write(bytes);
  buffered = buffered.length === 0 ? bytes : Buffer.concat([buffered, bytes]);
  let at = 0;
  let lines = '';
  // A frame is: its length, the request's id, the header's length, the header, the arrays (docs/engine-protocol.md).
  while (buffered.length >= at + 12 && buffered.length >= at + 4 + buffered.readUInt32LE(at)) {
    const header = JSON.parse(buffered.toString('utf8', at + 12, at + 12 + buffered.readUInt32LE(at + 8)));
    lines += lineOf(header);
    at += 4 + buffered.readUInt32LE(at);
  }
  buffered = buffered.subarray(at);
  if (lines !== '') appendFileSync(file, lines);
});

function lineOf({ verb, state, key, arrays, step_id: stepId }) {
  const line = (what) => `${JSON.stringify({ at: Date.now(), verb, ...what })}\n`;
  if (verb === 'generate') return line({ state, ...key, tokens: arrays[0].shape[0] });
  return verb === 'update' ? line({ stepId }) : '';
}
