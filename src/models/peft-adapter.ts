// Reads a LoRA adapter that PEFT wrote: the matrices A and B of each module, and the scale of their product.
import { join } from 'node:path';
import { badSetting, BadModelFolder, type HfConfig, isObject } from './hf-config.js';
import { readJson } from './model-files.js';
import { adapterConfigFile, adapterFile } from './model-source.js';
import { type StoredTensor, tensorsIn } from './tensor-file.js';

/** W becomes W + `scale` · B·A. */
export interface LoraPair {
  a: StoredTensor;
  b: StoredTensor;
  scale: number;
}

/** Settings that matter only in training, not for the finished adapter. */
const harmless = new Set([
  ...['auto_mapping', 'base_model_name_or_path', 'revision', 'inference_mode', 'task_type', 'peft_version'],
  ...['target_modules', 'exclude_modules', 'layers_to_transform', 'layers_pattern', 'lora_dropout'],
  ...['megatron_core', 'qalora_group_size', 'runtime_config', 'eva_config', 'lora_ga_config'],
  ...['ensure_weight_tying', 'lora_alpha', 'r', 'rank_pattern', 'alpha_pattern', 'use_rslora'],
]);

/** Methods of initialization that do not change the base model. Others, such as PiSSA, do. */
const usualBeginnings: unknown[] = [true, false, null, 'gaussian', 'orthogonal', 'eva'];

/** The adapter's pairs by the name of the weight to which each is added. Throws `BadModelFolder`, which names the key or the tensor. */
export async function readAdapter(folder: string): Promise<Map<string, LoraPair>> {
  const file = join(folder, adapterConfigFile);
  const config = await readJson(file);
  refuseUnsupported(config, `${file}: `);
  const tensors = join(folder, adapterFile);
  const pairs = new Map<string, { a?: StoredTensor; b?: StoredTensor }>();
  const adapters = new Set<string>();
  for (const tensor of await tensorsIn(tensors)) {
    // Files that were not written by save_pretrained have the adapter's name, such as `default`.
    const parts = /^(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.(\w+))?\.weight$/.exec(tensor.name);
    if (!parts)
      throw new BadModelFolder(
        `${tensors}: tensor ${tensor.name} is not supported: only the matrices lora_A and lora_B of linear layers are`,
      );
    const [, module, matrix, adapter = ''] = parts as unknown as [string, string, 'A' | 'B', string?];
    if (adapters.add(adapter).size > 1)
      throw new BadModelFolder(
        `${tensors} has several adapters: ${[...adapters].map((one) => one || 'one without a name').join(', ')}; save one of them alone`,
      );
    pairs.set(module, { ...pairs.get(module), [matrix.toLowerCase()]: tensor });
  }
  if (pairs.size === 0) throw new BadModelFolder(`${tensors} has no tensors`);
  return new Map(
    [...pairs].map(([module, { a, b }]) => {
      if (!a || !b)
        throw new BadModelFolder(
          `${tensors}: module ${module} has no lora_${a ? 'B' : 'A'}.weight; it needs both`,
        );
      const rank = a.shape[0] as number;
      if (a.shape.length !== 2 || b.shape.length !== 2 || b.shape[1] !== rank)
        throw new BadModelFolder(
          `${tensors}: module ${module} has lora_A [${a.shape.join(', ')}] and lora_B [${b.shape.join(', ')}]; ` +
            'expected [rank, inputs] and [outputs, rank]',
        );
      return [`${module}.weight`, { a, b, scale: scaleOf(module, rank, config, `${file}: `) }];
    }),
  );
}

function refuseUnsupported(config: HfConfig, where: string): void {
  if (config['peft_type'] !== 'LORA') throw badSetting(where, 'peft_type', config['peft_type'], '"LORA"');
  const beginning = config['init_lora_weights'] ?? null;
  if (!usualBeginnings.includes(beginning))
    throw badSetting(
      where,
      'init_lora_weights',
      beginning,
      `true: "${String(beginning)}" changes the base model; convert the adapter to a plain one (PEFT: save_pretrained with path_initial_model_for_weight_conversion)`,
    );
  for (const [key, value] of Object.entries(config)) {
    if (harmless.has(key) || ['peft_type', 'init_lora_weights'].includes(key) || isUnset(value)) continue;
    if (key === 'bias' && value === 'none') continue;
    throw new BadModelFolder(
      `${where}${key} is ${JSON.stringify(value).slice(0, 80)}, which is not supported: ` +
        'merge the adapter into its base model (PEFT: merge_and_unload) and name that folder',
    );
  }
}

/** Whether the setting has no effect. */
function isUnset(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  if (isObject(value)) return Object.keys(value).length === 0;
  return value === null || value === false;
}

/** As PEFT computes it: alpha / rank, or alpha / √rank with rsLoRA. */
function scaleOf(module: string, rank: number, config: HfConfig, where: string): number {
  const [rankKey, wanted] = settingOf(module, config, 'rank_pattern', 'r', where);
  if (wanted !== rank)
    throw badSetting(where, rankKey, wanted, `${rank}, the rank of ${module} in ${adapterFile}`);
  const [alphaKey, alpha] = settingOf(module, config, 'alpha_pattern', 'lora_alpha', where);
  if (typeof alpha !== 'number' || !Number.isFinite(alpha))
    throw badSetting(where, alphaKey, alpha, 'a number');
  const rslora = config['use_rslora'] ?? false;
  if (typeof rslora !== 'boolean') throw badSetting(where, 'use_rslora', rslora, 'true or false');
  return alpha / (rslora ? Math.sqrt(rank) : rank);
}

/** A module's own value if a pattern matches its name, else the adapter's; with the key that has it. */
function settingOf(
  module: string,
  config: HfConfig,
  patterns: 'rank_pattern' | 'alpha_pattern',
  otherwise: string,
  where: string,
): [key: string, value: unknown] {
  const own = config[patterns] ?? {};
  if (!isObject(own)) throw badSetting(where, patterns, own, 'an object');
  for (const [pattern, value] of Object.entries(own)) {
    let matcher;
    try {
      matcher = new RegExp(`^(.*\\.)?(${pattern})$`);
    } catch {
      throw badSetting(where, patterns, pattern, 'names of modules, or regular expressions');
    }
    // PEFT takes the first pattern that matches.
    if (matcher.test(module)) return [`${patterns}.${pattern}`, value];
  }
  return [otherwise, config[otherwise] ?? 8];
}
