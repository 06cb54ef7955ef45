// Builds the library of libc-shim.c for preloading, and tests it before it is used. It needs a C compiler and a loader that can preload.
import { execFile } from 'node:child_process';
import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { repository } from '../repository.js';

export interface LibcShim {
  /** Environment variables with which a process gets the library. */
  environment: Record<string, string>;
  /** How many seconds the wall clock of the node's processes is ahead; negative if it is behind. */
  setClock(offsetSeconds: number): void;
  setNodeFull(full: boolean): void;
  setStoreFull(full: boolean): void;
  close(): void;
}

const run = promisify(execFile);
const jump = 86_400;

/** The paths in `folders` must not contain a symbolic link. Throws an error with the reason if this machine cannot preload the library. */
export async function buildLibcShim(
  folder: string,
  folders: { node: string; store: string },
): Promise<LibcShim> {
  if (process.platform !== 'linux') throw new Error('only Linux preloads it');
  const library = join(folder, 'libc-shim.so');
  const source = join(repository, 'test/support/preloads/libc-shim.c');
  await run(process.env['CXX'] ?? 'g++', [
    ...['-x', 'c', '-shared', '-fPIC', '-O2', '-o', library, source, '-ldl'],
  ]);
  const controlFile = join(folder, 'libc-shim.control');
  writeFileSync(controlFile, Buffer.alloc(16));
  const control = openSync(controlFile, 'r+');
  const set = (at: number, value: number, bytes: 4 | 8): void => {
    const buffer = Buffer.alloc(bytes);
    if (bytes === 8) buffer.writeBigInt64LE(BigInt(value));
    else buffer.writeInt32LE(value);
    writeSync(control, buffer, 0, bytes, at);
  };
  const shim: LibcShim = {
    environment: {
      LD_PRELOAD: library,
      LONGHAUL_SHIM_CONTROL: controlFile,
      LONGHAUL_SHIM_NODE_FOLDER: folders.node,
      LONGHAUL_SHIM_STORE_FOLDER: folders.store,
    },
    setClock: (seconds) => set(0, seconds, 8),
    setNodeFull: (full) => set(8, Number(full), 4),
    setStoreFull: (full) => set(12, Number(full), 4),
    close: () => closeSync(control),
  };
  try {
    await tryOut(shim, folders);
  } catch (error) {
    shim.close();
    throw error;
  }
  return shim;
}

/** Checks that a process with a node's name sees the changed clock, and a full disk in both folders and nowhere else. */
async function tryOut(shim: LibcShim, folders: { node: string; store: string }): Promise<void> {
  for (const folder of Object.values(folders)) mkdirSync(folder, { recursive: true });
  const look = `
    const { writeFileSync, rmSync } = require('node:fs');
    const write = (folder) => {
      try { writeFileSync(folder + '/tried', 'x'); rmSync(folder + '/tried'); return 'room'; } catch (error) { return error.code; }
    };
    console.log(JSON.stringify({ now: Date.now(), node: write(process.argv[1]), store: write(process.argv[2]) }));`;
  const seen = async (): Promise<{ now: number; node: string; store: string }> => {
    const { stdout } = await run(process.execPath, ['-e', look, folders.node, folders.store, 'node-main'], {
      env: { ...process.env, ...shim.environment },
    });
    return JSON.parse(stdout) as { now: number; node: string; store: string };
  };
  shim.setClock(jump);
  shim.setNodeFull(true);
  const disturbed = await seen();
  shim.setNodeFull(false);
  shim.setStoreFull(true);
  const other = await seen();
  shim.setStoreFull(false);
  shim.setClock(0);
  const calm = await seen();
  const ahead = Math.abs(disturbed.now - Date.now() - jump * 1000) < 60_000;
  const holds =
    ahead &&
    Math.abs(calm.now - Date.now()) < 60_000 &&
    `${disturbed.node} ${disturbed.store} ${other.node} ${other.store} ${calm.node} ${calm.store}` ===
      'ENOSPC room room ENOSPC room room';
  if (!holds)
    throw new Error(
      `a preloaded library changes too little or too much here: ${JSON.stringify([disturbed, other, calm])}`,
    );
}
