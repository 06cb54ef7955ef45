// The states on a node's disk: a folder for each run, a file for each state, named for what it holds.
import { mkdir, readdir, rm, rmdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { removeLeftovers } from './leftovers.js';
import type { Digest } from '../spec/records/parts.js';
import { checkRunId } from '../store/objects/layout.js';

export interface LocalState {
  step: number;
  state: Digest;
}

/** States of a run that stay on the node's disk: the newest, and one before it in case the newest is damaged. */
export const statesKept = 2;

export class LocalStates {
  constructor(private readonly folder: string) {}

  /** The digest is part of the path: a folder may outlive its store, and the same step of another store is another state. */
  path(run: string, { step, state }: LocalState): string {
    const name = `${String(step).padStart(6, '0')}.${state}.safetensors`;
    if (!parseName(name)) throw new TypeError(`${name.slice(0, 120)} is no name of a state's file`);
    return join(this.#folderOf(run), name);
  }

  /** Newest first; of any store that this folder has served. */
  async list(run: string): Promise<LocalState[]> {
    const names = await readdir(this.#folderOf(run)).catch(() => []);
    return names.flatMap((name) => parseName(name) ?? []).sort((a, b) => b.step - a.step);
  }

  /** Makes the folder if it is missing, and room in it. Called before a state is written there. */
  async prepare(run: string): Promise<void> {
    const folder = this.#folderOf(run);
    await mkdir(folder, { recursive: true });
    await removeLeftovers(folder);
  }

  /**
   * Keeps `saved`, older states of the run up to `keep` in all, and that of step `spare`; removes the rest: a newer state is another
   * store's.
   */
  async prune(run: string, saved: LocalState, keep: number, spare?: number): Promise<void> {
    const states = await this.list(run);
    const older = states.filter(({ step }) => step < saved.step).slice(0, keep - 1);
    const others = states.filter(
      (one) => one.state !== saved.state && one.step !== spare && !older.includes(one),
    );
    await Promise.all(others.map((state) => rm(this.path(run, state), { force: true })));
  }

  /** Keeps the states of the `keep` runs that were saved here last: the states of an ended run are in its store, or can be computed. */
  async pruneRuns(keep: number): Promise<void> {
    const runs = await readdir(this.folder).catch(() => []);
    if (runs.length <= keep) return;
    const saved = await Promise.all(
      runs.map(async (run) => ({
        run,
        at: (await stat(join(this.folder, run)).catch(() => null))?.mtimeMs ?? 0,
      })),
    );
    const older = saved.sort((a, b) => b.at - a.at).slice(keep);
    await Promise.all(older.map(({ run }) => rm(join(this.folder, run), { recursive: true, force: true })));
  }

  /** Keeps the `keep` files that were used last, across all runs. */
  async pruneAll(keep: number): Promise<void> {
    const runs = await readdir(this.folder).catch(() => []);
    const files = await Promise.all(
      runs.map(async (run) =>
        Promise.all(
          (await this.list(run)).map(async (state) => {
            const path = this.path(run, state);
            return { path, at: (await stat(path).catch(() => null))?.mtimeMs ?? 0 };
          }),
        ),
      ),
    );
    const older = files
      .flat()
      .sort((a, b) => b.at - a.at)
      .slice(keep);
    await Promise.all(older.map(({ path }) => rm(path, { force: true })));
    // Removes the folders of runs that have no file any more.
    await Promise.all(runs.map((run) => rmdir(join(this.folder, run)).catch(() => undefined)));
  }

  #folderOf(run: string): string {
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
