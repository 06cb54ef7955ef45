// What a worker process knows about the process that used its folder before.
import { mkdtempSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { keepLife } from '../../../src/workers/process/life-file.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'longhaul-life-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const path = (): string => join(folder, 'life.json');
const begin = () => keepLife(path(), 'n1', 'worker_restart');
const keep = () => {
  const kept = begin();
  kept.serves();
  return kept;
};

describe('a worker', () => {
  it('on a new folder has no predecessor', () => {
    const { life, leave } = keep();
    expect(life.predecessor).toBeNull();
    expect(life.identity).toMatch(new RegExp(`^n1@.+ pid ${process.pid}$`));
    leave();
  });

  it('knows that its predecessor ended on request', () => {
    const first = keep();
    first.leave();
    const second = keep();
    expect(second.life.predecessor).toMatchObject({ identity: first.life.identity, left: true });
    second.leave();
  });

  it('knows when its predecessor was last alive, if that was killed', () => {
    keep();
    const dead = new Date(Date.now() - 60_000);
    utimesSync(path(), dead, dead);
    const { life, leave } = keep();
    const { aliveAt, noticedAt, left } = life.predecessor!;
    expect(left).toBe(false);
    expect(aliveAt).toBe(dead.getTime());
    // `noticedAt` is this process's start, but never before the predecessor's last sign of life.
    expect(noticedAt).toBeGreaterThanOrEqual(aliveAt);
    leave();
  });

  it('knows the last process that served, not the later ones that never served', () => {
    const served = keep();
    const dead = new Date(Date.now() - 60_000);
    utimesSync(path(), dead, dead);
    const known = begin();
    expect(known.life.predecessor).toMatchObject({ identity: served.life.identity, aliveAt: dead.getTime() });
    begin().leave();
    const { life, leave } = begin();
    expect(life.predecessor).toEqual(known.life.predecessor);
    leave();
  });

  it('has no predecessor if no process has ever served', () => {
    begin().leave();
    expect(begin().life.predecessor).toBeNull();
  });
});
