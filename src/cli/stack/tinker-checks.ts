// What `longhaul doctor` says of a Tinker server: the probes of `engine/tinker/probes.ts`, in words, with what to do about each finding.
import { readFile } from 'node:fs/promises';
import { httpRequest } from '../../base/http-request.js';
import { keepSecret, withoutKnownSecrets } from '../../base/known-secrets.js';
import {
  PolicyServerDenied,
  PolicyServerUnavailable,
  TinkerRefused,
} from '../../engine/tinker/call-errors.js';
import { TinkerClient } from '../../engine/tinker/futures.js';
import { briefly, ProbeModels } from '../../engine/tinker/probe-models.js';
import {
  type ClippingFound,
  type GradientsFound,
  type LoadFound,
  type NumbersFound,
  probeClipping,
  probeGradients,
  probeLoad,
  probeNumbers,
  probeReduction,
  probeToken,
  type ReductionFound,
} from '../../engine/tinker/probes.js';
import { TinkerService } from '../../engine/tinker/service.js';
import { tokenCount } from '../../episode/token-bytes.js';
import { weightsTolerance } from '../../policy/served/step-requests.js';
import type { RunSpec, ServedModel } from '../../spec/run-spec.js';
import { tinkerOf } from '../../workers/process/config.js';
import type { CheckResult } from './doctor-checks.js';

interface TinkerTarget {
  url: string;
  /** The model that nodes serve; null: the spec's, or the server's only one. */
  model: string | null;
  /** With `model.served`; null: a model of rank 8 is probed. */
  spec: RunSpec | null;
  /** Sent as `X-API-Key`. */
  key?: string;
}

export type Verdict = Omit<CheckResult, 'check'>;
/** What a spec says of the server; null without a spec. */
type Said<Key extends keyof ServedModel> = Pick<ServedModel, Key> | null;

const withinMs = 300_000;
const rankWithoutSpec = 8;
const rootWithinMs = 5_000;

export interface TinkerFlags {
  /** URL of the server. */
  tinker?: string;
  servedModel?: string;
}

/** `spec`: null if there is none, an error if it is not sound. Tokens are spent only where they can answer for the run. */
export async function tinkerChecks(
  { tinker: url, servedModel }: TinkerFlags,
  spec: RunSpec | Error | null,
): Promise<CheckResult[]> {
  const line = (ok: boolean, detail: string): CheckResult[] => [{ check: 'tinker', ok, detail }];
  const isServed = spec !== null && !(spec instanceof Error) && spec.model.served !== undefined;
  if (!url)
    return isServed
      ? line(
          false,
          'the server of model.served was not probed, so nothing is known of it: name it with --tinker or LONGHAUL_TINKER, and put its key into TINKER_API_KEY',
        )
      : [];
  if (spec instanceof Error) return line(false, 'the server was not probed: correct the spec first');
  if (spec && !isServed) return line(true, 'the server was not probed: the spec has no model.served');
  try {
    const config = tinkerOf(url, null, servedModel ?? null);
    if (!config) return [];
    console.error(
      `Probing the Tinker server at ${config.url}, which takes up to ${withinMs / 60_000} minutes …`,
    );
    const key = process.env['TINKER_API_KEY'];
    return await checkTinker({ ...config, spec, ...(key ? { key } : {}) });
  } catch (error) {
    return line(false, withoutKnownSecrets((error as Error).message));
  }
}

/** Takes a minute or two, and tokens. `limitMs`: for all probes together; taking the last model away comes on top. */
export async function checkTinker(target: TinkerTarget, limitMs = withinMs): Promise<CheckResult[]> {
  const { url, key, spec } = target;
  if (key) keepSecret(key);
  const served = spec?.model.served ?? null;
  const client = new TinkerClient({ url, ...(key ? { key } : {}) });
  const service = new TinkerService(client);
  const signal = AbortSignal.timeout(limitMs);
  const results: CheckResult[] = [];
  /** False if no later probe can succeed. */
  const probe = (name: string, found: () => Promise<Verdict>): Promise<boolean> =>
    found().then(
      (verdict) => (results.push({ check: `tinker ${name}`, ...verdict }), true),
      (error: Error) => {
        const fix = fixOf(error);
        const detail = signal.aborted ? outOfTime(limitMs) : withoutKnownSecrets(error.message + fix);
        results.push({ check: `tinker ${name}`, ok: false, detail });
        return !signal.aborted && fix === '';
      },
    );

  let model: string | null = null;
  await probe('model', async () => {
    const chosen = chooseModel(
      await service.models({ signal, ...briefly }),
      served?.name ?? null,
      target.model,
    );
    model = chosen.model;
    return chosen.verdict;
  });
  if (model === null) return results;

  const lora = { rank: served?.rank ?? rankWithoutSpec, seed: served?.seed ?? spec?.seed ?? 0 };
  const models = new ProbeModels({ client, service, model, lora, signal });
  let apart: number | null = null;
  const all: [name: string, found: () => Promise<Verdict>][] = [
    ['numbers', async () => aboutNumbers(await probeNumbers(models), served)],
    [
      'load',
      async () => {
        const load = await probeLoad(models);
        apart = load.apart;
        return aboutLoad(load.found, await isSkyrl(url));
      },
    ],
    ['weights', () => Promise.resolve(aboutEqualWeights(apart, served))],
    ['unload', async () => aboutGradients(await probeGradients(models))],
    ['reduction', async () => aboutReduction(await probeReduction(models), served)],
    ['clipping', async () => aboutClipping(await probeClipping(models), served)],
    ['tokens', () => vocabularyCheck(models, spec)],
  ];
  try {
    const hasRank = async (): Promise<Verdict> => {
      await models.with(() => Promise.resolve()).catch((error: Error) => refuseRank(lora.rank, error));
      return { ok: true, detail: `adapters of rank ${lora.rank} can be trained` };
    };
    if ((await probe('rank', hasRank)) && results.at(-1)?.ok)
      for (const [name, found] of all) if (!(await probe(name, found))) break;
  } finally {
    await models.close();
    service.close();
  }
  return [...results, { check: 'tinker cost', ...aboutCost(models) }];
}

/** `named`: by the spec; `flag`: what nodes serve. Capabilities are the only evidence: servers accept any name for a new model. */
export function chooseModel(
  models: readonly string[],
  named: string | null,
  flag: string | null,
): { model: string | null; verdict: Verdict } {
  const wrong = (detail: string) => ({ model: null, verdict: { ok: false, detail } });
  const all = models.length === 0 ? 'no model' : models.join(', ');
  if (named !== null && flag !== null && named !== flag)
    return wrong(
      `the spec trains ${named}, but nodes would serve ${flag}: make model.served.name and LONGHAUL_SERVED_MODEL the same`,
    );
  const model = named ?? flag ?? (models.length === 1 ? (models[0] ?? null) : null);
  if (model === null)
    return wrong(`the server has ${all}: name one with --served-model or LONGHAUL_SERVED_MODEL`);
  if (!models.includes(model))
    return wrong(`the server does not have ${model}; it has ${all}: correct model.served.name`);
  const others = models.filter((one) => one !== model);
  const beside = others.length === 0 ? 'no other model' : others.join(', ');
  return { model, verdict: { ok: true, detail: `${model} is served; beside it ${beside}` } };
}

export function aboutNumbers(found: NumbersFound, said: Said<'numbered'>): Verdict {
  if (found === 'unclear') return unclear;
  const known = 'a request that is sent twice is carried out once';
  const unknown = 'a request that is sent twice is carried out twice';
  if (found === 'known')
    return said?.numbered === false
      ? { ok: true, detail: `${known}: without model.served.numbered: false a lost answer costs nothing` }
      : { ok: true, detail: `${known}: a lost answer costs nothing` };
  if (said?.numbered)
    return {
      ok: false,
      detail: `${unknown}: set model.served.numbered: false, or batches would be trained on twice`,
    };
  const needed = said === null ? ', and the spec needs model.served.numbered: false' : '';
  return { ok: true, detail: `${unknown}: a lost answer costs a reload (R35)${needed}` };
}

/** Whether this is SkyRL's server, by the name at its root. False if nothing answers there. */
export async function isSkyrl(url: string): Promise<boolean> {
  try {
    const answer = await httpRequest(new URL('/', url), { timeoutMs: rootWithinMs });
    const { name } = JSON.parse(answer.text) as { name?: unknown };
    return name === 'Tinker API Mock';
  } catch {
    return false;
  }
}

/** `skyrl`: the server is SkyRL's. Its API does not show where it keeps saved states, so a person must look. */
export function aboutLoad(found: LoadFound, skyrl: boolean): Verdict {
  switch (found) {
    case 'unclear':
      return unclear;
    case 'restored': {
      const comesBack = 'a saved state comes back with its optimizer';
      const place =
        '. The API does not say where SkyRL keeps it: start the server with --checkpoints-base and --database-url in a folder that lasts; ' +
        'by default saved states are in /tmp/skyrl_checkpoints';
      return { ok: true, detail: `${comesBack}${skyrl ? place : ''}` };
    }
    case 'cold':
      return {
        ok: false,
        detail:
          'a saved state comes back without its optimizer: each restart would train on with cold moments. Use a server, or a version of it, ' +
          'whose load_weights heeds "optimizer": true',
      };
    case 'other_weights':
      return {
        ok: false,
        detail:
          'a saved state comes back with other weights: no restart could continue from it. Use another server',
      };
  }
}

/** Tolerance to set, as a multiple of the measured distance: a probe sees few sequences. */
const room = 3;

/** `apart`: see `LoadProbe`. */
export function aboutEqualWeights(apart: number | null, said: Said<'weights_tolerance'>): Verdict {
  if (apart === null) return { ok: false, detail: 'not compared: no load gave equal weights' };
  const tolerance = weightsTolerance(said ?? {});
  const isDefault = said?.weights_tolerance === undefined;
  const measured =
    `log-probs of equal weights lie ${apart === 0 ? '0' : apart.toPrecision(2)} apart on average, and the tolerance (R37) is ` +
    `${tolerance}${isDefault ? ', the default' : ''} of model.served.weights_tolerance`;
  if (apart <= tolerance) return { ok: true, detail: measured };
  const wanted = Number((room * apart).toPrecision(1));
  return {
    ok: said === null,
    detail: `${measured}: the spec needs model.served.weights_tolerance: ${wanted}, or sound models would be given up`,
  };
}

export function aboutGradients(found: GradientsFound): Verdict {
  if (found === 'unclear') return unclear;
  if (found === 'cleared')
    return { ok: true, detail: 'an unloaded model leaves no gradients to the next one' };
  return {
    ok: true,
    detail:
      'an unloaded model leaves its gradients to the next one: Longhaul removes them, but other clients of the server may not',
  };
}

export function aboutReduction(found: ReductionFound, said: Said<'reduction'>): Verdict {
  if (found === 'unclear') return unclear;
  const how =
    found === 'sum'
      ? 'losses of tokens are added up'
      : 'the loss is the mean over sequences of the mean over each sequence’s tokens';
  if (said === null) return { ok: true, detail: `${how}: give model.served.reduction: ${found}` };
  if (said.reduction === found)
    return { ok: true, detail: `${how}, as the spec’s model.served.reduction says` };
  return {
    ok: false,
    detail: `${how}, but model.served.reduction is ${said.reduction}: set it to ${found}, or long and short transcripts get the wrong weights`,
  };
}

export function aboutClipping(found: ClippingFound, said: Said<'clips'>): Verdict {
  if (found === 'unclear') return unclear;
  if (found === 'alive')
    return said?.clips
      ? { ok: true, detail: 'gradients are clipped at trainer.max_grad_norm' }
      : {
          ok: true,
          detail: 'gradients can be clipped: with model.served.clips: true, trainer.max_grad_norm is applied',
        };
  const dead = 'the server ignores grad_clip_norm: trainer.max_grad_norm is not applied on this server';
  return said?.clips
    ? { ok: false, detail: `${dead}, but model.served.clips is true: remove it` }
    : { ok: true, detail: dead };
}

async function vocabularyCheck(models: ProbeModels, spec: RunSpec | null): Promise<Verdict> {
  if (spec === null)
    return { ok: true, detail: 'not compared with a tokenizer: name a run spec with --spec' };
  const { tokenizer } = spec.model;
  const highest = tokenCount(await readFile(tokenizer, 'utf8')) - 1;
  return aboutVocabulary(await probeToken(models, highest), tokenizer, highest);
}

export function aboutVocabulary(has: boolean, tokenizer: string, highest: number): Verdict {
  if (has) return { ok: true, detail: `the model has every id of ${tokenizer}, up to ${highest}` };
  return {
    ok: false,
    detail: `the model has no token ${highest}, the highest id of ${tokenizer}: name the model’s own tokenizer in model.tokenizer`,
  };
}

export function aboutCost({ cost, left }: Pick<ProbeModels, 'cost' | 'left'>): Verdict {
  const spent = `the probes sent ${cost.tokens} tokens in ${cost.passes} passes, and ${cost.steps} optimizer steps`;
  if (left.length === 0) return { ok: true, detail: `${spent}; their models are unloaded` };
  const remains = left.map(withoutKnownSecrets).join('\n');
  return { ok: true, detail: `${spent}. Not removed, until the server forgets this session:\n${remains}` };
}

const unclear: Verdict = {
  ok: false,
  detail: 'unclear: a training step hardly moved any log-prob. Does the server train this model?',
};

function outOfTime(limitMs: number): string {
  return (
    `the server has not finished the probes within ${limitMs / 1000} s: see its log. A first step may compile for minutes; ` +
    'run doctor again after that'
  );
}

/** Empty for an error that says nothing of later requests. */
function fixOf(error: Error): string {
  if (error instanceof PolicyServerUnavailable)
    return ': start the server, or correct --tinker or LONGHAUL_TINKER';
  if (error instanceof PolicyServerDenied) return ': doctor sends the TINKER_API_KEY of its own environment';
  return '';
}

function refuseRank(rank: number, error: Error): never {
  if (!(error instanceof TinkerRefused)) throw error;
  throw new Error(
    `no model with adapters of rank ${rank} can be made: ${error.message}. Lower model.served.rank, raise the server’s limit, or unload ` +
      'other models on it',
    { cause: error },
  );
}
