#include "state/state_file.h"

#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "state/digest/digest.h"
#include "state/tensor_reader.h"
#include "wire/json.h"

namespace longhaul {
namespace {

// Doubles, and so JSON and TypeScript, hold whole numbers exactly up to this value.
constexpr std::int64_t most_steps = std::int64_t{1} << 53;

const std::string& metadata_entry(const SafetensorsHeader& file, const char* key) {
  const auto entry = file.metadata.find(key);
  if (entry == file.metadata.end()) throw SafetensorsError(std::string("__metadata__.") + key + " is missing");
  return entry->second;
}

Json metadata_json(const SafetensorsHeader& file, const char* key) {
  std::string error;
  auto json = parse_json(metadata_entry(file, key), error);
  if (!json) throw SafetensorsError(std::string("__metadata__.") + key + " is broken: " + error);
  return std::move(*json);
}

std::int64_t read_optimizer_steps(const SafetensorsHeader& file) {
  const std::string& text = metadata_entry(file, "optimizer_steps");
  std::int64_t steps = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || steps < 0 || steps > most_steps) {
    throw SafetensorsError("__metadata__.optimizer_steps is \"" + text + "\"; it must be a count from 0 to 2^53");
  }
  return steps;
}

void check_digest(const std::string& text) {
  const bool hex = text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex) throw SafetensorsError("__metadata__.base is \"" + text + "\"; it must be a digest of 64 hexadecimal digits");
}

// Also checks that the file's tensors are those that the header implies.
StateHeader parse_state_header(const SafetensorsHeader& file) {
  for (const auto& [key, value] : file.metadata) {
    if (key != "architecture" && key != "optimizer_steps" && key != "moments" && key != "lora" && key != "base") {
      throw SafetensorsError("__metadata__." + key +
                             " is unknown; a state has architecture, optimizer_steps, moments and, with adapters, lora and base");
    }
  }
  StateHeader header;
  header.architecture = architecture_from_json(metadata_json(file, "architecture"));
  header.optimizer_steps = read_optimizer_steps(file);
  header.moments = moment_format_from(metadata_entry(file, "moments"));
  if (file.metadata.contains("lora") || file.metadata.contains("base")) {
    header.lora = lora_from_json(metadata_json(file, "lora"));
    validate(*header.lora, header.architecture);
    header.base = metadata_entry(file, "base");
    check_digest(header.base);
  }
  check_tensors(file, expected_state_tensors(header.architecture, header.lora, header.moments));
  return header;
}

void require_base(const std::string& path, const StateHeader& header, const BaseWeights& held, ThreadPool& pool) {
  if (!held.weights) {
    throw WrongBaseError("state file " + path + " has adapters on the weights " + header.base +
                         ", but no weights are loaded; name their file or folder as base");
  }
  const std::string digest = held.digest.empty() ? weights_digest(*held.weights, pool) : held.digest;
  if (digest != header.base) {
    throw WrongBaseError("state file " + path + " has adapters on the weights " + header.base + ", not on " + digest);
  }
}

void check_scales(const Policy& policy) {
  const Moments& moments = policy.moments();
  for (const auto& [name, scales] : {std::pair("adam.m8.scales", moments.first_scales.span()),
                                     std::pair("adam.v8.scales", moments.second_scales.span())}) {
    for (std::size_t i = 0; i < scales.size(); ++i) {
      if (scales[i] >= 0) continue;
      throw SafetensorsError(std::string("tensor ") + name + " has " + std::to_string(scales[i]) + " as value " +
                             std::to_string(i) + "; a scale must not be negative");
    }
  }
}

}  // namespace

WrittenFile save_state(const Policy& policy, const std::string& path, std::string_view base, const Progress& progress) {
  std::map<std::string, std::string> metadata;
  metadata["architecture"] = write_json(architecture_json(policy.architecture()), KeyOrder::sorted);
  metadata["optimizer_steps"] = std::to_string(policy.optimizer_steps);
  metadata["moments"] = name(policy.moments().format);
  if (policy.adapters() != nullptr) {
    if (base.empty()) throw std::logic_error("a state with adapters cannot be saved without the digest of its base weights");
    metadata["lora"] = write_json(lora_json(policy.adapters()->settings()), KeyOrder::sorted);
    metadata["base"] = base;
  }
  std::vector<OutgoingTensor> tensors;
  for (auto& tensor : state_tensors(policy)) {
    tensors.push_back({std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape), tensor.bytes});
  }
  return write_safetensors(path, metadata, tensors, progress);
}

StateHeader read_state_header(const std::string& path) {
  return naming_file("state file " + path, [&] { return parse_state_header(read_safetensors_header(InputFile(path))); });
}

LoadedState load_state(const std::string& path, ThreadPool& pool, const BaseWeights& held, const Progress& progress) {
  return naming_file("state file " + path, [&] {
    const InputFile file(path);
    const SafetensorsHeader tensors = read_safetensors_header(file);
    const StateHeader header = parse_state_header(tensors);
    LoadedState loaded;
    if (header.lora) {
      require_base(path, header, held, pool);
      loaded.policy = std::make_unique<Policy>(held.weights, *header.lora, 0, header.moments);
    } else {
      loaded.policy = std::make_unique<Policy>(std::make_shared<Weights>(header.architecture, &pool), header.moments);
    }
    Policy& policy = *loaded.policy;
    const auto leaves = read_and_hash(file, tensors, state_tensors(policy), pool, progress);
    check_scales(policy);
    policy.optimizer_steps = header.optimizer_steps;
    loaded.digest = state_digest(policy, leaves, header.base);
    loaded.weights = header.lora ? header.base : weights_digest(policy.weights(), pool);
    return loaded;
  });
}

}  // namespace longhaul
