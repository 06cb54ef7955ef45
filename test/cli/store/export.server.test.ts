// `longhaul export` and `longhaul report`, on the store of a real run.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { namesFolder, runKey, sequenceKey } from '../../../src/store/record-keys.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { readRun, readState } from '../../../src/store/runs/run-records.js';
import { type Answer, longhaul as commandLine } from '../../support/command-line.js';
import { type Harness, run, startEnvironments, startHarness } from '../../activities/fixture.js';

let environments: EnvironmentServer;
let [full, adapted]: Harness[] = [];
beforeAll(async () => {
  environments = await startEnvironments();
  full = await startHarness(environments);
  await full.advance(1);
  adapted = await startHarness(environments);
  const model = { ...(adapted.spec['model'] as object), lora: { rank: 2, alpha: 4 } };
  await adapted.open({ ...adapted.spec, model });
  await adapted.advance(2);
});
afterAll(async () => {
  await full?.close();
  await adapted?.close();
  await environments.close();
});

const longhaul = (harness: Harness, ...args: string[]): Promise<Answer> =>
  commandLine([...args, '--store', `dir:${join(harness.folder, 'store')}`]);

const model = ['config.json', 'generation_config.json', 'model.safetensors'];
const tokenizer = ['chat_template.jinja', 'tokenizer.json', 'tokenizer_config.json'];

describe('longhaul export', () => {
  test('writes the last state of a run, or recomputes and writes the state after a step', async () => {
    const to = join(full!.folder, 'last');
    const { code, output, errors } = await longhaul(full!, 'export', run, '--to', to, '--json');
    expect(code, errors).toBe(0);
    expect(JSON.parse(output)).toMatchObject({
      run,
      step: 1,
      path: to,
      state: await readState(full!.store, run, 1),
    });
    expect(readdirSync(to).sort()).toEqual([...model, ...tokenizer].sort());
    const base = join(full!.folder, 'base');
    const first = await longhaul(full!, 'export', `${run}@0`, '--to', base, '--dtype', 'bf16');
    expect(first.output).toContain(`${run} after step 0, state ${await readState(full!.store, run, 0)}`);
    const sizeOf = (folder: string): number => readFileSync(join(folder, 'model.safetensors')).length;
    expect(sizeOf(base) / sizeOf(to)).toBeCloseTo(0.5, 1);
  });

  test('refuses --peft for a run that began with an adapter: its own adapters fit no folder', async () => {
    const base = join(adapted!.folder, 'a-base');
    const adapter = join(adapted!.folder, 'an-adapter');
    expect((await longhaul(adapted!, 'export', `${run}@0`, '--to', base)).code).toBe(0);
    expect((await longhaul(adapted!, 'export', run, '--to', adapter, '--peft')).code).toBe(0);
    const config = join(adapter, 'adapter_config.json');
    const settings = JSON.parse(readFileSync(config, 'utf8')) as object;
    writeFileSync(config, JSON.stringify({ ...settings, base_model_name_or_path: '../a-base' }));
    const again = await startHarness(environments);
    onTestFinished(() => again.close());
    await again.open({ ...again.spec, model: { name: 'unit', path: adapter, lora: { rank: 2, alpha: 4 } } });
    await again.advance(1);
    const to = join(again.folder, 'exported');
    const refused = await longhaul(again, 'export', run, '--to', to, '--peft');
    expect(refused.code).not.toBe(0);
    expect(refused.errors).toContain(`began with the adapter in ${adapter}, which is merged`);
    expect((await longhaul(again, 'export', run, '--to', to)).code).toBe(0);
    expect(readdirSync(to).sort()).toEqual([...model, ...tokenizer].sort());
  });

  test('refuses --peft for a run that began with a multimodal model, whose modules have other names', async () => {
    const base = join(adapted!.folder, 'a-multimodal-base');
    expect((await longhaul(adapted!, 'export', `${run}@0`, '--to', base)).code).toBe(0);
    const config = join(base, 'config.json');
    const text_config = JSON.parse(readFileSync(config, 'utf8')) as object;
    writeFileSync(config, JSON.stringify({ model_type: 'llava_onevision', vision_config: {}, text_config }));
    const again = await startHarness(environments);
    onTestFinished(() => again.close());
    await again.open({ ...again.spec, model: { name: 'unit', path: base, lora: { rank: 2, alpha: 4 } } });
    await again.advance(1);
    const to = join(again.folder, 'exported');
    const refused = await longhaul(again, 'export', run, '--to', to, '--peft');
    expect(refused.code).not.toBe(0);
    expect(refused.errors).toContain(`began with the language model of the multimodal model in ${base}`);
    expect((await longhaul(again, 'export', run, '--to', to)).code).toBe(0);
  });

  test('writes a LoRA state either merged or as adapters', async () => {
    const [merged, peft] = ['merged', 'peft'].map((name) => join(adapted!.folder, name)) as [string, string];
    expect((await longhaul(adapted!, 'export', run, '--to', merged)).code).toBe(0);
    expect(readdirSync(merged).sort()).toEqual([...model, ...tokenizer].sort());
    expect((await longhaul(adapted!, 'export', run, '--to', peft, '--peft')).code).toBe(0);
    expect(readdirSync(peft).sort()).toEqual(
      ['adapter_config.json', 'adapter_model.safetensors', ...tokenizer].sort(),
    );
  });

  test.each<[string, (to: string) => string[], RegExp]>([
    [
      'a step that is not committed',
      (to) => [`${run}@9`, '--to', to],
      /step 9 of unit is not committed: its last committed step is 1/,
    ],
    ['adapters of a run that trains none', (to) => [run, '--to', to, '--peft'], /trains all weights/],
    ['a run that does not exist', (to) => ['other', '--to', to], /there is no run "other"/],
  ])('refuses %s, and writes nothing', async (name, args, message) => {
    const to = join(full!.folder, name.replaceAll(' ', '-'));
    const { code, errors } = await longhaul(full!, 'export', ...args(to));
    expect(errors).toMatch(message);
    expect(code).toBe(1);
    expect(readdirSync(full!.folder).filter((file) => file.startsWith(name.replaceAll(' ', '-')))).toEqual(
      [],
    );
  });

  test('refuses a folder that exists or cannot be created, before it restores anything', async () => {
    const to = join(full!.folder, 'taken');
    mkdirSync(to);
    const { code, errors } = await longhaul(full!, 'export', run, '--to', to);
    expect(errors).toMatch(/^error: [^\n]* exists already: [^\n]*\n$/);
    expect(code).toBe(1);
    expect(readdirSync(to)).toEqual([]);
    const below = join(process.cwd(), 'package.json', 'model');
    expect((await longhaul(full!, 'export', run, '--to', below)).errors).toMatch(
      /^error: [^\n]*model cannot be created \((ENOTDIR|EEXIST)\): name a folder [^\n]*\n$/,
    );
  });
});

describe('longhaul report', () => {
  test('says that the report cannot be written if its folder is a file', async () => {
    const file = join(process.cwd(), 'package.json', 'report.html');
    expect((await longhaul(full!, 'report', run, '-o', file)).errors).toMatch(
      /^error: [^\n]*report\.html cannot be written \((ENOTDIR|EEXIST)\): name another file with --output\n$/,
    );
  });

  test('names the newest timeline if the run was rewound', async () => {
    const file = join(full!.folder, 'report.html');
    expect(await longhaul(full!, 'report', run, '-o', file)).toMatchObject({ code: 0, errors: '' });
    const rewound = { ...(await readRun(full!.store, run)), run: `${run}~2` };
    await full!.store.create(runKey(rewound.run), await encodeRecord('run', rewound));
    const named = await encodeRecord('name', { schema: 'longhaul.name/1', n: 2, run: rewound.run });
    await full!.store.create(sequenceKey(namesFolder(run), 2), named);
    expect(await longhaul(full!, 'report', run, '-o', file)).toMatchObject({
      code: 0,
      output: expect.stringContaining('at step 1') as string,
      errors: `${run} was rewound: ${run}~2 is the newest timeline of ${run}; to use it: longhaul report ${run}~2\n`,
    });
  });
});
