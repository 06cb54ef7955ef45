#include "state/hf/hf_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "state/digest/digest.h"
#include "state/float_formats.h"
#include "state/input_file.h"
#include "state/safetensors.h"
#include "state/state_tensors.h"
#include "state/tensor_reader.h"

namespace longhaul {
namespace {

constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr const char* head_tensor = "lm_head.weight";
constexpr const char* embedding_tensor = "model.embed_tokens.weight";

// A tensor in one of the folder's files.
struct Source {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;  // not aligned
  const std::string* file;
};

struct Shard {
  std::string path;
  MappedFile map;
  SafetensorsHeader header;

  explicit Shard(const std::string& path) : path(path), map(path) {}
};

class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    if (!std::filesystem::is_directory(path)) throw HfError("no folder " + path + "; expected a Hugging Face model");
  }

  bool has(const std::string& file) const { return std::filesystem::is_regular_file(join(file)); }
  std::string join(const std::string& file) const { return (std::filesystem::path(path_) / file).string(); }

  std::string text(const std::string& file) const {
    const auto bytes = read_file(join(file));
    return {bytes.begin(), bytes.end()};
  }

  Json json(const std::string& file) const {
    std::string error;
    auto json = parse_json(text(file), error);
    if (!json || json->object() == nullptr) {
      throw HfError(join(file) + " is not a JSON object" + (json ? "" : ": " + error));
    }
    return std::move(*json);
  }

 private:
  std::string path_;
};

HfModel read_model(const Folder& folder) {
  if (!folder.has("config.json")) throw HfError(folder.join("config.json") + " is missing");
  HfConfig config;
  try {
    config = parse_hf_config(folder.text("config.json"));
  } catch (const HfError& error) {
    throw HfError(folder.join("config.json") + ": " + error.what());
  }
  HfModel model{config.architecture, config.eos_tokens};
  std::string from = "config.json";
  if (folder.has("generation_config.json")) {
    try {
      const auto tokens = parse_eos_tokens(folder.json("generation_config.json"));
      if (!tokens.empty()) model.eos_tokens = tokens, from = "generation_config.json";
    } catch (const HfError& error) {
      throw HfError(folder.join("generation_config.json") + ": " + error.what());
    }
  }
  for (const std::int32_t token : model.eos_tokens) {
    if (token < model.architecture.vocab_size) continue;
    throw HfError(folder.join(from) + ": eos_token_id " + std::to_string(token) + " is not a token of this model; vocab_size is " +
                  std::to_string(model.architecture.vocab_size));
  }
  return model;
}

// The folder's weight files, mapped into memory, with the tensors in them.
class Files {
 public:
  explicit Files(const Folder& folder) {
    path_ = folder.join(folder.has(single_file) ? single_file : index_file);
    // The order in which transformers looks for these files.
    if (folder.has(single_file)) {
      open(folder, single_file);
    } else if (folder.has(index_file)) {
      open_shards(folder);
    } else {
      throw HfError(folder.join(single_file) + " is missing, and so is " + index_file +
                    (folder.has("pytorch_model.bin") || folder.has("pytorch_model.bin.index.json")
                         ? "; pytorch_model.bin cannot be read: save the model with safe_serialization"
                         : ""));
    }
  }

  // The single weight file, or the index.
  const std::string& path() const { return path_; }
  const std::map<std::string, Source>& tensors() const { return tensors_; }

 private:
  const Shard& open(const Folder& folder, const std::string& name) {
    auto shard = std::make_unique<Shard>(folder.join(name));
    try {
      shard->header = parse_safetensors_header(shard->map.bytes(), shard->map.bytes().size());
    } catch (const SafetensorsError& error) {
      throw HfError(shard->path + ": " + error.what());
    }
    for (const auto& [tensor, place] : shard->header.tensors) {
      const auto bytes = shard->map.bytes().subspan(shard->header.data_begin + place.begin, place.end - place.begin);
      const auto [at, fresh] = tensors_.insert({tensor, Source{place.dtype, place.shape, bytes, &shard->path}});
      if (!fresh) throw HfError(shard->path + ": tensor " + tensor + " is in " + *at->second.file + " too");
    }
    shards_.push_back(std::move(shard));
    return *shards_.back();
  }

  void open_shards(const Folder& folder) {
    const std::string index = folder.join(index_file);
    const Json json = folder.json(index_file);
    const Json* map = json.find("weight_map");
    if (map == nullptr || map->object() == nullptr) throw HfError(index + ": weight_map is missing; it must be an object");
    std::map<std::string, std::vector<std::string>> tensors_of;
    for (const JsonMember& member : *map->object()) {
      const std::string* file = member.value.string();
      if (file == nullptr || file->empty() || file->find('/') != std::string::npos || file->front() == '.') {
        throw HfError(index + ": weight_map." + member.name + " is " + write_json(member.value) +
                      "; it must be the name of a file in the folder");
      }
      tensors_of[*file].push_back(member.name);
    }
    for (const auto& [file, names] : tensors_of) {
      if (!folder.has(file)) {
        throw HfError(folder.join(file) + " is missing; " + index_file + " names it for " + std::to_string(names.size()) +
                      " tensors, the first is " + names.front());
      }
      const Shard& shard = open(folder, file);
      for (const std::string& name : names) {
        if (!shard.header.tensors.contains(name)) {
          throw HfError(shard.path + ": tensor " + name + " is missing, but " + index_file + " lists it");
        }
      }
    }
  }

  std::string path_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::map<std::string, Source> tensors_;
};

bool is_old_buffer(const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); }

std::string describe_source(const Source& source) { return describe_tensor(source.dtype, source.shape); }

void check_source(const std::string& name, const Source& source, const std::vector<std::int64_t>& shape) {
  const bool known = source.dtype == "F32" || source.dtype == "F16" || source.dtype == "BF16";
  if (known && source.shape == shape) return;
  throw HfError(*source.file + ": tensor " + name + " is " + describe_source(source) + "; expected F32, F16 or BF16 " +
                describe_tensor("", shape).substr(1));
}

// Checks that every tensor of the architecture is present, and that no other tensor would change what the model computes.
void check_sources(const Files& files, const Architecture& architecture) {
  std::set<std::string> known;
  for (const auto& tensor : expected_weight_tensors(architecture)) {
    known.insert(tensor.name);
    const auto found = files.tensors().find(tensor.name);
    if (found == files.tensors().end()) {
      throw HfError(files.path() + ": tensor " + tensor.name + " is missing; a " +
                    name(architecture.model_type) + " model with this config.json needs it, " +
                    describe_tensor("", tensor.shape).substr(1));
    }
    check_source(tensor.name, found->second, tensor.shape);
  }
  for (const auto& [tensor, source] : files.tensors()) {
    if (known.contains(tensor) || is_old_buffer(tensor)) continue;
    if (tensor == head_tensor && architecture.tie_word_embeddings) {
      check_source(tensor, source, {architecture.vocab_size, architecture.hidden_size});
      continue;
    }
    throw HfError(*source.file + ": tensor " + tensor + ", " + describe_source(source) + ", does not belong to a " +
                  name(architecture.model_type) + " model with this config.json");
  }
}

// Converts values [from, from + count) to fp32.
void convert(const Source& source, std::size_t from, std::size_t count, float* to) {
  const std::uint8_t* bytes = source.bytes.data() + from * dtype_bytes(source.dtype);
  if (source.dtype == "F32") {
    std::memcpy(to, bytes, count * sizeof(float));
  } else if (source.dtype == "BF16") {
    from_bf16(bytes, count, to);
  } else {
    from_f16(bytes, count, to);
  }
}

// The file of a tied model may also contain the head; it must then equal the embedding.
void check_tied_head(const Source& head, const Weights& weights, ThreadPool& pool) {
  const float* embedding = weights.at(weights.layout().embedding);
  const std::size_t columns = std::size_t(weights.architecture().hidden_size);
  pool.parallel_for(std::size_t(weights.architecture().vocab_size), [&](std::size_t row) {
    static thread_local std::vector<float> values;
    values.resize(columns);
    convert(head, row * columns, columns, values.data());
    if (std::memcmp(values.data(), embedding + row * columns, columns * sizeof(float)) == 0) return;
    throw HfError(*head.file + ": tensor " + head_tensor + " differs from " + embedding_tensor + " in row " + std::to_string(row) +
                  ", and config.json has tie_word_embeddings true; set it to false if the head has its own weights");
  });
}

}  // namespace

HfModel read_hf_model(const std::string& path) {
  const Folder folder(path);
  HfModel model = read_model(folder);
  check_sources(Files(folder), model.architecture);
  return model;
}

LoadedHf load_hf(const std::string& path, ThreadPool& pool, const Progress& progress) {
  const Folder folder(path);
  LoadedHf loaded{read_model(folder), nullptr, ""};
  const Architecture& architecture = loaded.model.architecture;
  const Files files(folder);
  check_sources(files, architecture);
  loaded.weights = std::make_shared<Weights>(architecture, &pool);
  const auto tensors = weight_tensors(*loaded.weights);
  std::vector<const Source*> sources;
  std::vector<TensorBytes<const std::byte>> hashed;
  for (const auto& tensor : tensors) {
    sources.push_back(&files.tensors().at(tensor.name));
    hashed.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  const StateLeaves leaves(hashed);
  std::mutex telling;
  std::uint64_t done = 0;
  const auto digests = hash_leaves(hashed, leaves, pool, [&](std::size_t leaf) {
    std::uint64_t bytes = 0;
    leaves.visit(leaf, [&](std::size_t tensor, std::size_t from, std::size_t size) {
      const std::size_t first = from / sizeof(float), count = size / sizeof(float);
      convert(*sources[tensor], first, count, reinterpret_cast<float*>(tensors[tensor].bytes.data()) + first);
      if (const auto bad = first_not_finite(tensors[tensor].bytes.subspan(from, size))) {
        const float value = reinterpret_cast<const float*>(tensors[tensor].bytes.data())[first + *bad];
        throw HfError(*sources[tensor]->file + ": tensor " + tensors[tensor].name + " has " + std::to_string(value) +
                      " as value " + std::to_string(first + *bad) + "; all must be finite");
      }
      bytes += size;
    });
    if (!progress) return;
    std::lock_guard lock(telling);
    done += bytes;
    progress(done, leaves.total_bytes());
  });
  const auto head = files.tensors().find(head_tensor);
  if (architecture.tie_word_embeddings && head != files.tensors().end()) check_tied_head(head->second, *loaded.weights, pool);
  loaded.digest = weights_digest(architecture, digests);
  return loaded;
}

}  // namespace longhaul
