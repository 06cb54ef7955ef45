// The rule `longhaul/import-arrows`: which folder of src/ may import which. A type import reaches further than a value
// import where the layout says so, because types are gone at run time.
import { dirname, relative, resolve, sep } from 'node:path';

// A folder imports only folders above it in this list.
const everything = [
  'base',
  'spec',
  'rl',
  'store',
  'engine',
  'environments',
  'episode',
  'models',
  'data',
  'policy',
  'report',
  'integrations',
  'followers',
  'sweeps',
  'activities',
  'workflows',
  'workers',
  'stack',
  'cli',
];

/** For each folder: folders that it may import, and those of which it may import types only. Its own is always allowed. */
export const arrows = {
  base: { values: [], types: [] },
  spec: { values: ['base'], types: [] },
  rl: { values: ['spec'], types: [] },
  store: { values: ['base', 'spec'], types: [] },
  engine: { values: ['base', 'spec'], types: [] },
  environments: { values: ['base', 'spec'], types: [] },
  episode: { values: ['base', 'spec'], types: ['engine', 'environments'] },
  models: { values: ['base', 'spec', 'store', 'episode'], types: [] },
  data: { values: ['base', 'spec', 'store', 'environments', 'episode'], types: [] },
  policy: { values: ['base', 'spec', 'store', 'engine', 'episode', 'models'], types: [] },
  report: { values: ['base', 'spec', 'rl', 'store'], types: [] },
  integrations: { values: ['base', 'spec', 'rl'], types: [] },
  followers: { values: ['base', 'spec', 'rl', 'store', 'integrations'], types: [] },
  sweeps: { values: ['base', 'spec', 'rl', 'store', 'report'], types: [] },
  activities: {
    values: [
      'base',
      'spec',
      'rl',
      'store',
      'engine',
      'environments',
      'episode',
      'data',
      'policy',
      'report',
      'sweeps',
    ],
    types: [],
  },
  workflows: { values: [], types: ['spec', 'activities'] },
  workers: { values: everything.slice(0, everything.indexOf('stack')), types: [] },
  stack: { values: ['base', 'workers', 'workflows'], types: [] },
  cli: { values: everything, types: [] },
};

/** Exceptions of single files, each for a reason. */
const singleFiles = {
  // Classes of the interfaces themselves: an error cannot be told by its type alone.
  'engine/policy-engine': ['episode'],
  'environments/environment': ['episode'],
  // Equality of numerics decides who gets which node: functions that import types only, so that the workflows' bundle stays small.
  'spec/records/numerics': ['workflows'],
  // How an absent pass rate reads must not differ between the Temporal UI and the command line; it imports nothing either.
  'spec/pass-rate': ['workflows'],
  // Those who read a run's records expect the evaluations that its workflow plays; it imports nothing either.
  'spec/suite-due': ['workflows'],
};

export const importArrows = {
  meta: {
    type: 'problem',
    docs: { description: 'Folders of src/ import each other only along the arrows of the layout.' },
    messages: {
      forbidden: 'src/{{from}} may not import src/{{to}}{{hint}}.',
      typesOnly: 'src/{{from}} may import src/{{to}} as types only: write `import type`.',
    },
    schema: [],
  },
  create(context) {
    const source = resolve(context.cwd, 'src');
    const from = folderOf(source, context.filename);
    if (from === null || !(from in arrows)) return {};

    function checkImport(node, isType) {
      const specifier = node.source?.value;
      if (typeof specifier !== 'string' || !specifier.startsWith('.')) return;
      const target = resolve(dirname(context.filename), specifier);
      const to = folderOf(source, target);
      if (to === null || to === from || !everything.includes(to)) return;
      const { values, types } = arrows[from];
      if (values.includes(to)) return;
      if (isType && types.includes(to)) return;
      const module = relative(source, target)
        .split(sep)
        .join('/')
        .replace(/\.[jt]s$/, '');
      if (singleFiles[module]?.includes(from)) return;
      const allowed = [...values, ...types.map((folder) => `${folder} (types)`)];
      const hint =
        allowed.length === 0 ? '; it imports nothing but itself' : `; it may import ${allowed.join(', ')}`;
      context.report({
        node,
        messageId: types.includes(to) ? 'typesOnly' : 'forbidden',
        data: { from, to, hint },
      });
    }

    const everyNameIsType = (node, kind) =>
      node[kind] === 'type' ||
      (node.specifiers.length > 0 && node.specifiers.every((one) => one[kind] === 'type'));
    return {
      ImportDeclaration: (node) => checkImport(node, everyNameIsType(node, 'importKind')),
      ExportNamedDeclaration: (node) => checkImport(node, everyNameIsType(node, 'exportKind')),
      ExportAllDeclaration: (node) => checkImport(node, node.exportKind === 'type'),
      ImportExpression: (node) => checkImport(node, false),
      TSImportType: (node) => checkImport({ ...node, source: node.source ?? node.argument?.literal }, true),
    };
  },
};

/** First folder below src/, or null. */
function folderOf(source, file) {
  const path = relative(source, file);
  if (path.startsWith('..')) return null;
  const [folder, ...rest] = path.split(sep);
  return rest.length > 0 ? (folder ?? null) : null;
}
