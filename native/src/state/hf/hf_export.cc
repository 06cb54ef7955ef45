#include "state/hf/hf_export.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <utility>

#include "state/float_formats.h"
#include "state/hf/hf_config.h"
#include "state/output_file.h"
#include "state/state_tensors.h"

namespace longhaul {
namespace {

std::vector<std::byte> as_bf16(std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t word = to_bf16(values[i]);
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
  }
  return bytes;
}

OutgoingTensor outgoing(std::string name, std::vector<std::int64_t> shape, std::span<const float> values, HfDtype dtype) {
  if (dtype == HfDtype::f32) return {std::move(name), "F32", std::move(shape), std::as_bytes(values)};
  return {std::move(name), "BF16", std::move(shape), {}, [values] { return as_bf16(values); }};
}

// A and B of one module.
struct AdapterPair {
  std::span<const float> a, b;  // [rank, inputs], [outputs, rank]
};

// The adapters' pairs, by the name of the weight to which each pair is added.
std::map<std::string, AdapterPair> adapter_pairs(const Adapters& adapters) {
  static constexpr std::string_view down = ".lora_A.weight", up = ".lora_B.weight";
  std::map<std::string, AdapterPair> pairs;
  for (const TensorPlace& place : tensor_places(adapters.settings(), adapters.layout())) {
    const bool is_down = place.name.ends_with(down);
    const std::string weight = place.name.substr(0, place.name.size() - (is_down ? down : up).size()) + ".weight";
    (is_down ? pairs[weight].a : pairs[weight].b) = adapters.values().subspan(place.offset, place.size);
  }
  return pairs;
}

// W + scale · B·A, [outputs, inputs]
std::vector<float> merged(std::span<const float> weight, const AdapterPair& pair, int rank, float scale) {
  std::vector<float> out(weight.begin(), weight.end());
  const std::size_t inputs = pair.a.size() / rank, outputs = pair.b.size() / rank;
  std::vector<float> row(inputs);
  for (std::size_t i = 0; i < outputs; ++i) {
    std::fill(row.begin(), row.end(), 0.0f);
    for (int r = 0; r < rank; ++r) {
      const float b = pair.b[i * rank + r];
      const float* a = pair.a.data() + r * inputs;
      for (std::size_t k = 0; k < inputs; ++k) row[k] += b * a[k];
    }
    for (std::size_t k = 0; k < inputs; ++k) out[i * inputs + k] += scale * row[k];
  }
  return out;
}

OutgoingTensor merged_outgoing(const NamedTensor<const float>& tensor, const AdapterPair& pair, const LoraSettings& lora,
                               HfDtype dtype) {
  const auto make = [values = tensor.values, pair, rank = lora.rank, scale = lora.scale(), dtype] {
    const std::vector<float> sum = merged(values, pair, rank, scale);
    if (dtype == HfDtype::bf16) return as_bf16(sum);
    const auto bytes = std::as_bytes(std::span(sum));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  return {tensor.name, dtype == HfDtype::f32 ? "F32" : "BF16", tensor.shape, {}, make};
}

std::vector<OutgoingTensor> model_tensors(const Policy& policy, HfDtype dtype) {
  std::map<std::string, AdapterPair> pairs;
  if (policy.adapters() != nullptr) pairs = adapter_pairs(*policy.adapters());
  std::vector<OutgoingTensor> tensors;
  for (const NamedTensor<const float>& tensor : policy.weights().tensors()) {
    const auto pair = pairs.find(tensor.name);
    tensors.push_back(pair == pairs.end()
                          ? outgoing(tensor.name, tensor.shape, tensor.values, dtype)
                          : merged_outgoing(tensor, pair->second, policy.adapters()->settings(), dtype));
  }
  return tensors;
}

std::vector<OutgoingTensor> adapter_tensors(const Adapters& adapters, HfDtype dtype) {
  std::vector<OutgoingTensor> tensors;
  for (const TensorPlace& place : tensor_places(adapters.settings(), adapters.layout())) {
    tensors.push_back(outgoing("base_model.model." + place.name, place.shape,
                               adapters.values().subspan(place.offset, place.size), dtype));
  }
  return tensors;
}

// The keys that PEFT writes for a plain LoRA.
Json adapter_config(const LoraSettings& lora, const std::string& base_model) {
  Json::Array targets;
  for (const LoraTarget target : lora.targets) targets.emplace_back(name(target));
  Json json;
  json.set("peft_type", "LORA");
  json.set("task_type", "CAUSAL_LM");
  json.set("base_model_name_or_path", base_model.empty() ? Json(nullptr) : Json(base_model));
  json.set("r", lora.rank);
  json.set("lora_alpha", lora.alpha);
  json.set("target_modules", std::move(targets));
  json.set("lora_dropout", 0);
  json.set("bias", "none");
  json.set("fan_in_fan_out", false);
  json.set("inference_mode", true);
  json.set("init_lora_weights", true);
  json.set("use_rslora", false);
  json.set("use_dora", false);
  json.set("modules_to_save", nullptr);
  json.set("rank_pattern", Json::Object{});
  json.set("alpha_pattern", Json::Object{});
  return json;
}

// transformers and PEFT require this metadata before they read a file.
const std::map<std::string, std::string> format_metadata = {{"format", "pt"}};

// A folder that has a temporary name until all of it is on disk.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path) : path_(path), temporary_(path + ".tmp-" + std::to_string(::getpid())) {
    namespace fs = std::filesystem;
    if (fs::exists(fs::symlink_status(path))) {
      throw std::invalid_argument(path + " exists already; name a new folder for the exported model");
    }
    fs::remove_all(temporary_);
    fs::create_directory(temporary_);  // throws filesystem_error, a subclass of system_error
  }
  ~NewFolder() {
    if (placed_) return;
    std::error_code ignored;
    std::filesystem::remove_all(temporary_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Calls write(file) and syncs it.
  template <class Write>
  void add(const std::string& name, Write&& write) {
    OutputFile file(temporary_ + "/" + name);
    write(file);
    files_.push_back(file.finish());
    files_.back().path = path_ + "/" + name;
  }

  void add_json(const std::string& name, const Json& json) {
    add(name, [&](OutputFile& file) { file.put(write_json(json) + "\n"); });
  }

  std::vector<WrittenFile> place() {
    sync_folder(temporary_);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_io("cannot rename to", path_);
    placed_ = true;
    sync_folder(folder_of(path_));
    std::sort(files_.begin(), files_.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return std::move(files_);
  }

 private:
  std::string path_, temporary_;
  std::vector<WrittenFile> files_;
  bool placed_ = false;
};

// Cuts the tensors into runs; each run is at most `limit` bytes, or one tensor.
std::vector<std::span<const OutgoingTensor>> cut(std::span<const OutgoingTensor> tensors, std::uint64_t limit) {
  std::vector<std::span<const OutgoingTensor>> shards;
  std::size_t first = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > first && bytes + tensors[i].byte_count() > limit) {
      shards.push_back(tensors.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += tensors[i].byte_count();
  }
  shards.push_back(tensors.subspan(first));
  return shards;
}

// model-00001-of-00003.safetensors
std::string shard_name(std::size_t index, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

void put_model(NewFolder& folder, std::span<const OutgoingTensor> tensors, std::uint64_t limit, const Progress& progress) {
  std::uint64_t total = 0, before = 0;
  for (const OutgoingTensor& tensor : tensors) total += tensor.byte_count();
  const auto put = [&](const std::string& name, std::span<const OutgoingTensor> part) {
    std::uint64_t own = 0;
    folder.add(name, [&](OutputFile& file) {
      put_safetensors(file, format_metadata, part, [&](std::uint64_t done, std::uint64_t) {
        own = done;
        if (progress) progress(before + done, total);
      });
    });
    before += own;
  };
  if (total <= limit) return put("model.safetensors", tensors);
  const auto shards = cut(tensors, limit);
  Json::Object map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    put(name, shards[i]);
    for (const OutgoingTensor& tensor : shards[i]) map.push_back({tensor.name, Json(name)});
  }
  Json metadata;
  metadata.set("total_size", total);
  Json index;
  index.set("metadata", std::move(metadata));
  index.set("weight_map", std::move(map));
  folder.add_json("model.safetensors.index.json", index);
}

}  // namespace

std::vector<WrittenFile> export_hf(const Policy& policy, const std::string& path, const HfExport& settings,
                                   const Progress& progress) {
  NewFolder folder(path);
  if (policy.adapters() != nullptr && settings.adapters == HfAdapters::peft) {
    folder.add_json("adapter_config.json", adapter_config(policy.adapters()->settings(), settings.base_model));
    const auto tensors = adapter_tensors(*policy.adapters(), settings.dtype);
    folder.add("adapter_model.safetensors", [&](OutputFile& file) { put_safetensors(file, format_metadata, tensors, progress); });
    return folder.place();
  }
  const char* dtype = settings.dtype == HfDtype::f32 ? "float32" : "bfloat16";
  folder.add_json("config.json", hf_config_json(policy.architecture(), settings.eos_tokens, dtype));
  if (!settings.eos_tokens.empty()) {
    Json generation;
    generation.set("eos_token_id", eos_json(settings.eos_tokens));
    folder.add_json("generation_config.json", generation);
  }
  put_model(folder, model_tensors(policy, settings.dtype), settings.shard_bytes, progress);
  return folder.place();
}

}  // namespace longhaul
