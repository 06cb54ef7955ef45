// A model's weights alone in a file of ours: safetensors, F32, Hugging Face names, the architecture in the metadata.
// defines: save_weights, read_weights_architecture, LoadedWeights, load_weights
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "model/weights.h"
#include "state/progress.h"
#include "state/safetensors.h"

namespace longhaul {

// Canonical bytes. Throws std::system_error.
WrittenFile save_weights(const Weights& weights, const std::string& path, const Progress& progress = {});

// Reads the header alone and holds every tensor to it. Throws as `load_weights`.
Architecture read_weights_architecture(const std::string& path);

struct LoadedWeights {
  std::shared_ptr<Weights> weights;
  std::string digest;
};

// Reads and hashes in one pass on all threads of the pool. Throws std::system_error or SafetensorsError; each names the file and
// says what is wrong with it.
LoadedWeights load_weights(const std::string& path, ThreadPool& pool, const Progress& progress = {});

}  // namespace longhaul
