// Hugging Face folders: as one file or as shards, in every dtype; and each way in which a folder can be broken.
#include "state/hf/hf_folder.h"

#include <bit>
#include <cmath>
#include <limits>

#include "support/checks.h"
#include "support/folders.h"
#include "support/policies.h"
#include "state/digest/digest.h"
#include "wire/json.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

void write_config(const TemporaryFolder& folder, const Architecture& architecture) {
  write_text(folder / "config.json", write_json(hf_config_json(architecture, std::vector<std::int32_t>{3}, "float32")));
}

// Distributes the tensors over `shards` files in turn.
void write_shards(const TemporaryFolder& folder, const std::vector<ModelTensor>& tensors, int shards) {
  std::vector<std::vector<ModelTensor>> parts(shards);
  Json map{Json::Object{}};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const int shard = int(i) % shards;
    parts[shard].push_back(tensors[i]);
    map.set(tensors[i].name, "part-" + std::to_string(shard) + ".safetensors");
  }
  for (int i = 0; i < shards; ++i) write_tensors(folder / ("part-" + std::to_string(i) + ".safetensors"), parts[i]);
  Json index;
  index.set("weight_map", std::move(map));
  write_text(folder / "model.safetensors.index.json", write_json(index));
}

ModelTensor& find(std::vector<ModelTensor>& tensors, const std::string& name) {
  return *std::ranges::find_if(tensors, [&](const ModelTensor& tensor) { return tensor.name == name; });
}

void loads_every_layout_and_dtype() {
  ThreadPool pool(2);
  std::uint64_t seed = 5;
  for (const auto& [title, architecture] : tiny_architectures()) {
    const auto weights = tiny_weights(seed++, architecture);
    for (const std::string dtype : {"F32", "BF16", "F16"}) {
      // Values that the dtype holds exactly (at most 8 bits of fraction, nothing subnormal).
      for (float& value : weights->values()) {
        value = std::bit_cast<float>(std::uint32_t{to_bf16(value)} << 16);
        if (std::abs(value) < 1e-3f) value = 0;
      }
      weights->changed();
      const std::string digest = weights_digest(*weights, pool);
      for (const int shards : {0, 1, 3}) {
        const TemporaryFolder folder("hf");
        write_config(folder, architecture);
        const auto tensors = tensors_of(*weights, dtype);
        if (shards == 0) {
          write_tensors(folder / "model.safetensors", tensors);
        } else {
          write_shards(folder, tensors, shards);
        }
        std::uint64_t told = 0;
        const LoadedHf loaded = load_hf(folder.path(), pool, [&](std::uint64_t done, std::uint64_t total) {
          CHECK(done > told && done <= total && total == 4 * weights->layout().total);
          told = done;
        });
        CHECK(told == 4 * weights->layout().total);
        CHECK(loaded.digest == digest);
        CHECK(std::ranges::equal(loaded.weights->values(), weights->values()));
        CHECK(loaded.model.architecture == architecture);
        CHECK(loaded.model.eos_tokens == std::vector<std::int32_t>{3});
        const HfModel model = read_hf_model(folder.path());
        CHECK(model.architecture == architecture && model.eos_tokens == loaded.model.eos_tokens);
      }
    }
  }
}

// The panels belong to the weights that were read.
void a_loaded_model_computes_the_same() {
  ThreadPool pool(2);
  const TemporaryFolder folder("hf-forward");
  const auto weights = tiny_weights();
  write_config(folder, tiny_architecture());
  write_tensors(folder / "model.safetensors", tensors_of(*weights));
  const auto tokens = random_tokens(30, tiny_architecture().vocab_size, 3);
  const Policy before(weights), after(load_hf(folder.path(), pool).weights);
  CHECK(decode_logprobs(before, tokens, 1, pool) == decode_logprobs(after, tokens, 1, pool));
}

// A sharded folder as `save_pretrained` writes it, and the logits that transformers computes from it (tools/make_fixtures.py).
void loads_what_transformers_wrote() {
  ThreadPool pool(2);
  const std::string path = std::string(FIXTURE_DIRECTORY) + "/qwen3_sharded";
  CHECK(std::filesystem::exists(path + "/model.safetensors.index.json") && !std::filesystem::exists(path + "/model.safetensors"));
  const LoadedHf loaded = load_hf(path, pool);
  CHECK(loaded.model.eos_tokens == (std::vector<std::int32_t>{2, 5}));
  CHECK(loaded.model.architecture.num_attention_heads == 4 && loaded.model.architecture.num_key_value_heads == 2);
  std::string error;
  const auto expected = parse_json(read_text(path + ".logits.json"), error);
  CHECK(expected.has_value());
  if (!expected) return;
  std::vector<std::int32_t> tokens;
  for (const Json& token : *expected->find("tokens")->array()) tokens.push_back(static_cast<std::int32_t>(*token.number()));
  const Json::Array& rows = *expected->find("logits")->array();
  CHECK(tokens.size() == 24 && rows.size() == tokens.size());
  const Policy policy(loaded.weights);
  const auto vocab = static_cast<std::size_t>(loaded.model.architecture.vocab_size);
  const std::vector<std::int32_t> blocks = own_blocks(static_cast<int>(tokens.size()));
  KvCache cache(loaded.model.architecture, static_cast<int>(blocks.size()));
  std::vector<float> logits(vocab);
  double greatest = 0, largest = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Feed feed{std::span(tokens).subspan(i, 1), static_cast<int>(i), blocks, true};
    extend(policy, cache, {&feed, 1}, logits.data(), pool);
    const Json::Array& row = *rows[i].array();
    CHECK(row.size() == vocab);
    for (std::size_t t = 0; t < vocab; ++t) {
      greatest = std::max(greatest, std::abs(*row[t].number() - static_cast<double>(logits[t])));
      largest = std::max(largest, std::abs(*row[t].number()));
    }
  }
  std::printf("logits differ from those of transformers by %.1e at most, of up to %.1f\n", greatest, largest);
  CHECK(largest > 1 && greatest < 2e-5);
}

void prefers_the_stop_tokens_of_generation_config() {
  ThreadPool pool(1);
  const TemporaryFolder folder("hf-eos");
  write_config(folder, tiny_architecture());
  write_tensors(folder / "model.safetensors", tensors_of(*tiny_weights()));
  write_text(folder / "generation_config.json", R"({"temperature":0.6})");
  CHECK(read_hf_model(folder.path()).eos_tokens == std::vector<std::int32_t>{3});
  write_text(folder / "generation_config.json", R"({"eos_token_id":[5,4]})");
  CHECK(read_hf_model(folder.path()).eos_tokens == (std::vector<std::int32_t>{4, 5}));
  write_text(folder / "generation_config.json", R"({"eos_token_id":71})");
  CHECK_THROWS(HfError, read_hf_model(folder.path()), "generation_config.json: eos_token_id 71 is not a token of this model; vocab_size is 71");
  write_text(folder / "generation_config.json", "{");
  CHECK_THROWS(HfError, read_hf_model(folder.path()), "generation_config.json is not a JSON object");
}

void accepts_a_tied_head_that_equals_the_embedding() {
  ThreadPool pool(2);
  const TemporaryFolder folder("hf-tied");
  const auto weights = tiny_weights();
  write_config(folder, tiny_architecture());
  auto tensors = tensors_of(*weights);
  ModelTensor head = find(tensors, "model.embed_tokens.weight");
  head.name = "lm_head.weight";
  tensors.push_back(head);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}, {1, 2}});
  write_tensors(folder / "model.safetensors", tensors);
  CHECK(load_hf(folder.path(), pool).digest == weights_digest(*weights, pool));
  find(tensors, "lm_head.weight").values[48 * 5 + 1] += 1;
  write_tensors(folder / "model.safetensors", tensors);
  CHECK_THROWS(HfError, load_hf(folder.path(), pool), "tensor lm_head.weight differs from model.embed_tokens.weight in row 5");
}

void refuses_broken_folders() {
  ThreadPool pool(2);
  const TemporaryFolder folder("hf-broken");
  const Architecture architecture = tiny_architecture();
  const auto weights = tiny_weights();
  const std::string file = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  const std::vector<ModelTensor> whole = tensors_of(*weights);
  const auto refuse = [&](const std::string& part) {
    CHECK_THROWS(HfError, load_hf(folder.path(), pool), part);
  };
  const auto refuse_tensors = [&](auto&& change, const std::string& part) {
    std::vector<ModelTensor> tensors = whole;
    change(tensors);
    write_tensors(file, tensors);
    refuse(file + ": " + part);
  };
  CHECK_THROWS(HfError, load_hf(folder / "none", pool), "no folder " + folder / "none");
  refuse(folder / "config.json" + " is missing");
  write_config(folder, architecture);
  refuse(file + " is missing, and so is model.safetensors.index.json");
  write_text(folder / "pytorch_model.bin", "");
  refuse("pytorch_model.bin cannot be read");

  const std::string up = "model.layers.1.mlp.up_proj.weight";
  refuse_tensors([&](auto& t) { std::erase_if(t, [&](const auto& one) { return one.name == up; }); },
                 "tensor " + up + " is missing; a qwen3 model with this config.json needs it, [80, 48]");
  refuse_tensors([&](auto& t) { find(t, up).shape = {48, 80}; }, "tensor " + up + " is F32 [48, 80]; expected F32, F16 or BF16 [80, 48]");
  refuse_tensors([&](auto& t) { find(t, up).values[48 * 3] = std::numeric_limits<float>::quiet_NaN(); },
                 "tensor " + up + " has nan as value 144; all must be finite");
  refuse_tensors([&](auto& t) { find(t, up).dtype = "BF16", find(t, up).values[9] = -std::numeric_limits<float>::infinity(); },
                 "tensor " + up + " has -inf as value 9");
  refuse_tensors([&](auto& t) { t.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {128}, std::vector<float>(128)}); },
                 "tensor model.layers.0.self_attn.q_proj.bias, F32 [128], does not belong to a qwen3 model with this config.json");
  refuse_tensors([&](auto& t) { t.push_back({"model.layers.2.input_layernorm.weight", "F32", {48}, std::vector<float>(48)}); },
                 "tensor model.layers.2.input_layernorm.weight");
  // A vocabulary larger than config.json says.
  refuse_tensors([&](auto& t) {
    ModelTensor& embedding = find(t, "model.embed_tokens.weight");
    embedding.shape[0] = 72;
    embedding.values.resize(72 * 48);
  }, "tensor model.embed_tokens.weight is F32 [72, 48]; expected F32, F16 or BF16 [71, 48]");
  // Weights must not be integers.
  std::vector<OutgoingTensor> outgoing;
  for (const ModelTensor& tensor : whole) {
    outgoing.push_back({tensor.name, tensor.name == "model.norm.weight" ? "I32" : "F32", tensor.shape, std::as_bytes(std::span(tensor.values))});
  }
  write_safetensors(file, {}, outgoing);
  refuse("tensor model.norm.weight is I32 [48]; expected F32, F16 or BF16 [48]");

  // Broken files.
  write_tensors(file, whole);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 2);
  refuse(file + ": tensor model.norm.weight is outside the file");
  write_text(file, std::string(8, '\xff'));
  refuse(file + ": header of 18446744073709551615 bytes does not fit the file of 8 bytes");
  write_text(file, "");
  refuse(file + ": shorter than a header length");
  std::filesystem::remove(file);

  // Broken shards.
  write_shards(folder, whole, 3);
  CHECK(load_hf(folder.path(), pool).digest == weights_digest(*weights, pool));
  std::filesystem::remove(folder / "part-1.safetensors");
  refuse(folder / "part-1.safetensors" + " is missing; model.safetensors.index.json names it for ");
  write_shards(folder, whole, 3);
  const std::string good = read_text(index);
  const auto refuse_index = [&](const std::string& from, const std::string& to, const std::string& part) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write_text(index, text);
    refuse(part);
  };
  refuse_index(R"("weight_map")", R"("weights")", index + ": weight_map is missing");
  refuse_index("part-0.safetensors", "../part-0.safetensors", "it must be the name of a file in the folder");
  refuse_index("part-0.safetensors", "part-2.safetensors", "lists it");
  write_text(index, "[]");
  refuse(index + " is not a JSON object");
  // A tensor that is in two shards, and a tensor that is in no shard.
  write_text(index, good);
  write_tensors(folder / "part-1.safetensors", whole);
  refuse(" too");
  std::vector<ModelTensor> less = whole;
  std::erase_if(less, [&](const auto& one) { return one.name == up; });
  write_shards(folder, less, 2);
  refuse(index + ": tensor " + up + " is missing");

  // A single file is preferred to an index, as in transformers.
  write_tensors(file, whole);
  CHECK(load_hf(folder.path(), pool).digest == weights_digest(*weights, pool));

  write_text(folder / "config.json", R"({"model_type":"gpt2"})");
  refuse(folder / "config.json" + ": model_type is \"gpt2\"; supported are qwen3");
}

}  // namespace

int main() {
  loads_every_layout_and_dtype();
  a_loaded_model_computes_the_same();
  loads_what_transformers_wrote();
  prefers_the_stop_tokens_of_generation_config();
  accepts_a_tied_head_that_equals_the_embedding();
  refuses_broken_folders();
  return test::finish();
}
