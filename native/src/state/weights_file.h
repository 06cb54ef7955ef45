// A model's weights in our own file format: safetensors, F32, Hugging Face names, the architecture in the metadata.
// defines: save_weights, read_weights_architecture, LoadedWeights, load_weights
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "model/weights.h"
#include "state/progress.h"
#include "state/safetensors.h"

namespace longhaul {

// Writes canonical bytes. Throws std::system_error.
WrittenFile save_weights(const Weights& weights, const std::string& path, const Progress& progress = {});

// Reads only the header and checks every tensor against it. Throws as `load_weights`.
Architecture read_weights_architecture(const std::string& path);

struct LoadedWeights {
  std::shared_ptr<Weights> weights;
  std::string digest;
};

// Reads and hashes in one pass on all threads of the pool. Throws std::system_error or SafetensorsError; each names the file and
// says what is wrong with it.
LoadedWeights load_weights(const std::string& path, ThreadPool& pool, const Progress& progress = {});

}  // namespace longhaul
