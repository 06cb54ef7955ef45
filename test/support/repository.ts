// The checkout's root, both from a test's source and from its compiled form in `dist/dev`.
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const repository: string = rootAbove(dirname(fileURLToPath(import.meta.url)));

function rootAbove(folder: string): string {
  if (existsSync(join(folder, 'package.json'))) return folder;
  const above = dirname(folder);
  if (above === folder) throw new Error('there is no package.json above this file');
  return rootAbove(above);
}

/** Path of a file below `dist/`. */
export const built = (path: string): string => join(repository, 'dist', path);

/** The built entry scripts of a stack. */
export const builtScripts = {
  orchestrator: built('workers/orchestrator-main.js'),
  node: built('workers/node-main.js'),
  environments: [process.execPath, built('examples/apps/server/main.js')],
  follower: built('workers/follower-main.js'),
};
