// Reads a batch file (docs/engine-protocol.md, "The batch file") and checks it against its digest and the request.
// defines: BatchFile, read_batch
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/batch.h"

namespace longhaul {

// Owns the arrays that a Batch views, since arrays in the file may be unaligned.
struct BatchFile {
  std::vector<std::int32_t> nodes, tokens, target_rows, target_tokens, target_samples;
  std::vector<float> target_advantages;
  std::vector<float> target_old_logprobs, target_rollout_logprobs;  // either may be missing in the file, and is then empty

  Batch view() const;
};

// `state` is the digest that the batch must name as its previous state. Throws BatchError that names the file and says what is wrong, and
// std::system_error if the file cannot be read. The caller checks the forest with `validate`.
BatchFile read_batch(const std::string& path, const std::string& sha256, const std::string& state, int mini_batches);

}  // namespace longhaul
