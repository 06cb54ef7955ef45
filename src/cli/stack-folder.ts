// Finds the stack folder of a command that names no folder: `.longhaul` here, or else in the nearest folder above that has one.
import { statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

export const defaultStackFolder = '.longhaul';

/** The path relative to the current folder, for people. */
export function nearestStackFolder(): string {
  const here = process.cwd();
  if (isFolder(join(here, defaultStackFolder))) return defaultStackFolder;
  for (let above = here; above !== dirname(above);) {
    above = dirname(above);
    const found = join(above, defaultStackFolder);
    if (isOurs(found)) return relative(here, found);
  }
  return defaultStackFolder;
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

/** Accepts only a folder that this user owns. In a shared folder above, anybody could place a stack folder and receive our commands. */
function isOurs(path: string): boolean {
  try {
    const info = statSync(path);
    return info.isDirectory() && info.uid === process.getuid?.();
  } catch {
    return false;
  }
}
