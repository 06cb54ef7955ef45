// What `train` would refuse, `doctor --spec` refuses: the model's files, a prepared dataset, a name that another run has.
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { type SoundSpec, soundSpec, specChecks } from '../../../src/cli/stack/spec-checks.js';
import { writeDataset } from '../../../src/data/dataset-writer.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { parseRunSpec } from '../../../src/spec/spec-input.js';
import { createEnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { faultsOfApps, listsOf, servedApps } from '../../../examples/apps/server/served-apps.js';
import { openStore } from '../../../src/store/open-store.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const folder = scratchFolder();
const address = `dir:${join(folder, 'store')}`;
const small = resolve('presets/tokenizers/small');

const shape = {
  ...{ vocab_size: 4096, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 },
  ...{ num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16 },
};
const own = {
  name: 'mine',
  model: {
    name: 'm',
    architecture: shape,
    tokenizer: join(small, 'tokenizer.json'),
    chat_template: join(small, 'chat_template.jinja'),
  },
  data: { source: 'crm@v1', eval_tasks: 1, final_eval_tasks: 1 },
  environments: [{ env_key: 'crm', url: 'http://127.0.0.1:9' }],
  trainer: { max_training_steps: 3 },
};
const task = (task_key: string, split: 'train' | 'held_out', env_key = 'crm') => ({
  ...{ task_key, split, env_key, prompt: task_key, env_variables: {}, difficulty: 1, template: env_key },
});
const prepared = { excluded: [], gathered: 'a'.repeat(64), gates: 'b'.repeat(64), solved: 0 };

async function stored(version: string, tasks: ReturnType<typeof task>[]): Promise<void> {
  const store = await openStore(address);
  await writeDataset(store, { name: 'crm', version }, { tasks, demonstrations: [], tools: '{}', prepared });
}

async function outcomes(
  given: RunSpec | SoundSpec | Error,
  stack: { stackServer: string | null; stackToken?: string } = { stackServer: null },
): Promise<Record<string, string>> {
  const place = { path: 'crm.yaml', store: address, start: 'longhaul up', ...stack };
  const sound = given instanceof Error || 'spec' in given ? given : { spec: given, files: null };
  const results = await Promise.all(specChecks(sound, place));
  return Object.fromEntries(
    results.map(({ check, ok, detail }) => [check, `${ok ? 'ok' : 'WRONG'}: ${detail}`]),
  );
}

test('a spec that can start is sound', async () => {
  await stored('v1', [task('a', 'train'), task('b', 'held_out')]);
  expect(await outcomes(parseRunSpec(own))).toMatchObject({
    spec: 'ok: crm.yaml is sound: 1 training task, 1 held out',
    model: 'ok: tokenizer and chat template load; tool calls are read as hermes',
    run: 'ok: mine is a new run',
  });
});

test('a prepared dataset without held-out tasks, of another environment, or that is not there, is refused', async () => {
  await stored('none', [task('a', 'train')]);
  await stored('other', [task('a', 'train', 'mail'), task('b', 'held_out', 'mail')]);
  const withSource = (source: string) => parseRunSpec({ ...own, data: { ...own.data, source } });
  const { spec: none } = await outcomes(withSource('crm@none'));
  expect(none).toMatch(/^WRONG: [^]*asks for 1 evaluation task, but the data has only 0 held-out tasks/);
  const { spec: other } = await outcomes(withSource('crm@other'));
  expect(other).toMatch(/^WRONG: [^]*tasks name the environment "mail", which is not listed/);
  const { spec: absent } = await outcomes(withSource('crm@v9'));
  expect(absent).toMatch(/^WRONG: [^]*no prepared dataset crm@v9/);
});

test('a task file without held-out tasks is refused before anything else is asked', async () => {
  writeFileSync(join(folder, 'tasks.jsonl'), `${JSON.stringify(task('a', 'train'))}\n`);
  const path = join(folder, 'file.yaml');
  const data = { tasks: join(folder, 'tasks.jsonl'), eval_tasks: 1, final_eval_tasks: 1 };
  writeFileSync(path, JSON.stringify({ ...own, data }));
  const { spec } = await outcomes(await soundSpec(path));
  expect(spec).toMatch(/^WRONG: [^]*only 0 held-out tasks/);
});

test('the tasks are read once', async () => {
  const tasks = join(folder, 'once.jsonl');
  writeFileSync(tasks, `${JSON.stringify(task('a', 'train'))}\n${JSON.stringify(task('b', 'held_out'))}\n`);
  const path = join(folder, 'once.yaml');
  writeFileSync(path, JSON.stringify({ ...own, data: { tasks, eval_tasks: 1, final_eval_tasks: 1 } }));
  const sound = await soundSpec(path);
  rmSync(tasks);
  expect((await outcomes(sound)).spec).toBe('ok: crm.yaml is sound: 1 training task, 1 held out');
});

test('a model folder with too few positions is refused', async () => {
  const path = join(folder, 'model');
  mkdirSync(path);
  cpSync(small, path, { recursive: true });
  const config = {
    ...shape,
    architectures: ['Qwen3ForCausalLM'],
    model_type: 'qwen3',
    max_position_embeddings: 512,
  };
  writeFileSync(join(path, 'config.json'), JSON.stringify(config));
  writeFileSync(join(path, 'model.safetensors'), 'x');
  const { model } = await outcomes(parseRunSpec({ ...own, model: { name: 'm', path } }));
  expect(model).toMatch(/^WRONG: [^]*generator\.max_sequence_length: 16384 is more than 512/);
});

test('a tokenizer that is not there is refused', async () => {
  const tokenizer = join(folder, 'no-tokenizer.json');
  const { model } = await outcomes(parseRunSpec({ ...own, model: { ...own.model, tokenizer } }));
  expect(model).toMatch(/^WRONG: [^]*model\.tokenizer: there is no file/);
});

test('demonstrations whose environment cannot list its tools are refused, as by the start of a run', async () => {
  const [tasks, demonstrations] = ['shown-tasks.jsonl', 'shown.jsonl'].map((name) => join(folder, name)) as [
    string,
    string,
  ];
  const call = (name: string) => `<tool_call>{"name": "${name}", "arguments": {}}</tool_call>`;
  const shown = (env_key: string, ...calls: string[]) => ({
    ...{ kind: 'teacher', env_key },
    messages: [
      { role: 'user', content: 'Do it.' },
      ...calls.flatMap((name) => [
        { role: 'assistant', content: call(name) },
        { role: 'tool', content: 'done' },
      ]),
      { role: 'assistant', content: 'Did it. <done>' },
    ],
  });
  const write = (path: string, rows: object[]): void =>
    writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const served = { port: 0, faults: faultsOfApps, gradingToken: 'a', apps: servedApps(), listsOf };
  const server = await createEnvironmentServer(served);
  onTestFinished(() => server.close());
  const [solved, held] = ['tracker/close_issue/000001', 'tracker/close_issue/000002'] as const;
  const ofTracker = [task(solved, 'train', 'tracker'), task(held, 'held_out', 'tracker')];
  write(tasks, ofTracker);
  const environments = [
    { env_key: 'tracker', url: server.url },
    { env_key: 'away', url: 'http://127.0.0.1:9' },
  ];
  const data = { tasks, demonstrations, eval_tasks: 1, final_eval_tasks: 1 };
  const path = join(folder, 'shown.yaml');
  writeFileSync(path, JSON.stringify({ ...own, environments, data }));
  const found = async (...rows: object[]) => {
    write(demonstrations, rows);
    const results = await outcomes(await soundSpec(path));
    return results['demonstrations'] ?? results['spec'];
  };
  expect(await found(shown('tracker', 'list_issues'))).toBe(
    'ok: 1 demonstration; their tools are listed by tracker',
  );
  expect(await found(shown('tracker', 'delete_all', 'delete_all'), shown('tracker', 'delete_all'))).toBe(
    'ok: 2 demonstrations; their tools are listed by tracker; some call tools that their environment does not list: delete_all of tracker (2)',
  );
  expect(await found(shown('mail'))).toMatch(
    /^WRONG: [^]*demonstrations name the environment "mail", which is not listed/,
  );
  expect(await found(shown('away'))).toMatch(
    /^WRONG: [^]*demonstrations name the environment "away", but no task does/,
  );
  write(tasks, [...ofTracker, task('c', 'train', 'away')]);
  expect(await found(shown('away'))).toMatch(/^WRONG: [^]*tools of the environment "away" cannot be listed/);
  write(tasks, [{}]);
  expect(await found(shown('tracker'))).toMatch(/^WRONG: [^]*tasks\.jsonl/);
  expect(await outcomes(parseRunSpec(own))).not.toHaveProperty('demonstrations');
}, 60_000);

test('a fork of a run or in a store that is not there is refused', async () => {
  await stored('v5', [task('a', 'train'), task('b', 'held_out')]);
  const spec = parseRunSpec({ ...own, fork: { run: 'nope', step: 3 } });
  const { run } = await outcomes(spec);
  expect(run).toMatch(/^WRONG: [^]*fork\.run: there is no run "nope" in .*store; name one that/);
  const place = { path: 'x', store: `dir:${join(folder, 'none')}`, stackServer: null, start: '' };
  const results = await Promise.all(specChecks({ spec, files: null }, place));
  expect(results.find(({ check }) => check === 'run')?.detail).toMatch(/there is no store at/);
});

test('the grading token is tried, and on the stack’s server it is the stack’s own', async () => {
  const served = { port: 0, faults: faultsOfApps, gradingToken: 'right', apps: servedApps(), listsOf };
  const server = await createEnvironmentServer(served);
  onTestFinished(() => server.close());
  onTestFinished(() => void vi.unstubAllEnvs());
  const grading_token_env = 'GRADING_TOKEN_OF_THE_TEST';
  const environment = { env_key: 'tracker', url: server.url, grading_token_env };
  const tasks = ['1', '2'].map((n, index) =>
    task(`tracker/close_issue/00000${n}`, index ? 'held_out' : 'train', 'tracker'),
  );
  const files = { tasks, demonstrations: [], verifiers: new Map() };
  const { source: _source, ...data } = own.data;
  const spec = parseRunSpec({ ...own, data: { ...data, tasks: '/tasks' }, environments: [environment] });
  const found = async (...stack: Parameters<typeof outcomes>[1][]): Promise<string> =>
    (await outcomes({ spec, files }, ...stack))['environment tracker'] ?? '';
  expect(await found()).toContain('WRONG: the variable GRADING_TOKEN_OF_THE_TEST, which holds');
  const stack = { stackServer: server.url, stackToken: 'right' };
  expect(await found(stack)).toMatch(/^ok: .*it grades on request/);
  expect(await found({ ...stack, stackServer: 'http://127.0.0.1:9' })).toMatch(/^WRONG: the variable/);
  vi.stubEnv(grading_token_env, 'wrong');
  expect(await found(stack)).toMatch(/^ok: .*it grades on request/);
  expect(await found()).toContain(`WRONG: ${server.url} refuses the grading token: `);
  vi.stubEnv(grading_token_env, 'right');
  expect(await found()).toMatch(/^ok: .*it grades on request/);
});
