// Ports that a stack keeps for its lifetime. Between the choice of a port and its server's start, and while a server restarts, the port
// looks free. A lock file, which ends with its process, keeps other stacks from choosing the port.
import { lstatSync, mkdirSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { type FolderLock, lockFile } from '../workers/process/folder-lock.js';
import { freePort, isPortFree } from './free-port.js';

/** Number of ports after the preferred one to try before any free one. */
const neighbours = 50;

export class ClaimedPorts {
  private readonly claims: FolderLock[] = [];
  private readonly folder = join(tmpdir(), `longhaul-ports-${userInfo().uid}`);

  constructor(private readonly log: (message: string) => void) {
    mkdirSync(this.folder, { recursive: true, mode: 0o700 });
    // Another user may have guessed the name and made the folder first, to redirect our writes.
    const info = lstatSync(this.folder);
    if (!info.isDirectory() || info.uid !== userInfo().uid || (info.mode & 0o077) !== 0) {
      throw new Error(
        `${this.folder} is not a folder of this user alone; remove it, or set TMPDIR to another folder`,
      );
    }
  }

  /** Claims port `given`. Throws an error that names the port if it is taken. */
  async exactly(what: string, given: number): Promise<number> {
    if (await this.claim(given)) return given;
    throw new Error(
      `port ${given} for the ${what} is taken by another process; omit the option to use a free port`,
    );
  }

  /** Claims the port of the stack's last start. A run keeps its server's address, so another port would not do. */
  async again(what: string, last: number): Promise<number> {
    if (await this.claim(last)) return last;
    throw new Error(`port ${last}, where this stack’s ${what} was and its runs play, is taken: free it`);
  }

  /** Claims `preferred` or, if it is taken, the next free port. */
  async near(what: string, preferred: number): Promise<number> {
    const last = Math.min(preferred + neighbours, 65_535);
    for (let port = preferred; port <= last; port++) {
      if (!(await this.claim(port))) continue;
      if (port !== preferred) this.log(`port ${preferred} is taken; the ${what} uses ${port}`);
      return port;
    }
    return this.any();
  }

  async any(): Promise<number> {
    for (;;) {
      const port = await freePort();
      if (await this.claim(port)) return port;
    }
  }

  release(): void {
    for (const claim of this.claims.splice(0)) claim.release();
  }

  /** False if a server listens on the port or another stack has claimed it. */
  private async claim(port: number): Promise<boolean> {
    const claim = lockFile(join(this.folder, String(port)), `port ${port}`);
    if ('holder' in claim) return false;
    if (await isPortFree(port)) {
      this.claims.push(claim);
      return true;
    }
    claim.release();
    return false;
  }
}
