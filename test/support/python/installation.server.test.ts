// The limit of silence, on which the installation of Python packages relies.
import { describe, expect, it } from 'vitest';
import { runWithSilenceLimit } from './silence-limit.js';

describe.concurrent('a command with a limit of silence', () => {
  const node = (script: string, silenceMs?: number) =>
    runWithSilenceLimit(process.execPath, ['-e', script], silenceMs);

  it('may take longer than the limit while it prints', async () => {
    await node(
      'let n = 0; const t = setInterval(() => { console.log(n); if (++n > 20) clearInterval(t); }, 250)',
      4_000,
    );
  });

  it('is ended when it prints nothing, with the processes that it has started', async () => {
    const script = `
      const { spawn } = require('node:child_process');
      spawn(process.execPath, ['-e', 'setInterval(() => undefined, 1000)'], { stdio: 'inherit' });
      console.log('Building wheel');
      setInterval(() => undefined, 1000);`;
    await expect(node(script, 4_000)).rejects.toThrow(
      /printed nothing for 4 s and was ended: Building wheel/,
    );
  });

  it('that fails rejects with the end of its output', async () => {
    await expect(node('console.error("no such package"); process.exit(3)')).rejects.toThrow(
      / ended with 3: no such package/,
    );
    await expect(runWithSilenceLimit('/nowhere/python', [])).rejects.toThrow(/did not start/);
  });
});
