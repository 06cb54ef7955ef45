// A time-out that elapsed while this process was stopped is nobody's failure (R25).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { awakeLimit, awakeNow, awakeTimeout } from '../../src/base/awake-clock.js';

/** Blocks this process, as if it were stopped. */
function standStill(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

describe('time awake', () => {
  it('advances while the process runs, and not while it is stopped', async () => {
    const [from, realFrom] = [awakeNow(), performance.now()];
    await sleep(500);
    const ran = performance.now() - realFrom;
    expect(awakeNow() - from).toBeLessThanOrEqual(ran + 1);
    expect(awakeNow() - from).toBeGreaterThan(200);
    const before = awakeNow();
    standStill(2_000);
    expect(awakeNow() - before).toBeLessThanOrEqual(201);
  });

  it('lets a time-out elapse if nothing comes, unless the time-out was cancelled', async () => {
    let late = 0;
    const callOff = awakeTimeout(() => late++, 50);
    awakeTimeout(() => (late += 10), 50);
    callOff();
    const { signal } = awakeLimit(50);
    await sleep(1_000);
    expect({ late, aborted: signal.aborted }).toEqual({ late: 10, aborted: true });
  });

  it('does not let a time-out elapse if the answer came while the process was stopped', async () => {
    const server = spawn(process.execPath, [
      '-e',
      `require('node:net').createServer((socket) => socket.on('data', () => setTimeout(() => socket.write('x'), 100)))
        .listen(0, '127.0.0.1', function () { console.log(this.address().port); });`,
    ]);
    try {
      const [port] = (await once(server.stdout, 'data')) as [Buffer];
      const socket = connect(Number(port), '127.0.0.1');
      await once(socket, 'connect');
      for (let round = 0; round < 10; round++) {
        const heard: string[] = [];
        const answer = once(socket, 'data').then(() => heard.push('answer'));
        awakeTimeout(() => heard.push('late'), 400);
        socket.write('?');
        await sleep(20 + 10 * round);
        // Stop the process after the input of this turn of the event loop: when the process continues, timers run first.
        await new Promise((resolve) => setImmediate(resolve));
        standStill(1_000);
        await answer;
        expect(heard).toEqual(['answer']);
      }
      const heard: string[] = [];
      const answer = once(socket, 'data').then(() => heard.push('answer'));
      // This time-out has nearly run out when the process stops: it runs out before any input is read.
      awakeTimeout(() => heard.push('late'), 90);
      socket.write('?');
      await sleep(70);
      await new Promise((resolve) => setImmediate(resolve));
      standStill(1_000);
      await answer;
      expect(heard).toEqual(['answer']);
      socket.destroy();
    } finally {
      server.kill('SIGKILL');
    }
  });
});
