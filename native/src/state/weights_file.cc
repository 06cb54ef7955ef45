#include "state/weights_file.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "state/digest/digest.h"
#include "state/tensor_reader.h"
#include "wire/json.h"

namespace longhaul {
namespace {

// Also checks that the file's tensors are those that the architecture implies.
Architecture parse_architecture(const SafetensorsHeader& file) {
  const auto entry = file.metadata.find("architecture");
  if (entry == file.metadata.end()) throw SafetensorsError("__metadata__.architecture is missing");
  std::string error;
  const auto json = parse_json(entry->second, error);
  if (!json) throw SafetensorsError("__metadata__.architecture is broken: " + error);
  if (file.metadata.size() > 1) {
    throw SafetensorsError("__metadata__ has other keys than architecture; if the file is a state, read it with load_state");
  }
  const Architecture architecture = architecture_from_json(*json);
  check_tensors(file, expected_weight_tensors(architecture));
  return architecture;
}

}  // namespace

WrittenFile save_weights(const Weights& weights, const std::string& path, const Progress& progress) {
  std::vector<OutgoingTensor> tensors;
  for (auto& tensor : weight_tensors(weights)) {
    tensors.push_back({std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape), tensor.bytes});
  }
  const std::string architecture = write_json(architecture_json(weights.architecture()), KeyOrder::sorted);
  return write_safetensors(path, {{"architecture", architecture}}, tensors, progress);
}

Architecture read_weights_architecture(const std::string& path) {
  return naming_file("weights file " + path, [&] { return parse_architecture(read_safetensors_header(InputFile(path))); });
}

LoadedWeights load_weights(const std::string& path, ThreadPool& pool, const Progress& progress) {
  return naming_file("weights file " + path, [&] {
    const InputFile file(path);
    const SafetensorsHeader header = read_safetensors_header(file);
    const Architecture architecture = parse_architecture(header);
    LoadedWeights loaded;
    loaded.weights = std::make_shared<Weights>(architecture, &pool);
    const auto leaves = read_and_hash(file, header, weight_tensors(*loaded.weights), pool, progress);
    loaded.digest = weights_digest(architecture, leaves);
    return loaded;
  });
}

}  // namespace longhaul
