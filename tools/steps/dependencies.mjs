// node_modules: current when every package of package-lock.json is there in its version, and the one native addon loads.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { spawnSync } from 'node:child_process';
import { repository, withLock } from './cache.mjs';
import { findOnPath, runLong, SetupError } from './command.mjs';

export async function ensureDependencies() {
  const done = [];
  await withLock(`dependencies-${Buffer.from(repository).toString('base64url').slice(-40)}`, async () => {
    const npm = findOnPath('npm');
    if (!packagesAreCurrent()) {
      if (npm === null) throw new SetupError('npm not found. It comes with Node: see https://nodejs.org.');
      await runLong(npm, ['ci', '--no-audit', '--no-fund', '--foreground-scripts'], {
        label: 'npm ci',
        timeoutMs: 10 * 60_000,
      });
      done.push('installed');
    }
    if (!addonLoads()) {
      // npm 11 runs no install scripts unless told to, and an addon built for another Node version does not load.
      await runLong(
        npm ?? 'npm',
        ['rebuild', 'better-sqlite3', '--allow-scripts=better-sqlite3', '--foreground-scripts'],
        {
          label: 'better-sqlite3 build',
          timeoutMs: 10 * 60_000,
          hint: 'It needs a C++ compiler, make and Python 3 where no prebuilt file can be downloaded.',
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

/** Opening a database loads the addon; a separate process, because a loaded addon cannot be replaced. */
function addonLoads() {
  const script = "new (require('better-sqlite3'))(':memory:').close()";
  return spawnSync(process.execPath, ['-e', script], { cwd: repository, timeout: 20_000 }).status === 0;
}
