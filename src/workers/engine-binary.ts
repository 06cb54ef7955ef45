// Where the native engine is. The build notes its path in `dist/engine-path`.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** LONGHAUL_ENGINE, or the engine of the last build. Throws when there is none. */
export function findEngineBinary(): string {
  const given = process.env['LONGHAUL_ENGINE'];
  if (given) return given;
  try {
    return readFileSync(fileURLToPath(new URL('../engine-path', import.meta.url)), 'utf8').trim();
  } catch {
    throw new Error('the native engine has not been built: run `npm run build:native`, or name one with LONGHAUL_ENGINE');
  }
}
