// Installs node_modules. It is current if every package of package-lock.json is installed in its version and the one native addon loads.
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { spawnSync } from 'node:child_process';
import { cacheRoot, repository, withLock } from './cache.mjs';
import { runLong, SetupError } from './command.mjs';
import { isReachable } from './downloads.mjs';
import { headersVariable } from './node-headers.mjs';
import { requireNodeGyp, requireNpm } from './prerequisites.mjs';

/** The host of the addon's prebuilt files. */
const prebuiltHost = 'github.com';
const addonHint =
  'better-sqlite3 needs a C++ compiler, make and Python 3 if no prebuilt file can be downloaded.';

/** Folder where the addon's own install script looks first for a prebuilt file. It keeps what was compiled here for other checkouts. */
const prebuilt = join(cacheRoot, 'better-sqlite3');
const environment = {
  ...process.env,
  ...headersVariable(),
  npm_config_better_sqlite3_local_prebuilds: prebuilt,
};

/** Fails now if the packages could not be installed minutes later. */
export async function checkDependencyTools() {
  if (!packagesAreCurrent()) requireNpm();
  if (!addonLoads() && !existsSync(prebuiltAddon()) && !(await isReachable(prebuiltHost)))
    requireNodeGyp(`better-sqlite3 is built from source, because ${prebuiltHost} cannot be reached.`);
}

export async function ensureDependencies() {
  const done = [];
  await withLock(`dependencies-${Buffer.from(repository).toString('base64url').slice(-40)}`, async () => {
    if (!packagesAreCurrent()) {
      await runLong(requireNpm(), ['ci', '--no-audit', '--no-fund', '--foreground-scripts'], {
        label: 'npm ci',
        env: environment,
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
          env: environment,
          hint: addonHint,
        },
      );
      if (!addonLoads())
        throw new SetupError(
          'better-sqlite3 was built but does not load. Remove node_modules and start again.',
        );
      done.push('better-sqlite3 built');
    }
    if (done.length > 0) keepAddon();
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

/** The name under which the install script looks for a prebuilt addon of this version, for this Node. */
function prebuiltAddon() {
  const { packages } = JSON.parse(readFileSync(join(repository, 'package-lock.json'), 'utf8'));
  const { version } = packages['node_modules/better-sqlite3'];
  const { modules } = process.versions;
  return join(
    prebuilt,
    `better-sqlite3-v${version}-node-v${modules}-${process.platform}-${process.arch}.tar.gz`,
  );
}

/** Compiling the addon takes more than a minute. Without `tar` it is compiled again for the next checkout. */
function keepAddon() {
  const kept = prebuiltAddon();
  if (existsSync(kept)) return;
  mkdirSync(prebuilt, { recursive: true });
  const packed = ['-C', join(repository, 'node_modules/better-sqlite3'), 'build/Release/better_sqlite3.node'];
  const { status } = spawnSync('tar', ['-czf', `${kept}.${process.pid}`, ...packed], { timeout: 20_000 });
  if (status === 0) renameSync(`${kept}.${process.pid}`, kept);
}

/** Loads the addon by opening a database. This needs a separate process, because a loaded addon cannot be replaced. */
function addonLoads() {
  const script = "new (require('better-sqlite3'))(':memory:').close()";
  return spawnSync(process.execPath, ['-e', script], { cwd: repository, timeout: 20_000 }).status === 0;
}
