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
  // The tokens that end a text, sorted, from generation_config.json or else config.json; may be empty.
  std::vector<std::int32_t> eos_tokens;
};

// Reads the configuration and all headers, but no weights, so that a load's memory can be planned before anything is allocated. Throws as
// `load_hf`.
HfModel read_hf_model(const std::string& folder);

struct LoadedHf {
  HfModel model;
  std::shared_ptr<Weights> weights;
  std::string digest;  // as `weights_digest` returns it
};

// Maps the files, and converts, checks and hashes in one pass on all threads of the pool. Throws HfError for a file that is missing or
// broken, an architecture that is not supported, or a tensor that is missing or unknown, has another shape or dtype, or has a value that is
// not finite; the message names it, says what was found and what was expected. Throws std::system_error if the disk fails.
//
// A tied model may have `lm_head.weight` in its files, which must then equal the embedding. (transformers would ignore that tensor; but if
// the two differ, the folder means another model.) `rotary_emb.inv_freq` buffers of old files are skipped, as transformers does.
LoadedHf load_hf(const std::string& folder, ThreadPool& pool, const Progress& progress = {});

}  // namespace longhaul
