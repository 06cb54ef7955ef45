// Reads a batch file (docs/engine-protocol.md, "The batch file") and checks it against its digest and the request.
// defines: BatchFile, read_batch
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/batch.h"

namespace longhaul {

// Owns the arrays that a Batch views: in the file they need not be aligned.
struct BatchFile {
  std::vector<std::int32_t> nodes, tokens, target_rows, target_tokens, target_samples;
  std::vector<float> target_advantages;
  std::vector<float> target_old_logprobs, target_rollout_logprobs;  // one of them may be missing in the file, and is empty then

  Batch view() const;
};

// `state` is the digest the batch must name as its previous state. `validate` checks the forest itself. Throws BatchError that names the
// file and says what is wrong, and std::system_error if it cannot be read.
BatchFile read_batch(const std::string& path, const std::string& sha256, const std::string& state, int mini_batches);

}  // namespace longhaul
