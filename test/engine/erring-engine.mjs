#!/usr/bin/env node
// The native engine LONGHAUL_RIGHT_ENGINE, but its second update is answered as by an engine whose GPU has erred, without being carried out.
import { spawn } from 'node:child_process';
import { Socket } from 'node:net';

const peer = new Socket({ fd: 3 });
const engine = spawn(process.env.LONGHAUL_RIGHT_ENGINE, process.argv.slice(2), {
  stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
});
const right = engine.stdio[3];
let updates = 0;

/** Calls `take` with each frame: its length, the id of its request, the length of its header, the header, arrays. */
function frames(socket, take) {
  let held = Buffer.alloc(0);
  socket.on('data', (bytes) => {
    held = Buffer.concat([held, bytes]);
    for (;;) {
      const length = held.length >= 4 ? held.readUInt32LE(0) + 4 : Infinity;
      if (held.length < length) return;
      take(held.subarray(0, length));
      held = held.subarray(length);
    }
  });
}

frames(peer, (frame) => {
  const header = JSON.parse(frame.subarray(12, 12 + frame.readUInt32LE(8)).toString());
  if (header.verb !== 'update' || ++updates < 2) return right.write(frame);
  const error = {
    code: 'DeviceDiffers',
    message: 'this update is not applied: the GPU computes wrong values',
  };
  const answer = Buffer.from(
    JSON.stringify({ ok: false, error, incarnation: 'erring', state: header.state }),
  );
  const reply = Buffer.alloc(12 + answer.length);
  reply.writeUInt32LE(8 + answer.length, 0);
  frame.copy(reply, 4, 4, 8);
  reply.writeUInt32LE(answer.length, 8);
  answer.copy(reply, 12);
  peer.write(reply);
});
frames(right, (frame) => peer.write(frame));
peer.on('close', () => engine.kill('SIGKILL'));
engine.on('exit', (code) => process.exit(code ?? 1));
