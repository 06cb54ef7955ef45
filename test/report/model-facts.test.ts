// The report says what was trained and by which objective. Settings that the spec of an earlier version lacks get their defaults.
import { describe, expect, test } from 'vitest';
import { loraInWords, modelFacts } from '../../src/report/model-facts.js';
import type { BaseRecord } from '../../src/spec/records/update.js';
import type { RunRecord } from '../../src/spec/records/run-records.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { readSpecFile } from '../../src/spec/spec-input.js';

const recordOf = (spec: RunSpec) => ({ spec }) as RunRecord;
const baseOf = (model: number, trained: number) =>
  ({ observed: { parameters: { model, trained } } }) as BaseRecord;
const factsOf = (spec: RunSpec, base: BaseRecord | null = null) =>
  Object.fromEntries(modelFacts(recordOf(spec), base));

describe('the report gives the facts of a model', () => {
  test('if all weights are trained from random values, with a warm start', async () => {
    const spec = await readSpecFile('presets/tiny.yaml');
    const trainer = { ...spec.trainer, use_kl_loss: true, use_entropy_loss: true };
    expect(loraInWords(recordOf(spec))).toBeNull();
    expect(factsOf({ ...spec, trainer }, baseOf(164_288, 164_288))).toEqual({
      'begins with': 'random weights of 164,288 parameters',
      trains: 'all weights of 164,288 parameters',
      optimizer: 'AdamW, learning rate 0.00025',
      objective:
        'regular loss, token_mean; ratio clipped at −0.2 and +0.28; grpo advantages; ' +
        '0.001 × KL (k3) from the policy after the warm start; 0.01 × entropy',
    });
  });

  test('if adapters on a model folder are trained', async () => {
    const { model, ...spec } = await readSpecFile('presets/tiny.yaml');
    const { architecture: _architecture, ...files } = model;
    const lora = { rank: 4, alpha: 8, targets: ['q_proj', 'v_proj'] as const };
    const adapted = {
      ...spec,
      warm_start: [],
      model: { ...files, path: '/models/m', lora: { ...lora, targets: [...lora.targets] }, moments: 'int8' },
      trainer: { ...spec.trainer, policy_loss_type: 'cispo', use_kl_loss: true, warmup_steps: 3 },
    } as RunSpec;
    expect(loraInWords(recordOf(adapted))).toBe('LoRA of rank 4');
    expect(factsOf(adapted, baseOf(1000, 20))).toEqual({
      'begins with': 'the folder /models/m, a model of 1,000 parameters',
      trains:
        'LoRA adapters of rank 4, alpha 8, 20 parameters, on q_proj, v_proj; the base weights do not change',
      optimizer: 'AdamW, learning rate 0.00025 after 3 steps of warm-up, moments in 8 bits',
      objective: 'cispo loss, token_mean; grpo advantages; 0.001 × KL (k3) from the policy at the beginning',
    });
  });

  test('if the run’s base record comes from an earlier version and has no figures', async () => {
    const spec = await readSpecFile('presets/tiny.yaml');
    const { policy_loss_type: _kind, use_kl_loss: _kl, ...trainer } = spec.trainer;
    const { moments: _moments, ...model } = spec.model;
    expect(factsOf({ ...spec, model, trainer } as RunSpec)).toMatchObject({
      trains: 'all weights',
      objective: expect.stringMatching(/^regular loss, token_mean; .*grpo advantages$/) as string,
    });
  });
});
