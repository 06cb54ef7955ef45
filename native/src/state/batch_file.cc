#include "state/batch_file.h"

#include <cstring>
#include <system_error>

#include "state/safetensors.h"
#include "state/sha256.h"
#include "wire/json.h"

namespace longhaul {
namespace {

// Copies a tensor [rows, columns] (columns 0: one dimension); answers its rows.
template <class T>
std::size_t take(const SafetensorsFile& file, const char* name, std::int64_t columns, std::vector<T>& out) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) throw BatchError(std::string("tensor ") + name + " is missing");
  const TensorView& view = found->second;
  const char* dtype = std::is_same_v<T, float> ? "F32" : "I32";
  if (view.dtype != dtype) throw BatchError(std::string("tensor ") + name + " must be " + dtype);
  const std::size_t dimensions = columns == 0 ? 1 : 2;
  if (view.shape.size() != dimensions || (columns != 0 && view.shape[1] != columns)) {
    throw BatchError(std::string("tensor ") + name + " must have " +
                     (columns == 0 ? "one dimension" : std::to_string(columns) + " columns"));
  }
  out.resize(view.elements());
  if (!view.bytes.empty()) std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
  return static_cast<std::size_t>(view.shape[0]);
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
    throw BatchError("was made for state " + text("previous_state") + ", the update names " + state);
  }
  const Json* count = identity->find("mini_batches");
  if (count == nullptr || count->number() == nullptr || *count->number() != mini_batches) {
    throw BatchError("__metadata__.longhaul.mini_batches differs from the number of learning rates, " +
                     std::to_string(mini_batches));
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
  const std::size_t targets = take(file, "target_rows", 0, batch.target_rows);
  bool equal = take(file, "target_tokens", 0, batch.target_tokens) == targets &&
               take(file, "target_samples", 0, batch.target_samples) == targets &&
               take(file, "target_advantages", 0, batch.target_advantages) == targets &&
               take(file, "target_old_logprobs", 0, batch.target_old_logprobs) == targets;
  if (file.tensors.contains("target_rollout_logprobs")) {
    equal = take(file, "target_rollout_logprobs", 0, batch.target_rollout_logprobs) == targets && equal;
  }
  if (!equal) throw BatchError("the target tensors differ in length");
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
  } catch (const std::system_error& error) {
    throw BatchError(error.what());
  }
}

}  // namespace longhaul
