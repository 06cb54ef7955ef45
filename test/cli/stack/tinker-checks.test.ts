// What `longhaul doctor` makes of each finding about a Tinker server. The findings themselves: test/engine/tinker/probes.nightly.test.ts.
import { describe, expect, test } from 'vitest';
import {
  aboutClipping,
  aboutCost,
  aboutEqualWeights,
  aboutGradients,
  aboutLoad,
  aboutNumbers,
  aboutReduction,
  aboutVocabulary,
  chooseModel,
  tinkerChecks,
  type Verdict,
} from '../../../src/cli/stack/tinker-checks.js';
import { parseRunSpec } from '../../../src/spec/spec-input.js';

const outcome = ({ ok, detail }: Verdict): string => `${ok ? 'ok' : 'WRONG'}: ${detail}`;

describe('a finding', () => {
  test.each<[Verdict, RegExp]>([
    [aboutNumbers('known', null), /^ok: .*carried out once/],
    [aboutNumbers('known', { numbered: true }), /^ok: .*a lost answer costs nothing/],
    [aboutNumbers('known', { numbered: false }), /^ok: .*without model\.served\.numbered: false/],
    [aboutNumbers('unknown', { numbered: true }), /^WRONG: .*set model\.served\.numbered: false/],
    [aboutNumbers('unknown', { numbered: false }), /^ok: .*costs a reload \(R35\)$/],
    [aboutNumbers('unknown', null), /^ok: .*needs model\.served\.numbered: false/],
    [aboutLoad('restored', false), /^ok: a saved state comes back with its optimizer$/],
    [
      aboutLoad('restored', true),
      /^ok: .*optimizer\. .*--checkpoints-base and --database-url in a folder that lasts.*\/tmp\/skyrl_/,
    ],
    [aboutLoad('cold', true), /^WRONG: .*without its optimizer.*Use a server/],
    [aboutLoad('other_weights', true), /^WRONG: .*other weights.*Use another server/],
    [
      aboutEqualWeights(0, null),
      /^ok: .* lie 0 apart on average, and the tolerance \(R37\) is 0\.00001, the default of model\.served\.weights_tolerance$/,
    ],
    [aboutEqualWeights(1.234e-6, {}), /^ok: .* lie 0\.0000012 apart .* is 0\.00001, the default/],
    [aboutEqualWeights(2e-4, {}), /^WRONG: .* lie 0\.00020 apart .*weights_tolerance: 0\.0006, or/],
    [aboutEqualWeights(2e-4, null), /^ok: .*the spec needs model\.served\.weights_tolerance: 0\.0006/],
    [aboutEqualWeights(2e-4, { weights_tolerance: 1e-3 }), /^ok: .* is 0\.001 of model/],
    [
      aboutEqualWeights(2e-3, { weights_tolerance: 1e-3 }),
      /^WRONG: .* is 0\.001 of .*_tolerance: 0\.006, or/,
    ],
    [aboutEqualWeights(null, null), /^WRONG: not compared/],
    [aboutGradients('left'), /^ok: .*Longhaul removes them/],
    [aboutGradients('cleared'), /^ok: .*leaves no gradients/],
    [aboutReduction('sum', null), /^ok: .*model\.served\.reduction: sum/],
    [aboutReduction('sum', { reduction: 'sum' }), /^ok/],
    [aboutReduction('sum', { reduction: 'sequence_mean' }), /^WRONG: .*set it to sum/],
    [aboutReduction('sequence_mean', { reduction: 'sequence_mean' }), /^ok/],
    [aboutReduction('sequence_mean', { reduction: 'sum' }), /^WRONG: .*set it to sequence_mean/],
    [aboutClipping('dead', null), /^ok: .*trainer\.max_grad_norm is not applied on this server/],
    [aboutClipping('dead', { clips: false }), /^ok: .*trainer\.max_grad_norm is not applied on this server/],
    [aboutClipping('dead', { clips: true }), /^WRONG: .*model\.served\.clips is true: remove it/],
    [aboutClipping('alive', { clips: false }), /^ok: .*with model\.served\.clips: true/],
    [aboutClipping('alive', { clips: true }), /^ok: gradients are clipped/],
    [aboutVocabulary(true, '/t.json', 9), /^ok/],
    [aboutVocabulary(false, '/t.json', 9), /^WRONG: .*no token 9.*\/t\.json.*model\.tokenizer/],
    [aboutNumbers('unclear', null), /^WRONG: unclear/],
    [aboutLoad('unclear', true), /^WRONG: unclear/],
    [aboutGradients('unclear'), /^WRONG: unclear/],
    [aboutReduction('unclear', null), /^WRONG: unclear/],
    [aboutClipping('unclear', null), /^WRONG: unclear/],
    [
      aboutCost({ cost: { tokens: 9, passes: 2, steps: 1 }, left: ['model m: gone'] }),
      /^ok: .*9 tokens in 2 passes, and 1 optimizer steps\. Not removed.*\nmodel m: gone/,
    ],
  ])('%j', (verdict, expected) => {
    expect(outcome(verdict)).toMatch(expected);
  });
});

describe('the model', () => {
  test.each<[string[], string | null, string | null, string | null, RegExp]>([
    [['a'], null, null, 'a', /^ok: a is served; beside it no other model/],
    [['a', 'b', 'c'], 'b', null, 'b', /^ok: b is served; beside it a, c/],
    [['a', 'b'], null, 'b', 'b', /^ok/],
    [['a', 'b'], null, null, null, /^WRONG: .*a, b: name one with --served-model/],
    [['a'], 'b', null, null, /^WRONG: .*does not have b; it has a/],
    [[], 'b', null, null, /^WRONG: .*it has no model/],
    [['a', 'b'], 'a', 'b', null, /^WRONG: .*trains a, but nodes would serve b/],
  ])('of %j, named %s by the spec and %s by the flag', (models, named, flag, model, expected) => {
    const chosen = chooseModel(models, named, flag);
    expect(chosen.model).toBe(model);
    expect(outcome(chosen.verdict)).toMatch(expected);
  });
});

describe('a server', () => {
  const served = parseRunSpec({
    ...{ name: 'probed', project: 'tests', seed: 1 },
    model: {
      ...{ name: 'm', tokenizer: '/t/tokenizer.json', chat_template: '/t/chat_template.jinja' },
      served: { name: 'a', rank: 8 },
    },
    data: { tasks: '/t/tasks.jsonl', eval_tasks: 1, final_eval_tasks: 1 },
    environments: [{ env_key: 'tracker', url: 'http://127.0.0.1:9' }],
    trainer: { max_training_steps: 3 },
  });
  const { served: _, ...model } = served.model;

  test.each<[string, Parameters<typeof tinkerChecks>, string[]]>([
    ['is asked for by nobody', [{}, null], []],
    [
      'is not named',
      [{}, served],
      [
        'WRONG: the server of model.served was not probed, so nothing is known of it: name it with --tinker or LONGHAUL_TINKER',
      ],
    ],
    [
      'is no part of the run',
      [{ tinker: 'http://127.0.0.1:9' }, { ...served, model: { ...model, path: '/m' } }],
      ['ok: the server was not probed: the spec has no model.served'],
    ],
    [
      'is for a spec that is not sound',
      [{ tinker: 'http://127.0.0.1:9' }, new Error('x')],
      ['WRONG: the server was not probed: correct the spec first'],
    ],
    ['has no URL', [{ tinker: 'localhost' }, served], ['WRONG: --tinker or LONGHAUL_TINKER takes the URL']],
    [
      'is named with a secret',
      [{ tinker: 'http://me:hunter2@127.0.0.1:9' }, served],
      ['WRONG: --tinker or LONGHAUL_TINKER is a URL with'],
    ],
  ])('that %s', async (_, args, expected) => {
    const lines = (await tinkerChecks(...args)).map(outcome);
    expect(lines.map((line, at) => line.slice(0, expected[at]?.length))).toEqual(expected);
    expect(lines.join()).not.toContain('hunter2');
  });
});
