// The lint rule `longhaul/import-arrows`: which folder of src/ may import which. Some folders may import only types of another one, because
// types are gone at run time.
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
  'sweeps',
  'activities',
  'workflows',
  'workers',
  'stack',
  'cli',
];

/**
 * For each folder: the folders that it may import, and the folders from which it may import only types. A folder may always import from
 * itself.
 */
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
  report: { values: ['base', 'spec', 'rl', 'store', 'episode'], types: [] },
  integrations: { values: ['base', 'spec', 'rl'], types: [] },
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

/** Single files that more folders may import, each with the reason. */
const singleFiles = {
  // These files define the error classes of the interfaces. `instanceof` needs the class; a type is not enough.
  'engine/policy-engine': ['episode'],
  'environments/environment': ['episode'],
  // There is one comparison with a full reward, and one sum of rewards. This file imports nothing.
  'rl/episode-reward': ['store', 'environments', 'data'],
  // Slack's charts and the report's are drawn alike. This file imports nothing.
  'report/charts/svg': ['integrations'],
  // Functions that compare numerics decide which run gets which node. They import only types, so the workflows' bundle stays small.
  'spec/records/numerics': ['workflows'],
  // The Temporal UI and the command line must show an absent pass rate in the same words. This file imports nothing.
  'spec/pass-rate': ['workflows'],
  // The workflow that ends a run and the report must count alike what is spent. It imports only types.
  'spec/budget': ['workflows'],
  // Readers of a run's records must expect the evaluations that its workflow plays. This file imports nothing.
  'spec/suite-due': ['workflows'],
  // What a spec allows and what may be set during a run must have one table of ranges. This file imports nothing.
  'spec/records/live-ranges': ['workflows'],
};

export const importArrows = {
  meta: {
    type: 'problem',
    docs: { description: 'Folders of src/ import each other only along the arrows of the layout.' },
    messages: {
      forbidden: 'src/{{from}} may not import src/{{to}}{{hint}}.',
      example: 'src/ imports nothing of examples/: users have environments of their own.',
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
      if (relative(context.cwd, target).startsWith('examples'))
        context.report({ node, messageId: 'example' });
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
        allowed.length === 0 ? '; it may import only itself' : `; it may import ${allowed.join(', ')}`;
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
