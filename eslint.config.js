// Besides the usual rules, this holds the architecture: who may import whom, and what workflow code may not touch.
import tseslint from 'typescript-eslint';
import { importArrows } from './tools/lint/import-arrows.js';

/**
 * A workflow is replayed from its history: whatever answers differently the second time breaks it. `Date.now()` is
 * allowed: in the isolate it is the workflow's own time, the same in every replay.
 */
const notInWorkflows = {
  'no-restricted-globals': [
    'error',
    { name: 'process', message: 'Workflows have no process; pass what they need as input.' },
    { name: 'console', message: 'Use `log` of @temporalio/workflow, which is silent on replay.' },
    { name: 'fetch', message: 'Workflows do no I/O; use an activity.' },
    { name: 'crypto', message: 'Use `uuid4` of @temporalio/workflow.' },
    { name: 'performance', message: 'Workflow time stands still between tasks; measure in an activity.' },
  ],
  'no-restricted-properties': [
    'error',
    {
      object: 'Math',
      property: 'random',
      message: 'Random choices belong in plans, keyed by the run’s seed.',
    },
  ],
  'no-restricted-imports': [
    'error',
    {
      patterns: [
        { regex: '^node:', message: 'Workflows run in an isolate without Node’s modules.' },
        {
          regex: '^(fs|path|os|crypto|child_process|http|https|net|util|stream|events|worker_threads)(/|$)',
          message: 'Workflows run in an isolate without Node’s modules.',
        },
        {
          regex:
            '^(zod|ws|yaml|better-sqlite3|@aws-sdk/|@slack/|@huggingface/|@temporalio/(client|worker|activity))',
          message: 'This belongs in an activity.',
        },
      ],
    },
  ],
};

/** What scripts of the report's page use of the browser. */
const inPages = [
  'document',
  'window',
  'history',
  'location',
  'FormData',
  'URLSearchParams',
  'setTimeout',
  'clearTimeout',
];
const wrongInScripts = [
  ...['no-undef', 'no-unused-vars', 'prefer-const', 'no-var', 'no-const-assign', 'no-dupe-keys'],
  ...['no-unreachable', 'no-self-assign', 'no-unsafe-finally'],
];

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', 'coverage/', '.longhaul/', 'native/'] },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { longhaul: { rules: { 'import-arrows': importArrows } } },
    rules: {
      'longhaul/import-arrows': 'error',
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', caughtErrorsIgnorePattern: '^_' },
      ],
      '@typescript-eslint/require-await': 'off',
      // The reason of an AbortSignal has no type, and it is what a cancelled call must end with.
      '@typescript-eslint/prefer-promise-reject-errors': [
        'error',
        { allowThrowingAny: true, allowThrowingUnknown: true },
      ],
      // Protocol messages are `unknown` until checked, and both rules below then report what is right.
      '@typescript-eslint/no-base-to-string': 'off',
      '@typescript-eslint/unbound-method': 'off',
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true, allowBoolean: true, allowNever: true },
      ],
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      'no-restricted-syntax': [
        'error',
        { selector: 'ExportDefaultDeclaration', message: 'Export by name: a thing has one name everywhere.' },
      ],
    },
  },
  { files: ['src/workflows/**/*.ts'], rules: notInWorkflows },
  {
    files: [
      'src/{episode,data}/**/*.ts',
      'src/environments/{openenv,fleet}/**/*.ts',
      'src/report/transcripts/*.ts',
    ],
    // They read tokenizers, records of our own, words of an error, and grades.
    ignores: [
      'src/episode/{tokenizer,token-bytes,turn-journal}.ts',
      'src/environments/openenv/made-sessions.ts',
      'src/environments/fleet/json-request.ts',
      'src/data/task-file.ts',
      'src/report/transcripts/error-patterns.ts',
    ],
    rules: {
      'no-restricted-properties': [
        'error',
        {
          object: 'JSON',
          property: 'parse',
          message: 'Use `parseJson` of base/json.js, which keeps numbers from outside as they were written.',
        },
      ],
    },
  },
  {
    files: ['src/**/*.browser.js'],
    languageOptions: {
      sourceType: 'script',
      globals: Object.fromEntries(inPages.map((name) => [name, 'readonly'])),
    },
    rules: {
      ...Object.fromEntries(wrongInScripts.map((rule) => [rule, 'error'])),
      eqeqeq: ['error', 'always', { null: 'ignore' }],
    },
  },
  // Tools that load these files ask for a default export.
  {
    files: ['vitest.config.ts', 'test/support/whole-run/*.ts', 'src/types/*.d.ts'],
    rules: { 'no-restricted-syntax': 'off' },
  },
  {
    files: ['test/**/*.ts', 'bench/**/*.ts'],
    rules: {
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
    },
  },
);
