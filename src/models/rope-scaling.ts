// Extends a model's context with YaRN, as its `config.json` or the run spec says.
import type { RopeScaling } from '../spec/run-spec.js';
import {
  badSetting,
  BadModelFolder,
  defaultPositions,
  type HfConfig,
  isObject,
  wholeSetting,
} from './hf-config.js';

/** The most positions that the engine supports. */
const mostPositions = 1 << 20;

/**
 * The config with the model's whole context as its `max_position_embeddings`. With YaRN that is the original context times the factor:
 * Qwen3's own value, 40960, is neither. `scaling`: the run spec's, which replaces the config's. `where`: the config's place for error
 * messages. Throws `BadModelFolder`.
 */
export function withContext(config: HfConfig, scaling: RopeScaling | undefined, where: string): HfConfig {
  return extended(scaling === undefined ? config : withScaling(config, scaling), where);
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
  // transformers 4 writes the first, transformers 5 the second. If they contradict each other, the engine refuses them.
  for (const key of ['rope_scaling', 'rope_parameters']) {
    const scaling = config[key] ?? null;
    if (scaling === null) continue;
    if (!isObject(scaling)) throw badSetting(where, key, scaling, 'an object or null');
    const inside = `${where}${key}.`;
    const typeKey = (scaling['rope_type'] ?? null) === null ? 'type' : 'rope_type';
    const type = scaling[typeKey] ?? 'default';
    if (type === 'default') continue;
    if (type !== 'yarn') throw badSetting(inside, typeKey, type, '"yarn" or "default"');
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
  return context === null ? config : { ...config, ...scalings, max_position_embeddings: context };
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
