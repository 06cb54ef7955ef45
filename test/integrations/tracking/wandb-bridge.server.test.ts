// How the bridge process to W&B ends, and that no message from it contains a key. A stand-in replaces W&B's client, for things that the
// real client does only at certain moments (wandb.nightly.test.ts uses the real one).
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { usualTimes } from '../../../src/workers/follower/follower.js';
import { BridgeProcess } from '../../../src/integrations/tracking/wandb/bridge-process.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const scratch = scratchFolder();
const quiet = new AbortController().signal;
const key = 'k3y-of-W&B/which-is-secret';
const bridges = join(import.meta.dirname, '../../../src/integrations/tracking/wandb');

const hasPython = spawnSync('python3', ['--version']).status === 0;
if (!hasPython) console.warn('skipped: the ends of the bridge to W&B: python3 is not installed');

let scripts = 0;
/** An interpreter that runs `script` with sh. */
function interpreter(script: string): string {
  const path = join(scratch, `python-${++scripts}`);
  writeFileSync(path, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return path;
}

/** A Python with a package `wandb` that accepts all calls, and whose `finish` consists of `lines`. */
function pythonWhoseFinish(lines: string): string {
  const packages = join(scratch, `packages-${++scripts}`);
  mkdirSync(packages);
  writeFileSync(
    join(packages, 'wandb.py'),
    `
import time
from pathlib import Path
class Settings:
    def __init__(self, **_): pass
class Run:
    id, step = "tiny", 0
    def define_metric(self, *_, **__): pass
    def finish(self):
        ${lines}
def init(**_): return Run()
def teardown(): pass
`,
  );
  return interpreter(`PYTHONPATH='${packages}' exec python3 "$@"`);
}

const started: BridgeProcess[] = [];
afterEach(() => {
  for (const bridge of started.splice(0)) bridge.kill();
});
function start(python: string, farewellMs: number, apiKey: () => string | undefined = () => key) {
  const folder = join(scratch, `folder-${++scripts}`);
  const bridge = new BridgeProcess({ python, apiKey, folder, farewellMs });
  started.push(bridge);
  return { bridge, folder };
}

async function opened(python: string, farewellMs: number): Promise<BridgeProcess> {
  const { bridge, folder } = start(python, farewellMs);
  await bridge.ask({ op: 'open', run: 'tiny', project: 'tests', mode: 'online', folder }, quiet);
  return bridge;
}

const endOf = (bridge: BridgeProcess): Promise<string> =>
  bridge.ask({ op: 'close' }, quiet).then(
    () => 'it answers',
    (error: unknown) => String(error),
  );

describe.skipIf(!hasPython)('the bridge to W&B', () => {
  it('has time at its end to upload what is left', async () => {
    const file = join(scratch, 'uploaded');
    const finish = `time.sleep(3); Path("${file}").touch()`;
    const bridge = await opened(pythonWhoseFinish(finish), 30_000);
    await bridge.stop();
    expect(existsSync(file)).toBe(true);
    expect(await endOf(bridge)).toContain('exit code 0');
  });

  it('ends by itself when that time is over', async () => {
    const bridge = await opened(pythonWhoseFinish('time.sleep(600)'), 300);
    await bridge.stop();
    expect(await endOf(bridge)).toContain('exit code 1');
  });

  it('opens within the follower’s limit, whatever it waits for', () => {
    const program = `import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True
import wandb_bridge as b; print(b.LOCK_WAIT_S + b.KILLED_WAIT_S + b.INIT_WAIT_S)`;
    const waits = Number(execFileSync('python3', ['-c', program, bridges], { encoding: 'utf8' }));
    expect(waits).toBeGreaterThan(0);
    // The rest of the time is for the interpreter's start and the run's rows.
    expect(waits * 1000).toBeLessThanOrEqual(usualTimes.openMs - 15_000);
  });
});

describe('the message about a dead bridge contains no key', () => {
  const half = key.length >> 1;
  it.each([
    ['in one piece', `printf '%s\\n' 'no user has ${key}' >&2`],
    [
      'in two pieces',
      `printf '%s' 'no user has ${key.slice(0, half)}' >&2; sleep 0.3; printf '%s\\n' '${key.slice(half)}' >&2`,
    ],
    ['in a URL', `printf '%s\\n' 'no user has ${encodeURIComponent(key)}' >&2`],
  ])('that came %s', async (_, script) => {
    const { bridge } = start(interpreter(`${script}; exit 3`), 1_000);
    const end = await endOf(bridge);
    expect(end).toBe('Error: the W&B bridge ended (exit code 3): no user has [secret removed]');
  });

  it('that was only in the environment', async () => {
    const before = process.env.WANDB_API_KEY;
    process.env.WANDB_API_KEY = 'another-key-of-W&B';
    try {
      const { bridge } = start(
        interpreter(`echo "no user has $WANDB_API_KEY" >&2; exit 3`),
        1_000,
        () => undefined,
      );
      expect(await endOf(bridge)).toContain('no user has [secret removed]');
    } finally {
      if (before === undefined) delete process.env.WANDB_API_KEY;
      else process.env.WANDB_API_KEY = before;
    }
  });

  it('that the bridge’s answer quotes', async () => {
    const answer = JSON.stringify({ ok: false, n: 1, refused: false, error: `401 for ${key}` });
    const { bridge } = start(interpreter(`read -r request; printf '%s\\n' '${answer}'; sleep 1`), 1_000);
    expect(await endOf(bridge)).toBe('Error: W&B: 401 for [secret removed]');
  });
});
