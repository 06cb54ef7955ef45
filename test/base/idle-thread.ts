// A process that ends although one of its threads still waits for calls.
import { startThread } from '../../src/base/worker-thread.js';

const entry = new URL('./awkward-thread.js', import.meta.url);
const [idle, ended] = [0, 0].map(() =>
  startThread<{ answer: string }, string>(entry, { deadlineMs: 600_000 }),
);
console.log(await idle?.call({ answer: 'one' }));
await ended?.end();
console.log('ended');
