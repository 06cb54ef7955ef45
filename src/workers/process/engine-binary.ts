// Finds the native engine.
import { builtToolPath } from './built-tool.js';

/** Path from LONGHAUL_ENGINE, or of the last build's engine. Throws if neither exists. */
export function findEngineBinary(): string {
  const path = process.env['LONGHAUL_ENGINE'] || builtToolPath('engine');
  if (path) return path;
  throw new Error(
    'the native engine has not been built: run `npm run build:native`, or name an engine with LONGHAUL_ENGINE',
  );
}
