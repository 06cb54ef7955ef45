// Native addons compile against the headers that lie beside node, if they are of exactly its version.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ownFolder } from '../support/scratch-folder.js';

const { headersFolder, headersVariable } = (await import(
  new URL('../../tools/steps/node-headers.mjs', import.meta.url).href
)) as {
  headersFolder(executable: string, version: string): string | null;
  headersVariable(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv;
};

function nodeWithHeaders(version: readonly number[], withFlags = true): { root: string; node: string } {
  const root = ownFolder();
  mkdirSync(join(root, 'include/node'), { recursive: true });
  const defines = ['MAJOR', 'MINOR', 'PATCH'].map(
    (part, index) => `#define NODE_${part}_VERSION ${version[index]}\n`,
  );
  writeFileSync(join(root, 'include/node/node_version.h'), defines.join(''));
  if (withFlags) writeFileSync(join(root, 'include/node/common.gypi'), '{}');
  return { root, node: join(root, 'bin/node') };
}

test('headers of the same version are used', () => {
  const { root, node } = nodeWithHeaders([22, 21, 1]);
  expect(headersFolder(node, '22.21.1')).toBe(root);
});

test.each([
  ['of another version', () => nodeWithHeaders([22, 21, 0]).node],
  ['without the compiler’s flags', () => nodeWithHeaders([22, 21, 1], false).node],
  ['that are not there', () => join(ownFolder(), 'bin/node')],
])('headers %s are not', (_, node) => {
  expect(headersFolder(node(), '22.21.1')).toBeNull();
});

test('a folder that a person has named is kept', () => {
  expect(headersVariable({ npm_config_nodedir: '/mine' })).toEqual({});
});
