// Runs the command of docs/deploy.md that copies a store, exactly as documented, between two folders.
import { execFileSync, spawnSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-backup-'));
const [from, to] = [join(folder, 'from'), join(folder, 'to')];
const [record, state] = ['runs/a/run.json', 'states/step 1/state.safetensors'];
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The command that `docker run` starts in the container, with this test's folders in place of the volumes. */
function documentedCommand(): string {
  const [, script] =
    /docker run --rm -v longhaul_store:\/from:ro -v \/backup\/store:\/to debian:\S+ sh -c '([^']+)'/.exec(
      readFileSync('docs/deploy.md', 'utf8').replaceAll(/\\\n\s*/g, ''),
    ) ?? [];
  if (script === undefined) throw new Error('docs/deploy.md names no command that copies the store');
  return script
    .replaceAll('/tmp/failed', join(folder, 'failed'))
    .replaceAll('/from', from)
    .replaceAll(/\/to(?=\/|\b)/g, to);
}

function back(): string[] {
  return execFileSync('sh', ['-c', documentedCommand()], { encoding: 'utf8' })
    .split('\n')
    .filter(Boolean)
    .sort();
}

if (process.platform !== 'linux')
  console.warn('skipped: the copy of a store: its commands are those of GNU, and this is no Linux');
describe.skipIf(process.platform !== 'linux')('the copy of a store (GNU commands)', () => {
  beforeEach(() => {
    rmSync(from, { recursive: true, force: true });
    rmSync(to, { recursive: true, force: true });
    for (const [key, bytes] of [
      [record, '{"a": 1}'],
      [state, 'x'.repeat(800_000)],
    ] as const) {
      mkdirSync(join(from, key, '..'), { recursive: true });
      writeFileSync(join(from, key), bytes);
    }
    mkdirSync(to);
    back();
  });
  const same = (): void => expect(spawnSync('diff', ['-r', from, to]).status).toBe(0);

  it('is complete, and a later run copies only new objects', () => {
    same();
    expect(back()).toEqual([]);
    writeFileSync(join(from, 'runs/a/new.json'), '{}');
    expect(back()).toEqual(['./runs/a/new.json']);
    same();
  });

  it('completes an object that was cut off when an earlier copy was killed', () => {
    truncateSync(join(to, state), 225_000);
    expect(back()).toEqual([`./${state}`]);
    same();
  });

  it('replaces a copy with the same size and time but other bytes', () => {
    writeFileSync(join(to, record), '{"a": 2}');
    utimesSync(join(to, record), new Date(0), new Date(0));
    expect(back()).toEqual([`./${record}`]);
    same();
  });

  it('exits with 1 if an object cannot be copied, and copies the others', () => {
    const bin = join(folder, 'bin');
    mkdirSync(bin, { recursive: true });
    const cp = `#!/bin/sh\ncase "$*" in *state.safetensors*) exit 1;; esac\nexec /bin/cp "$@"\n`;
    writeFileSync(join(bin, 'cp'), cp, { mode: 0o755 });
    truncateSync(join(to, state), 225_000);
    writeFileSync(join(from, 'runs/a/new.json'), '{}');
    const env = { ...process.env, PATH: `${bin}:${process.env['PATH']}` };
    const { status, stdout } = spawnSync('sh', ['-c', documentedCommand()], { encoding: 'utf8', env });
    rmSync(join(folder, 'failed'));
    expect([status, stdout]).toEqual([1, './runs/a/new.json\n']);
  });

  it('keeps objects that a collection has deleted from the store since', () => {
    rmSync(join(from, record));
    expect(back()).toEqual([]);
    expect(readFileSync(join(to, record), 'utf8')).toBe('{"a": 1}');
  });
});
