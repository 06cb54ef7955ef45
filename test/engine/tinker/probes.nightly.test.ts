// What probes find out of a stock Tinker server is what is known of skyrl 0.4 on JAX. Clients that change single requests make it a server
// with another answer, which the same probes must find as well.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { checkTinker } from '../../../src/cli/stack/tinker-checks.js';
import { TinkerClient, type WaitOptions } from '../../../src/engine/tinker/futures.js';
import { ProbeModels } from '../../../src/engine/tinker/probe-models.js';
import {
  probeClipping,
  probeGradients,
  probeLoad,
  probeNumbers,
  probeToken,
} from '../../../src/engine/tinker/probes.js';
import { TinkerService } from '../../../src/engine/tinker/service.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { parseRunSpec } from '../../../src/spec/spec-input.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { startTinkerServer, type TinkerServer } from '../../support/servers/tinker-server.js';

const python = await pythonWith('tinker');

/** Vocabulary of the model that the server trains. */
const vocabulary = 1024;
/** Models that it holds at a time. */
const places = 3;
const tokenizer = resolve('presets/tokenizers/small/tokenizer.json');

describe.skipIf(!python)('a stock Tinker server', () => {
  let folder: string;
  let server: TinkerServer;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'longhaul-probes-'));
    server = await startTinkerServer(python, folder);
  });
  afterAll(async () => {
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  // Whatever a probe found, it leaves all places free and nothing saved.
  afterEach(async () => {
    const client = new TinkerClient({ url: server.url });
    const service = new TinkerService(client);
    for (const { model } of await Promise.all(
      Array.from({ length: places }, () => service.createModel(server.model, { rank: 8, seed: 1 })),
    ))
      await service.unload(model);
    service.close();
    const { training_runs: runs } = await client.call<{ training_runs: { training_run_id: string }[] }>(
      '/training_runs?limit=1000',
    );
    expect(runs.length).toBeGreaterThanOrEqual(places);
    for (const { training_run_id: run } of runs) expect(await service.checkpoints(run)).toEqual([]);
  });

  function specOf(served: object, tokenizerFile = tokenizer): RunSpec {
    return parseRunSpec({
      ...{ name: 'probed', project: 'tests', seed: 1 },
      model: {
        ...{ name: 'm', tokenizer: tokenizerFile, chat_template: '/t/chat_template.jinja' },
        served: { name: server.model, rank: 8, reduction: 'sequence_mean', ...served },
      },
      data: { tasks: '/t/tasks.jsonl', eval_tasks: 1, final_eval_tasks: 1 },
      environments: [{ env_key: 'tracker', url: 'http://127.0.0.1:9' }],
      generator: { max_sequence_length: 512, max_input_length: 448, max_generate_length: 64 },
      trainer: { max_training_steps: 3 },
    });
  }

  const checks = (spec: RunSpec | null, limitMs?: number) =>
    checkTinker({ url: server.url, model: null, spec }, limitMs);

  function serverOf(Client: typeof TinkerClient): ProbeModels {
    const client = new Client({ url: server.url });
    const { signal } = new AbortController();
    const lora = { rank: 8, seed: 3 };
    return new ProbeModels({ client, service: new TinkerService(client), model: server.model, lora, signal });
  }

  test('knows numbers, restores the optimizer, leaves gradients, takes means and does not clip', async () => {
    const ok = (check: string, detail: string) => ({
      ...{ check: `tinker ${check}`, ok: true },
      detail: expect.stringContaining(detail) as string,
    });
    expect(await checks(specOf({}))).toEqual([
      ok('model', `${server.model} is served; beside it no other model`),
      ok('rank', 'adapters of rank 8 can be trained'),
      ok('numbers', 'is carried out once'),
      ok('load', 'comes back with its optimizer. The API does not say where SkyRL keeps it'),
      ok('weights', 'the default of model.served.weights_tolerance'),
      ok('unload', 'leaves its gradients'),
      ok('reduction', 'as the spec’s model.served.reduction says'),
      ok('clipping', 'trainer.max_grad_norm is not applied on this server'),
      ok('tokens', 'the model has every id'),
      ok('cost', 'their models are unloaded'),
    ]);
  });

  test('does not suit a spec that says otherwise', async () => {
    const larger = JSON.parse(readFileSync(tokenizer, 'utf8')) as { added_tokens: object[] };
    larger.added_tokens.push({ ...larger.added_tokens[0], id: vocabulary, content: '<beyond>' });
    const file = join(folder, 'tokenizer.json');
    writeFileSync(file, JSON.stringify(larger));
    const wrong = (await checks(specOf({ reduction: 'sum', clips: true }, file))).filter(({ ok }) => !ok);
    expect(wrong).toEqual([
      {
        check: 'tinker reduction',
        ok: false,
        detail: expect.stringContaining('is sum: set it to sequence_mean') as string,
      },
      {
        check: 'tinker clipping',
        ok: false,
        detail: expect.stringContaining('model.served.clips is true') as string,
      },
      {
        check: 'tinker tokens',
        ok: false,
        detail: expect.stringContaining(`no token ${vocabulary}`) as string,
      },
    ]);
    expect(await probeToken(serverOf(TinkerClient), vocabulary - 1)).toBe(true);
  });

  test('refuses a rank above its own, and has only what its capabilities name', async () => {
    const refused = await checks(specOf({ rank: 16 }));
    expect(refused.map(({ check, ok }) => [check, ok])).toEqual([
      ['tinker model', true],
      ['tinker rank', false],
      ['tinker cost', true],
    ]);
    expect(refused[1]?.detail).toMatch(/adapters of rank 16 can be made: .*rank.*Lower model.served.rank/is);
    expect(await checks(specOf({ name: 'Qwen/Qwen3-235B' }))).toEqual([
      {
        check: 'tinker model',
        ok: false,
        detail: expect.stringContaining(`does not have Qwen/Qwen3-235B; it has ${server.model}`) as string,
      },
    ]);
  });

  test('that does not finish is waited for no longer than the limit', async () => {
    const results = await checks(specOf({}), 5_000);
    expect(results.filter(({ ok }) => !ok)).toEqual([
      {
        check: expect.stringMatching(
          /^tinker (rank|numbers|load|weights|unload|reduction|clipping)$/,
        ) as string,
        ok: false,
        detail: expect.stringContaining('not finished the probes within 5 s') as string,
      },
    ]);
    expect(results.at(-1)?.detail).toContain('their models are unloaded');
  });

  // That all places are free is seen after each test.
  test('keeps no place for a model whose creation was given up', async () => {
    const given = new AbortController();
    const client = new (class extends TinkerClient {
      override async call<T extends object>(path: string, body?: Body, options?: WaitOptions): Promise<T> {
        const answer = await super.call<T>(path, body, options);
        if (path === '/create_model') given.abort(new Error('given up'));
        return answer;
      }
    })({ url: server.url });
    const service = new TinkerService(client);
    const { signal } = given;
    await expect(service.createModel(server.model, { rank: 8, seed: 3 }, { signal })).rejects.toThrow(
      'given up',
    );
    service.close();
  });

  test.each<[string, typeof TinkerClient, (models: ProbeModels) => Promise<unknown>, unknown]>([
    ['without numbers', withBody(withoutNumber), probeNumbers, 'unknown'],
    [
      'with cold loads',
      withBody(withoutOptimizer),
      async (models) => (await probeLoad(models)).found,
      'cold',
    ],
    ['that unloads gradients with their model', flushing(), probeGradients, 'cleared'],
    ['that clips', withBody(clipped), probeClipping, 'alive'],
  ])('is told from one %s', async (_, Client, probe, found) => {
    const models = serverOf(Client);
    expect(await probe(models)).toBe(found);
    await models.close();
    expect(models.left).toEqual([]);
  });

  test('keeps nothing of a probe that failed before its save was answered', async () => {
    const models = serverOf(
      class extends TinkerClient {
        override async call<T extends object>(path: string, body?: Body, options?: WaitOptions): Promise<T> {
          const answer = await super.call<T>(path, body, options);
          if (path === '/save_weights') throw new Error('lost');
          return answer;
        }
      },
    );
    await expect(probeLoad(models)).rejects.toThrow('lost');
    await models.close();
    expect(models.left).toEqual([]);
  });

  test('has no gradients of a probe that failed between its two models', async () => {
    let made = 0;
    const models = serverOf(
      withBody((path, body) => {
        // The first is made and thrown away, the second leaves its gradients.
        if (path === '/create_model' && ++made === 3) throw new Error('lost');
        return body;
      }),
    );
    await expect(probeGradients(models)).rejects.toThrow('lost');
    expect(models.left).toEqual([]);
    // Gradients of the failed probe would make it look as if the server had taken the number twice.
    expect(await probeNumbers(models)).toBe('known');
  });
});

type Body = object | Uint8Array | undefined;

function withBody(changed: (path: string, body: Body) => Body): typeof TinkerClient {
  return class extends TinkerClient {
    override async call<T extends object>(path: string, body?: Body, options?: WaitOptions): Promise<T> {
      return super.call<T>(path, changed(path, body), options);
    }
  };
}

function flushing(): typeof TinkerClient {
  return class extends TinkerClient {
    override async call<T extends object>(path: string, body?: Body, options?: WaitOptions): Promise<T> {
      const { model_id } = (body ?? {}) as { model_id?: string };
      const adam_params = { learning_rate: 0 };
      if (path === '/unload_model')
        await this.run('/optim_step', { model_id, adam_params }).catch(() => undefined);
      return super.call<T>(path, body, options);
    }
  };
}

/** The number of a pass, field 2 of its message, stands behind the model's id, field 1. */
function withoutNumber(_: string, body: Body): Body {
  if (!(body instanceof Uint8Array)) return body && { ...body, seq_id: undefined };
  const start = 2 + (body[1] as number);
  if (body[start] !== 0x10) return body;
  return Uint8Array.from([...body.subarray(0, start), ...body.subarray(start + 2)]);
}

function withoutOptimizer(path: string, body: Body): Body {
  return path === '/load_weights' ? { ...body, optimizer: false } : body;
}

function clipped(_: string, body: Body): Body {
  const { adam_params } = (body ?? {}) as { adam_params?: { grad_clip_norm?: number } };
  if (adam_params?.grad_clip_norm === undefined) return body;
  return { ...body, adam_params: { ...adam_params, learning_rate: 0 } };
}
