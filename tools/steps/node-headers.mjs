// Finds the headers of this Node beside its executable, so that native addons compile without a download from nodejs.org.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/**
 * The folder for node-gyp's `nodedir`; null if no headers of exactly this version lie there.
 * @param {string} executable resolved path of node
 */
export function headersFolder(executable = process.execPath, version = process.versions.node) {
  const folder = dirname(dirname(executable));
  let text;
  try {
    text = readFileSync(join(folder, 'include/node/node_version.h'), 'utf8');
    // node-gyp reads the compiler's flags from this file.
    readFileSync(join(folder, 'include/node/common.gypi'));
  } catch {
    return null;
  }
  const part = (name) => new RegExp(`^#define NODE_${name}_VERSION (\\d+)`, 'm').exec(text)?.[1];
  return [part('MAJOR'), part('MINOR'), part('PATCH')].join('.') === version ? folder : null;
}

/** The variable that names the headers to node-gyp; empty if a person has set it, or there are none. */
export function headersVariable(environment = process.env) {
  const folder = environment.npm_config_nodedir ? null : headersFolder();
  return folder === null ? {} : { npm_config_nodedir: folder };
}
