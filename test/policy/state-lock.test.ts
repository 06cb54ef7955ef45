import { setImmediate as tick } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { StateLock } from '../../src/policy/state-lock.js';

function gate(): { opened: Promise<void>; open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

describe('the state lock (R15)', () => {
  it('is shared by readers and held alone by a writer, in order of arrival', async () => {
    const lock = new StateLock();
    const events: string[] = [];
    const [first, second, writer] = [gate(), gate(), gate()];
    const enter =
      (name: string, { opened }: { opened: Promise<void> }) =>
      async () => {
        events.push(`${name} in`);
        await opened;
        events.push(`${name} out`);
      };
    const all = [
      lock.shared(enter('reader 1', first)),
      lock.shared(enter('reader 2', second)),
      lock.exclusive(enter('writer', writer)),
      lock.shared(enter('reader 3', { opened: Promise.resolve() })),
    ];
    await tick();
    expect(events).toEqual(['reader 1 in', 'reader 2 in']);
    first.open();
    second.open();
    await tick();
    // Reader 3 came after the writer, so it must wait for the writer.
    expect(events.slice(4)).toEqual(['writer in']);
    writer.open();
    await Promise.all(all);
    expect(events.slice(5)).toEqual(['writer out', 'reader 3 in', 'reader 3 out']);
  });

  it('is released after a failure, and a waiting caller can give up', async () => {
    const lock = new StateLock();
    const held = gate();
    const failing = lock.exclusive(async () => {
      await held.opened;
      throw new Error('failed');
    });
    const controller = new AbortController();
    const impatient = lock.exclusive(async () => 'never', controller.signal);
    const patient = lock.shared(async () => 'done');
    controller.abort(new Error('gave up'));
    await expect(impatient).rejects.toThrow('gave up');
    held.open();
    await expect(failing).rejects.toThrow('failed');
    expect(await patient).toBe('done');
  });
});
