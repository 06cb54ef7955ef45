// Measures how long a user waits for the engine: from the start of its process until a Hugging Face folder is loaded.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createNativeEngine } from '../../src/engine/native/native-engine.js';
import type { RandomModel } from '../../src/engine/file-engine.js';
import { findEngineBinary } from '../../src/workers/process/built-tool.js';
import { type Measured, median } from '../figures/figure.js';

const rounds = 7;

/** A model of 60 M parameters, as in native/tools/bench/sizes.h. */
const model: RandomModel = {
  architecture: {
    ...{ vocab_size: 8192, hidden_size: 768, intermediate_size: 2240, num_hidden_layers: 8 },
    ...{ num_attention_heads: 12, num_key_value_heads: 4, head_dim: 64, max_position_embeddings: 2048 },
    ...{ rms_norm_eps: 1e-6, rope_theta: 10_000, tie_word_embeddings: true },
  },
  initializer_range: 0.02,
  seed: 1,
};

/** Median over several processes, one after the other. The folder is in the page cache, as it is after a download. */
export async function measureLoad(): Promise<Measured> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-load-'));
  const path = join(folder, 'model');
  try {
    await withEngine(async (engine) => {
      const { state } = await engine.loadRandom(model);
      await engine.exportHf({ state, path, dtype: 'F32', adapters: 'merged', eos_tokens: [] });
    });
    const seconds: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const begun = performance.now();
      await withEngine(async (engine) => {
        await engine.loadHf({ path });
        seconds.push((performance.now() - begun) / 1_000);
      });
    }
    return { values: { seconds: median(seconds), best_seconds: Math.min(...seconds) } };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function withEngine(
  work: (engine: ReturnType<typeof createNativeEngine>) => Promise<void>,
): Promise<void> {
  const engine = createNativeEngine({ binary: findEngineBinary() });
  try {
    await work(engine);
  } finally {
    await engine.close();
  }
}
