// What the engine promises on its own: speed beside PyTorch and transformers, and beside the machine.
import type { FigureDefinition } from './figure.js';
import { type ModelSize, modelSizes } from './native-engine.js';

const trainingBars: Record<ModelSize, number> = { '0.85M': 2, '6M': 1.5, '60M': 1.2 };
const generationBars: Record<ModelSize, number> = { '0.85M': 8, '6M': 4, '60M': 1.5 };

export const engineFigures: readonly FigureDefinition[] = [
  ...modelSizes.map((size): FigureDefinition => ({
    name: `engine_training_${size}_vs_torch`,
    measurement: 'engine',
    unit: 'ratio',
    bar: { atLeast: trainingBars[size] },
    what: `trained tokens a second of whole updates, ${size} parameters, over the better of PyTorch’s eager mode and torch.compile with transformers, 2 threads, equal lengths`,
    value: (of) => of(`engine/train-${size}`, 'ratio'),
  })),
  ...modelSizes.map((size): FigureDefinition => ({
    name: `engine_generation_${size}_vs_transformers`,
    measurement: 'engine',
    unit: 'ratio',
    bar: { atLeast: generationBars[size] },
    what: `generated tokens a second, ${size} parameters, over \`generate\` of transformers at its best batch`,
    value: (of) => of(`engine/generate-${size}`, 'ratio'),
  })),
  {
    name: 'engine_sharing_cost',
    measurement: 'engine',
    unit: 'share',
    bar: { atMost: 0.3 },
    what: 'training on 8 samples of one prompt of 1,000 tokens, answers of 100, over the same with 8 prompts of their own',
    value: (of) => of('engine/sharing', 'ratio'),
  },
  {
    name: 'engine_gemm_of_peak',
    measurement: 'engine',
    unit: 'share',
    bar: { atLeast: 0.85 },
    what: 'matrix products of the measured models with 64 rows and more: the worst share of the multiply-add peak, measured in turns',
    value: (of) => Math.min(of('engine/gemm', 'matmul_worst'), of('engine/gemm', 'weight_gradient_worst')),
  },
  {
    name: 'engine_gemm_of_peak_median',
    measurement: 'engine',
    unit: 'share',
    bar: null,
    what: 'the same, median of all shapes',
    value: (of) => of('engine/gemm', 'median'),
  },
  {
    name: 'engine_load_seconds',
    measurement: 'engine',
    unit: 's',
    bar: { atMost: 0.5 },
    what: 'from the start of a process to a loaded Hugging Face folder of 60 M parameters',
    value: (of) => of('engine/load', 'seconds'),
  },
  {
    name: 'engine_build_seconds',
    measurement: 'engine',
    unit: 's',
    bar: { atMost: 60 },
    what: 'from an empty folder to the engine’s binary, all cores',
    value: (of) => of('engine/build', 'seconds'),
  },
  {
    name: 'engine_fuzz_executions',
    measurement: 'engine',
    unit: 'executions',
    bar: { atLeast: 10_000_000 },
    what: 'of the fuzzers of frames, safetensors and configurations',
    value: (of) => of('engine/fuzz', 'executions'),
  },
  {
    name: 'engine_fuzz_crashes',
    measurement: 'engine',
    unit: 'crashes',
    bar: { atMost: 0 },
    what: 'that they found',
    value: (of) => of('engine/fuzz', 'crashes'),
  },
];
