// Reads a model's rotary positions from its `config.json`: one set of settings for all layers, and a context that YaRN extends as the config
// or the run spec says.
import { isDeepStrictEqual } from 'node:util';
import type { RopeScaling } from '../spec/run-spec.js';
import {
  badSetting,
  BadModelFolder,
  defaultPositions,
  type HfConfig,
  isObject,
  ropeKeys,
  wholeSetting,
} from './hf-config.js';

/** The most positions that the engine supports. */
const mostPositions = 1 << 20;

/** The method: `default` for the plain rotary positions. */
export function ropeTypeOf(rope: HfConfig): unknown {
  return rope['rope_type'] ?? rope['type'] ?? 'default';
}

/**
 * The config with the model's whole context as its `max_position_embeddings`. With YaRN that is the original context times the factor:
 * Qwen3's own value, 40960, is neither. Settings by type of layer become one set of settings. `scaling`: the run spec's, which replaces the
 * config's. `where`: the config's place for error messages. Throws `BadModelFolder`.
 */
export function withContext(config: HfConfig, scaling: RopeScaling | undefined, where: string): HfConfig {
  const single = withoutDefault(withOneRope(config, where));
  refuseOtherBases(single, where);
  return extended(scaling === undefined ? single : withScaling(single, scaling), where);
}

/** The config itself if its rope settings hold for all layers. */
function withOneRope(config: HfConfig, where: string): HfConfig {
  const types = layerTypesOf(config);
  const single: HfConfig = {};
  for (const key of ropeKeys) {
    const value = config[key];
    if (isObject(value) && isByLayerType(value, types)) single[key] = ropeOf(value, types, `${where}${key}`);
  }
  return Object.keys(single).length === 0 ? config : { ...config, ...single };
}

/**
 * If there are two blocks, returns the one with YaRN: transformers 5 saves a default block, and Qwen's model cards add `rope_scaling` beside it.
 * The base of the frequencies may be in either block.
 */
function withoutDefault(config: HfConfig): HfConfig {
  const { rope_scaling: added, rope_parameters: saved, ...rest } = config;
  if (!isObject(added) || !isObject(saved)) return config;
  if (ropeTypeOf(saved) !== 'default' || ropeTypeOf(added) === 'default') return config;
  const theta = saved['rope_theta'] ?? null;
  if (theta === null) return { ...rest, rope_scaling: added };
  return { ...rest, rope_scaling: { ...added, rope_theta: added['rope_theta'] ?? theta } };
}

/** The types of the model's layers. Qwen3 and Qwen2 have layers of full attention if the file does not list them. */
function layerTypesOf({ layer_types: listed }: HfConfig): string[] {
  const types = Array.isArray(listed) ? listed.filter((type) => typeof type === 'string') : [];
  return types.length === 0 ? ['full_attention'] : [...new Set(types)];
}

/** Settings by type of layer, in the form of transformers 5: `{"full_attention": {…}, "sliding_attention": {…}}`. */
function isByLayerType(rope: HfConfig, types: readonly string[]): boolean {
  return Object.entries(rope).some(
    ([key, value]) => isObject(value) || types.includes(key) || key.endsWith('_attention'),
  );
}

function ropeOf(rope: HfConfig, types: readonly string[], where: string): HfConfig {
  for (const [key, value] of Object.entries(rope))
    if (!isObject(value) && value !== null)
      throw badSetting(`${where}.`, key, value, 'an object: the other keys are types of layers');
  const [first, ...others] = types.map((type): [string, HfConfig] => {
    const own = rope[type];
    if (!isObject(own))
      throw badSetting(
        `${where}.`,
        type,
        own,
        'an object with rope_theta: the model has layers of this type',
      );
    return [type, Object.fromEntries(Object.entries(own).filter(([, value]) => value !== null))];
  }) as [[string, HfConfig], ...[string, HfConfig][]];
  for (const [type, own] of others)
    if (!isDeepStrictEqual(own, first[1]))
      throw new BadModelFolder(
        `${where}: ${first[0]} and ${type} differ (${JSON.stringify(first[1])}, ${JSON.stringify(own)}); ` +
          'only models whose layers all have the same rotary positions are supported',
      );
  return first[1];
}

/** Keeps only `rope_theta` of the config's own scaling. */
function withScaling(config: HfConfig, { type: _older, ...scaling }: RopeScaling): HfConfig {
  const { rope_scaling: old, rope_parameters: current, ...rest } = config;
  const theta = [old, current].map((one) => (isObject(one) ? one['rope_theta'] : undefined)).find(isNumber);
  return { ...(theta === undefined ? {} : { rope_theta: theta }), ...rest, rope_scaling: scaling };
}

function extended(config: HfConfig, where: string): HfConfig {
  let context: number | null = null;
  const scalings: HfConfig = {};
  for (const key of ropeKeys) {
    const scaling = config[key] ?? null;
    if (scaling === null) continue;
    if (!isObject(scaling)) throw badSetting(where, key, scaling, 'an object or null');
    const inside = `${where}${key}.`;
    if ((scaling['partial_rotary_factor'] ?? 1) !== 1)
      throw badSetting(inside, 'partial_rotary_factor', scaling['partial_rotary_factor'], '1');
    const type = ropeTypeOf(scaling);
    if (type === 'default') continue;
    const typeKey = (scaling['rope_type'] ?? null) === null ? 'type' : 'rope_type';
    if (type !== 'yarn') throw badSetting(inside, typeKey, type, '"yarn" or "default"');
    if ((scaling['truncate'] ?? true) !== true)
      throw badSetting(inside, 'truncate', scaling['truncate'], 'true');
    const original = wholeSetting(
      scaling,
      'original_max_position_embeddings',
      inside,
      wholeSetting(config, 'max_position_embeddings', where, defaultPositions),
    );
    const factor = scaling['factor'];
    if (!isNumber(factor) || factor < 1) throw badSetting(inside, 'factor', factor, 'a number of at least 1');
    context = Math.floor(original * factor);
    if (context > mostPositions)
      throw new BadModelFolder(
        `${inside}factor ${factor} extends ${original} positions to ${context}; at most ${mostPositions} are supported: lower it`,
      );
    scalings[key] = { ...scaling, original_max_position_embeddings: original };
  }
  refuseContradictions(config, scalings, where);
  return context === null ? config : { ...config, ...scalings, max_position_embeddings: context };
}

/** Throws if the file gives the base of the frequencies twice, with different values. */
function refuseOtherBases(config: HfConfig, where: string): void {
  const bases = ['', ...ropeKeys].flatMap((key) => {
    const block = key === '' ? config : config[key];
    const theta = isObject(block) ? (block['rope_theta'] ?? null) : null;
    return theta === null ? [] : [{ path: key === '' ? 'rope_theta' : `${key}.rope_theta`, theta }];
  });
  const [first] = bases;
  const other = bases.find(({ theta }) => theta !== first?.theta);
  if (!first || !other) return;
  const shown = [first, other].map(({ path, theta }) => `${path} is ${JSON.stringify(theta)}`);
  throw new BadModelFolder(`${where}${shown.join(' and ')}; remove one of them`);
}

/** Throws if two blocks extend the context in different ways. `scalings`: those with YaRN. */
function refuseContradictions(config: HfConfig, scalings: HfConfig, where: string): void {
  const [added, saved] = ropeKeys.map((key) => scalings[key] ?? config[key] ?? null);
  if (!isObject(added) || !isObject(saved) || Object.keys(scalings).length === 0) return;
  const [one, other]: HfConfig[] = [added, saved].map((block) => ({ beta_fast: 32, beta_slow: 1, ...block }));
  const keys = ['factor', 'original_max_position_embeddings', 'beta_fast', 'beta_slow', 'attention_factor'];
  const differs = (key: string): boolean =>
    Boolean(one?.[key] && other?.[key]) && one?.[key] !== other?.[key];
  if (ropeTypeOf(added) === ropeTypeOf(saved) && !keys.some(differs)) return;
  throw new BadModelFolder(
    `${where}rope_scaling and rope_parameters contradict each other; remove one of them`,
  );
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
