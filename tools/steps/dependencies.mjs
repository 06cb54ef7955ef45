// Installs node_modules. It is current if every package of package-lock.json is installed in its version and the one native addon loads.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { spawnSync } from 'node:child_process';
import { repository, withLock } from './cache.mjs';
import { runLong, SetupError } from './command.mjs';
import { isReachable } from './downloads.mjs';
import { requireNodeGyp, requireNpm } from './prerequisites.mjs';

/** The host of the addon's prebuilt files. */
const prebuiltHost = 'github.com';
const addonHint =
  'better-sqlite3 needs a C++ compiler, make and Python 3 if no prebuilt file can be downloaded.';

/** Fails now if the packages could not be installed minutes later. */
export async function checkDependencyTools() {
  if (!packagesAreCurrent()) requireNpm();
  if (!addonLoads() && !(await isReachable(prebuiltHost)))
    requireNodeGyp(`better-sqlite3 is built from source, because ${prebuiltHost} cannot be reached.`);
}

export async function ensureDependencies() {
  const done = [];
  await withLock(`dependencies-${Buffer.from(repository).toString('base64url').slice(-40)}`, async () => {
    if (!packagesAreCurrent()) {
      await runLong(requireNpm(), ['ci', '--no-audit', '--no-fund', '--foreground-scripts'], {
        label: 'npm ci',
        timeoutMs: 10 * 60_000,
        hint: addonHint,
      });
      done.push('installed');
    }
    if (!addonLoads()) {
      // npm 11 runs install scripts only if they are allowed. An addon that was built for another Node version does not load.
      await runLong(
        requireNpm(),
        ['rebuild', 'better-sqlite3', '--allow-scripts=better-sqlite3', '--foreground-scripts'],
        {
          label: 'better-sqlite3 build',
          timeoutMs: 10 * 60_000,
          hint: addonHint,
        },
      );
      if (!addonLoads())
        throw new SetupError(
          'better-sqlite3 was built but does not load. Remove node_modules and start again.',
        );
      done.push('better-sqlite3 built');
    }
  });
  return done.length === 0 ? 'current' : done.join(', ');
}

function packagesAreCurrent() {
  const installedPath = join(repository, 'node_modules/.package-lock.json');
  if (!existsSync(installedPath)) return false;
  const wanted = JSON.parse(readFileSync(join(repository, 'package-lock.json'), 'utf8')).packages;
  const installed = JSON.parse(readFileSync(installedPath, 'utf8')).packages;
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === '') continue;
    const present = installed[path];
    if (present === undefined ? !entry.optional : present.version !== entry.version) return false;
  }
  return true;
}

/** Loads the addon by opening a database. This needs a separate process, because a loaded addon cannot be replaced. */
function addonLoads() {
  const script = "new (require('better-sqlite3'))(':memory:').close()";
  return spawnSync(process.execPath, ['-e', script], { cwd: repository, timeout: 20_000 }).status === 0;
}
