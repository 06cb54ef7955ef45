// Model folders as others write them, made from tensors of a fixture that transformers and PEFT computed.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeSafetensors, encodeSafetensors, type Tensor } from '../../src/store/files/safetensors.js';

type Tensors = Record<string, Tensor>;

const fixture = decodeSafetensors(readFileSync('native/tests/fixtures/qwen3_lora.safetensors'));
const under = (prefix: string): Tensors =>
  Object.fromEntries(
    Object.entries(fixture.tensors).flatMap(([name, tensor]) =>
      name.startsWith(prefix) ? [[name.slice(prefix.length), tensor]] : [],
    ),
  );
const weights = Object.entries(under('weights.'));

export const baseConfig = JSON.parse(fixture.metadata['config'] as string) as Record<string, unknown>;
export const baseTensors = Object.fromEntries(weights.filter(([name]) => !name.includes('lora_')));
/** Of rank 4, alpha 8, on all linear layers. */
export const adapterTensors = Object.fromEntries(
  weights.flatMap(([name, tensor]) => (name.includes('lora_') ? [[`base_model.model.${name}`, tensor]] : [])),
);
export const plainAdapter = {
  ...{ peft_type: 'LORA', task_type: 'CAUSAL_LM', r: 4, lora_alpha: 8, bias: 'none' },
  ...{ target_modules: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] },
  ...{ rank_pattern: {}, alpha_pattern: {}, modules_to_save: null, use_dora: false, fan_in_fan_out: false },
  ...{ init_lora_weights: true, use_rslora: false, lora_dropout: 0.05, inference_mode: true },
};

/** Tokens, and their log-probs as PEFT computed them with the adapter. */
export const sequences = [0, 1].map((i) => ({
  tokens: [...(fixture.tensors[`tokens.${i}`] as Tensor).data].map(Number),
  logprobs: [...(fixture.tensors[`logprobs.${i}`] as Tensor).data].map(Number),
}));

export function writeTensors(file: string, tensors: Tensors): void {
  writeFileSync(file, encodeSafetensors({ metadata: { format: 'pt' }, tensors }));
}

export function writeBase(folder: string, config: object = baseConfig, tensors = baseTensors): string {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  writeTensors(join(folder, 'model.safetensors'), tensors);
  return folder;
}

export function writeAdapter(folder: string, config: object, tensors = adapterTensors): string {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify(config));
  writeTensors(join(folder, 'adapter_model.safetensors'), tensors);
  return folder;
}

/** The adapter with a larger rank on the modules that end in `module`. The rows and columns that are added are zero. */
export function withRank(module: string, rank: number): Tensors {
  return Object.fromEntries(
    Object.entries(adapterTensors).map(([name, tensor]) => {
      if (!name.includes(`${module}.lora_`)) return [name, tensor];
      const values = tensor.data as Float32Array;
      const [rows, columns] = tensor.shape as [number, number];
      if (name.includes('lora_A')) {
        const data = new Float32Array(rank * columns);
        data.set(values);
        return [name, { dtype: 'F32', shape: [rank, columns], data } satisfies Tensor];
      }
      const data = new Float32Array(rows * rank);
      for (let row = 0; row < rows; row++)
        data.set(values.subarray(row * columns, (row + 1) * columns), row * rank);
      return [name, { dtype: 'F32', shape: [rows, rank], data } satisfies Tensor];
    }),
  );
}
