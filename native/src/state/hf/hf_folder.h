// Reads a model from a Hugging Face folder: config.json, model.safetensors or its shards with an index, generation_config.json.
// Tensors may be F32, F16 or BF16; all become fp32, exactly.
// defines: HfModel, read_hf_model, LoadedHf, load_hf
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/weights.h"
#include "state/hf/hf_config.h"
#include "state/progress.h"

namespace longhaul {

struct HfModel {
  Architecture architecture;
  // That end a text, sorted, as generation_config.json (else config.json) has them; may be empty.
  std::vector<std::int32_t> eos_tokens;
};

// Reads the configuration and all headers, no weights: what a load would take can be planned before anything is allocated.
// Throws as `load_hf`.
HfModel read_hf_model(const std::string& folder);

struct LoadedHf {
  HfModel model;
  std::shared_ptr<Weights> weights;
  std::string digest;  // as `weights_digest`
};

// Maps the files, and converts, checks and hashes in one pass on all threads of the pool. Throws HfError: a file that is missing or broken,
// an architecture that is not supported, a tensor that is missing, unknown, of another shape or dtype, or has a value that is not finite;
// each with its name, what was found and what was expected. Throws std::system_error if the disk refuses.
//
// A tied model may have `lm_head.weight` in its files: it must equal the embedding then (transformers would ignore it, but a folder in
// which they differ was meant as another model). `rotary_emb.inv_freq` buffers of old files are passed over, as transformers does.
LoadedHf load_hf(const std::string& folder, ThreadPool& pool, const Progress& progress = {});

}  // namespace longhaul
