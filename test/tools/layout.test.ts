import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { expect, test } from 'vitest';

const folders = (root: string): string[] => [
  root,
  ...readdirSync(root, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap((entry) => folders(join(root, entry.name))),
];
const filesIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(folder, entry.name));

function importsOf(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  return [...text.matchAll(/\b(?:from|import)\s*\(?\s*'(\.{1,2}\/[^']+)'/g)].map((found) =>
    resolve(dirname(file), found[1] as string).replace(/\.js$/, '.ts'),
  );
}

/** A cycle of imports, including type imports, as a list of its files; null if there is none. */
function circleIn(imports: Map<string, string[]>): string[] | null {
  const done = new Set<string>();
  const path: string[] = [];
  const visit = (file: string): string[] | null => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return null;
    path.push(file);
    for (const imported of imports.get(file) ?? []) {
      const circle = visit(imported);
      if (circle) return circle;
    }
    path.pop();
    done.add(file);
    return null;
  };
  for (const file of imports.keys()) {
    const circle = visit(file);
    if (circle) return circle;
  }
  return null;
}

test.each(['src', 'test'])('no folder of %s has more than 20 files', (root) => {
  const crowded = folders(root).filter((folder) => filesIn(folder).length > 20);
  expect(crowded).toEqual([]);
});

test('no import cycle exists between files of src', () => {
  const files = folders('src')
    .flatMap(filesIn)
    .filter((file) => file.endsWith('.ts'));
  const imports = new Map(files.map((file) => [resolve(file), importsOf(file)]));
  expect([...imports.values()].flat().length).toBeGreaterThan(files.length);
  expect(circleIn(imports)).toBeNull();
});

test('no import cycle exists between sibling subfolders of src', () => {
  const below = folders('src').filter((folder) => folder.split('/').length === 3);
  const partOf = (file: string): string | undefined =>
    below.find((folder) => resolve(file).startsWith(`${resolve(folder)}/`));
  const imports = new Map(
    below.map((folder) => {
      const imported = folders(folder).flatMap(filesIn).flatMap(importsOf).map(partOf);
      const neighbours = imported.filter(
        (other) => other !== undefined && other !== folder && dirname(other) === dirname(folder),
      ) as string[];
      return [folder, [...new Set(neighbours)]];
    }),
  );
  expect([...imports.values()].flat().length).toBeGreaterThan(10);
  expect(circleIn(imports)).toBeNull();
});

test('the search finds a cycle', () => {
  const imports = new Map([
    ['a', ['b']],
    ['b', ['c', 'd']],
    ['c', []],
    ['d', ['b']],
  ]);
  expect(circleIn(imports)).toEqual(['b', 'd', 'b']);
});

const { arrows } = (await import(resolve('tools/lint/import-arrows.js'))) as {
  arrows: Record<string, { values: string[]; types: string[] }>;
};

test('the linter lets a folder import only folders above it', () => {
  const order = Object.keys(arrows);
  const leadDown = Object.entries(arrows).flatMap(([from, { values, types }]) =>
    [...values, ...types]
      .filter((to) => to !== from && !order.slice(0, order.indexOf(from)).includes(to))
      .map((to) => `${from} → ${to}`),
  );
  expect(leadDown).toEqual([]);
});

test('the tree in docs/architecture.md has a line for each folder of src, in the order in which they may import', () => {
  const page = readFileSync('docs/architecture.md', 'utf8');
  const lines = [...page.matchAll(/^(?:src\/(\w+)|    ([\w-]+))\/ /gm)];
  let above = '';
  const described = lines.map(([, first, second]) => (first ? (above = first) : `${above}/${second ?? ''}`));
  expect(described.filter((path) => !path.includes('/'))).toEqual(Object.keys(arrows));
  const twoLevels = folders('src')
    .slice(1)
    .map((folder) => folder.split('/').slice(1, 3).join('/'))
    .filter((path) => path !== 'types');
  expect(described.sort()).toEqual([...new Set(twoLevels)].sort());
});
