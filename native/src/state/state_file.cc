#include "state/state_file.h"

#include <charconv>
#include <stdexcept>

#include "state/digest.h"
#include "wire/json.h"

namespace longhaul {
namespace {

const std::string& metadata_entry(const SafetensorsHeader& file, const char* key) {
  const auto entry = file.metadata.find(key);
  if (entry == file.metadata.end()) throw SafetensorsError(std::string("__metadata__.") + key + " is missing");
  return entry->second;
}

Architecture read_architecture(const SafetensorsHeader& file) {
  std::string error;
  const auto json = parse_json(metadata_entry(file, "architecture"), error);
  if (!json) throw SafetensorsError("__metadata__.architecture is broken: " + error);
  return architecture_from_json(*json);
}

std::int64_t read_optimizer_steps(const SafetensorsHeader& file) {
  const std::string& text = metadata_entry(file, "optimizer_steps");
  std::int64_t steps = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || steps < 0) {
    throw SafetensorsError("__metadata__.optimizer_steps is no count: " + text);
  }
  return steps;
}

}  // namespace

WrittenFile save_state(const Policy& policy, const std::string& path) {
  std::vector<OutgoingTensor> tensors;
  for (const auto& tensor : policy.tensors()) tensors.push_back({tensor.name, tensor.shape, tensor.values});
  return write_safetensors(path,
                           {{"architecture", write_json(architecture_json(policy.architecture()), KeyOrder::sorted)},
                            {"optimizer_steps", std::to_string(policy.optimizer_steps)}},
                           tensors);
}

LoadedState load_state(const std::string& path, ThreadPool& pool) {
  const InputFile file(path);
  const SafetensorsHeader header = read_safetensors_header(file);
  const Architecture architecture = read_architecture(header);
  const std::int64_t steps = read_optimizer_steps(header);
  auto policy = std::make_unique<Policy>(architecture);
  const auto tensors = policy->tensors();
  if (tensors.size() != header.tensors.size()) {
    throw SafetensorsError(std::to_string(header.tensors.size()) + " tensors; this architecture has " +
                           std::to_string(tensors.size()));
  }
  std::vector<std::uint64_t> offsets;
  for (const auto& tensor : tensors) {
    const auto found = header.tensors.find(tensor.name);
    if (found == header.tensors.end()) throw SafetensorsError("tensor " + tensor.name + " is missing");
    const TensorPlace& place = found->second;
    if (place.dtype != "F32" || place.shape != tensor.shape) {
      throw SafetensorsError("tensor " + tensor.name + " has another shape or dtype than the architecture says");
    }
    offsets.push_back(header.data_begin + place.begin);
  }
  const StateLeaves leaves = leaves_of(*policy);
  const auto digests = hash_leaves(*policy, leaves, pool, [&](std::size_t leaf) {
    leaves.visit(leaf, [&](std::size_t tensor, std::size_t from, std::size_t size) {
      file.read(reinterpret_cast<char*>(tensors[tensor].values.data()) + from, size, offsets[tensor] + from);
    });
  });
  policy->optimizer_steps = steps;
  policy->weights_changed(&pool);
  std::string digest = state_digest(*policy, digests);
  return {std::move(policy), std::move(digest)};
}

}  // namespace longhaul
