#include "state/state_file.h"

#include <charconv>
#include <cstring>
#include <stdexcept>

#include "state/digest.h"
#include "wire/json.h"

namespace longhaul {
namespace {

const std::string& metadata_entry(const SafetensorsFile& file, const char* key) {
  const auto entry = file.metadata.find(key);
  if (entry == file.metadata.end()) throw SafetensorsError(std::string("__metadata__.") + key + " is missing");
  return entry->second;
}

Architecture read_architecture(const SafetensorsFile& file) {
  std::string error;
  const auto json = parse_json(metadata_entry(file, "architecture"), error);
  if (!json) throw SafetensorsError("__metadata__.architecture is broken: " + error);
  return architecture_from_json(*json);
}

std::int64_t read_optimizer_steps(const SafetensorsFile& file) {
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

std::unique_ptr<Policy> load_state(const std::string& path, ThreadPool& pool) {
  const SafetensorsFile file = parse_safetensors(read_file(path));
  const Architecture architecture = read_architecture(file);
  const std::int64_t steps = read_optimizer_steps(file);
  auto policy = std::make_unique<Policy>(architecture);
  const auto tensors = policy->tensors();
  if (tensors.size() != file.tensors.size()) {
    throw SafetensorsError(std::to_string(file.tensors.size()) + " tensors; this architecture has " +
                           std::to_string(tensors.size()));
  }
  for (const auto& tensor : tensors) {
    const auto found = file.tensors.find(tensor.name);
    if (found == file.tensors.end()) throw SafetensorsError("tensor " + tensor.name + " is missing");
    const TensorView& view = found->second;
    if (view.dtype != "F32" || view.shape != tensor.shape) {
      throw SafetensorsError("tensor " + tensor.name + " has another shape or dtype than the architecture says");
    }
    if (!view.bytes.empty()) std::memcpy(tensor.values.data(), view.bytes.data(), view.bytes.size());
  }
  policy->optimizer_steps = steps;
  policy->weights_changed(&pool);
  return policy;
}

}  // namespace longhaul
