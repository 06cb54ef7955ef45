// Copies the files that the compiler does not copy: Python programs, browser scripts and tables beside the code that reads or starts them. `node
// tools/copy-assets.mjs` copies them to dist/.
import { copyFileSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const repository = fileURLToPath(new URL('..', import.meta.url));

/** `output`: folder in which the compiler puts the files that it makes of `root`. */
export function copyAssets(root = 'src', output = 'dist') {
  const source = join(repository, 'src');
  const target = join(repository, output, root === '.' ? 'src' : '');
  for (const name of readdirSync(source, { recursive: true, encoding: 'utf8' })) {
    if (!/\.(py|browser\.js|yaml)$/.test(name)) continue;
    mkdirSync(dirname(join(target, name)), { recursive: true });
    copyFileSync(join(source, name), join(target, name));
  }
}

if (
  process.argv[1] &&
  existsSync(process.argv[1]) &&
  resolve(process.argv[1]) === fileURLToPath(import.meta.url)
)
  copyAssets();
