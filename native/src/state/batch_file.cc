#include "state/batch_file.h"

#include <cstring>

#include "state/safetensors.h"
#include "state/digest/sha256.h"
#include "wire/json.h"

namespace longhaul {
namespace {

// Copies a tensor [rows, columns]; columns = 0 means a tensor of one dimension.
template <class T>
void take(const SafetensorsFile& file, const char* name, std::int64_t columns, std::vector<T>& out) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) throw BatchError(std::string("tensor ") + name + " is missing");
  const TensorView& view = found->second;
  const std::string dtype = std::is_same_v<T, float> ? "F32" : "I32";
  const std::size_t dimensions = columns == 0 ? 1 : 2;
  if (view.dtype != dtype || view.shape.size() != dimensions || (columns != 0 && view.shape[1] != columns)) {
    throw BatchError(std::string("tensor ") + name + " is " + describe_tensor(view.dtype, view.shape) + "; it must be " + dtype +
                     (columns == 0 ? " with one dimension" : " with " + std::to_string(columns) + " columns"));
  }
  out.resize(view.elements());
  if (!view.bytes.empty()) std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
}

// Copies a tensor with one value for each target.
template <class T>
void take_targets(const SafetensorsFile& file, const char* name, std::size_t targets, std::vector<T>& out) {
  take(file, name, 0, out);
  if (out.size() != targets) {
    throw BatchError(std::string("tensor ") + name + " has " + std::to_string(out.size()) + " values; target_rows has " +
                     std::to_string(targets));
  }
}

void check_identity(const SafetensorsFile& file, const std::string& state, int mini_batches) {
  const auto entry = file.metadata.find("longhaul");
  if (entry == file.metadata.end()) throw BatchError("__metadata__.longhaul is missing");
  std::string error;
  const auto identity = parse_json(entry->second, error);
  if (!identity) throw BatchError("__metadata__.longhaul is broken: " + error);
  const auto text = [&](const char* key) -> std::string {
    const Json* member = identity->find(key);
    if (member == nullptr || member->string() == nullptr) {
      throw BatchError(std::string("__metadata__.longhaul.") + key + " is missing");
    }
    return *member->string();
  };
  if (text("schema") != "longhaul.batch/2") throw BatchError("schema " + text("schema") + "; this engine reads longhaul.batch/2");
  if (text("previous_state") != state) {
    throw BatchError("was made for state " + text("previous_state") + ", but the update names " + state);
  }
  const Json* count = identity->find("mini_batches");
  if (count == nullptr || count->number() == nullptr || *count->number() != mini_batches) {
    throw BatchError("__metadata__.longhaul.mini_batches is " + (count == nullptr ? "missing" : write_json(*count)) +
                     "; the update has " + std::to_string(mini_batches) + " learning rates");
  }
}

BatchFile parse_batch(std::vector<std::uint8_t> bytes, const std::string& sha256, const std::string& state,
                      int mini_batches) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  const std::string actual = to_hex(hash.finish());
  if (actual != sha256) throw BatchError("its sha256 is " + actual + ", not " + sha256);
  const SafetensorsFile file = parse_safetensors(std::move(bytes));
  check_identity(file, state, mini_batches);
  BatchFile batch;
  take(file, "nodes", 3, batch.nodes);
  take(file, "tokens", 0, batch.tokens);
  take(file, "target_rows", 0, batch.target_rows);
  const std::size_t targets = batch.target_rows.size();
  take_targets(file, "target_tokens", targets, batch.target_tokens);
  take_targets(file, "target_samples", targets, batch.target_samples);
  take_targets(file, "target_advantages", targets, batch.target_advantages);
  const bool sampled = file.tensors.contains("target_rollout_logprobs");
  if (sampled) take_targets(file, "target_rollout_logprobs", targets, batch.target_rollout_logprobs);
  if (!sampled || file.tensors.contains("target_old_logprobs")) {
    take_targets(file, "target_old_logprobs", targets, batch.target_old_logprobs);
  }
  return batch;
}

}  // namespace

Batch BatchFile::view() const {
  return {.nodes = nodes,
          .tokens = tokens,
          .target_rows = target_rows,
          .target_tokens = target_tokens,
          .target_samples = target_samples,
          .target_advantages = target_advantages,
          .target_old_logprobs = target_old_logprobs,
          .target_rollout_logprobs = target_rollout_logprobs};
}

BatchFile read_batch(const std::string& path, const std::string& sha256, const std::string& state, int mini_batches) {
  try {
    return parse_batch(read_file(path), sha256, state, mini_batches);
  } catch (const BatchError& error) {
    throw BatchError("batch file " + path + ": " + error.what());
  } catch (const SafetensorsError& error) {
    throw BatchError("batch file " + path + ": " + error.what());
  }
}

}  // namespace longhaul
