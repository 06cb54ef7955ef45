import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { withElapsedLine } from '../../src/cli/elapsed-line.js';

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubEnv('TERM', 'xterm');
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
});

/** Returns the output during 70 s of work that reports its position after 35 s. */
async function written(kind: { isTTY: boolean; columns: number }): Promise<string[]> {
  const texts: string[] = [];
  const output = { ...kind, write: (text: string) => texts.push(text) > 0 };
  const work = withElapsedLine(
    'auditing tiny',
    async (at) => {
      await new Promise((resolve) => setTimeout(resolve, 35_000));
      at('step 12 of 30');
      await new Promise((resolve) => setTimeout(resolve, 35_000));
      return 'done';
    },
    output,
  );
  await vi.advanceTimersByTimeAsync(70_000);
  expect(await work).toBe('done');
  await vi.advanceTimersByTimeAsync(120_000);
  return texts;
}

describe('work that answers only at its end', () => {
  test('gives a log a line every 10 s', async () => {
    expect(await written({ isTTY: false, columns: 80 })).toEqual([
      ...[10, 20, 30].map((seconds) => `auditing tiny · ${seconds} s\n`),
      ...['40 s', '50 s', '1 min 0 s', '1 min 10 s'].map(
        (time) => `auditing tiny · step 12 of 30 · ${time}\n`,
      ),
    ]);
  });

  test('gives a terminal one changing line, which fits the window and disappears at the end', async () => {
    const texts = await written({ isTTY: true, columns: 31 });
    expect(texts.join('')).not.toContain('\n');
    expect(texts).toContain('\r\u001b[2Kauditing tiny · 30 s');
    expect(texts).toContain('\r\u001b[2Kauditing tiny · step 12 of 30 ');
    expect(texts.at(-1)).toBe('\r\u001b[2K');
  });

  test('gives a terminal that cannot change lines the same output as a log', async () => {
    vi.stubEnv('TERM', 'dumb');
    expect((await written({ isTTY: true, columns: 80 })).join('')).not.toContain('\u001b');
  });

  test('shows nothing for short work, and throws the work’s own error', async () => {
    vi.useRealTimers();
    const write = vi.fn(() => true);
    const failing = withElapsedLine('x', () => delay(5).then(() => Promise.reject(new Error('torn'))), {
      isTTY: false,
      columns: 80,
      write,
    });
    await expect(failing).rejects.toThrow('torn');
    expect(write).not.toHaveBeenCalled();
  });
});
