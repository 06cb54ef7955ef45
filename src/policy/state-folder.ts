// The saved states on a node's disk: one folder per run, one file per state. A file's name gives its step and digest.
import { mkdir, readdir, rm, rmdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { keepNewest, removeLeftovers } from './leftovers.js';
import type { Digest } from '../spec/records/parts.js';
import { checkRunId } from '../store/record-keys.js';

interface LocalState {
  step: number;
  state: Digest;
}

/** States of a run kept on the node's disk: the newest state, and the state before it in case the newest is damaged. */
export const statesKept = 2;

export class StateFolder {
  constructor(private readonly folder: string) {}

  /**
   * The digest is part of the path, because the folder may outlive its store, and the same step may have another state in another store.
   */
  path(run: string, { step, state }: LocalState): string {
    const name = `${String(step).padStart(6, '0')}.${state}.safetensors`;
    if (!parseName(name)) throw new TypeError(`${name.slice(0, 120)} is not the name of a state file`);
    return join(this.folderOf(run), name);
  }

  /** States in this folder, newest first. Some may belong to a store that the node used earlier. */
  async list(run: string): Promise<LocalState[]> {
    const names = await readdir(this.folderOf(run)).catch(() => []);
    return names.flatMap((name) => parseName(name) ?? []).sort((a, b) => b.step - a.step);
  }

  /** Creates the folder if it is missing, and removes leftovers to make room. Call before a state is written. */
  async prepare(run: string): Promise<void> {
    const folder = this.folderOf(run);
    await mkdir(folder, { recursive: true });
    await removeLeftovers(folder);
  }

  /**
   * Keeps the state `saved`, the newest older states of the run (`keep` states in all), and the state of step `spare`. All others are
   * removed, also newer ones: those belong to another store.
   */
  async prune(run: string, saved: LocalState, keep: number, spare?: number): Promise<void> {
    const states = await this.list(run);
    const older = states.filter(({ step }) => step < saved.step).slice(0, keep - 1);
    const others = states.filter(
      (one) => one.state !== saved.state && one.step !== spare && !older.includes(one),
    );
    await Promise.all(others.map((state) => rm(this.path(run, state), { force: true })));
  }

  /** Keeps the states of the `keep` runs that saved a state here last. The states of an ended run are in its store or can be computed. */
  async pruneRuns(keep: number): Promise<void> {
    const runs = await readdir(this.folder).catch(() => []);
    if (runs.length > keep)
      await keepNewest(
        runs.map((run) => join(this.folder, run)),
        keep,
      );
  }

  /** Keeps the `keep` most recently used files of all runs. */
  async pruneAll(keep: number): Promise<void> {
    const runs = await readdir(this.folder).catch(() => []);
    const files = await Promise.all(
      runs.map(async (run) => (await this.list(run)).map((state) => this.path(run, state))),
    );
    await keepNewest(files.flat(), keep);
    // `rmdir` removes only empty folders: those of runs without a file.
    await Promise.all(runs.map((run) => rmdir(join(this.folder, run)).catch(() => undefined)));
  }

  private folderOf(run: string): string {
    return join(this.folder, checkRunId(run));
  }
}

function parseName(name: string): LocalState | null {
  const match = /^(\d{6,})\.([0-9a-f]{64})\.safetensors$/.exec(name);
  return match?.[1] && match[2] ? { step: Number(match[1]), state: match[2] } : null;
}

export async function fileExists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null)) !== null;
}
