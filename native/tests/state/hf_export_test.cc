// An export is loaded back unchanged: fp32 bit for bit, bf16 rounded to nearest, adapters merged or in PEFT's format.
#include "state/hf/hf_export.h"

#include <cmath>

#include "support/checks.h"
#include "support/folders.h"
#include "support/policies.h"
#include "state/hf/hf_folder.h"
#include "wire/json.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

Json read_json(const std::string& path) {
  std::string error;
  const auto json = parse_json(read_text(path), error);
  CHECK(json.has_value());
  return json ? *json : Json();
}

HfExport settings(HfDtype dtype = HfDtype::f32, HfAdapters adapters = HfAdapters::merged) {
  HfExport settings;
  settings.dtype = dtype;
  settings.adapters = adapters;
  settings.eos_tokens = {2, 5};
  return settings;
}

void gives_back_the_same_bits() {
  const TemporaryFolder folder("export");
  ThreadPool pool(2);
  std::uint64_t seed = 5;
  for (const auto& [title, architecture] : tiny_architectures()) {
    const Policy policy = tiny_policy(seed, architecture);
    const std::string path = folder / ("model-" + std::to_string(seed++));
    const auto files = export_hf(policy, path, settings());
    CHECK(files.size() == 3);
    for (const WrittenFile& file : files) CHECK(std::filesystem::file_size(file.path) == file.size);
    const LoadedHf loaded = load_hf(path, pool);
    CHECK(loaded.model.architecture == architecture);
    CHECK(loaded.model.eos_tokens == (std::vector<std::int32_t>{2, 5}));
    CHECK(std::ranges::equal(loaded.weights->values(), policy.weights().values()));

    const std::string small = path + "-bf16";
    export_hf(policy, small, settings(HfDtype::bf16));
    const auto rounded = load_hf(small, pool).weights;
    bool nearest = true;
    for (std::size_t i = 0; i < rounded->values().size(); ++i) {
      const float exact = policy.weights().values()[i], got = rounded->values()[i];
      nearest = nearest && std::abs(got - exact) <= std::ldexp(std::abs(exact), -8);
    }
    CHECK(nearest);
    CHECK(*read_json(small + "/config.json").find("torch_dtype")->string() == "bfloat16");
  }
}

void cuts_into_shards() {
  const TemporaryFolder folder("export-shards");
  ThreadPool pool(2);
  const Policy policy = tiny_policy();
  HfExport cut = settings();
  cut.shard_bytes = 30'000;
  std::uint64_t told = 0;
  const auto files = export_hf(policy, folder / "x", cut, [&](std::uint64_t done, std::uint64_t total) {
    CHECK(done > told && total == 4 * policy.layout().total);
    told = done;
  });
  CHECK(told == 4 * policy.layout().total);
  std::size_t shards = 0;
  for (const WrittenFile& file : files) {
    if (!file.path.ends_with(".safetensors")) continue;
    ++shards;
    const auto header = read_safetensors_header(InputFile(file.path));
    CHECK(file.size - header.data_begin <= 30'000 || header.tensors.size() == 1);
    CHECK(header.metadata.at("format") == "pt");
  }
  CHECK(shards > 3);
  CHECK(files.size() == shards + 3);
  CHECK(std::filesystem::exists(folder / "x/model-00001-of-000" + std::string(shards < 10 ? "0" : "") + std::to_string(shards) + ".safetensors"));
  const Json index = read_json(folder / "x/model.safetensors.index.json");
  CHECK(*index.find("metadata")->find("total_size")->number() == 4.0 * double(policy.layout().total));
  CHECK(std::ranges::equal(load_hf(folder / "x", pool).weights->values(), policy.weights().values()));
}

// Compares W + (alpha / rank) · B·A with a plain computation in double.
void merges_adapters() {
  const TemporaryFolder folder("export-merged");
  ThreadPool pool(2);
  std::uint64_t seed = 5;
  for (const auto& [title, architecture] : tiny_architectures()) {
    const LoraSettings lora = lora_settings(3, 4);
    const Policy policy = tiny_lora_policy(seed, architecture, lora);
    const std::string path = folder / ("x" + std::to_string(seed++));
    export_hf(policy, path, settings());
    const auto merged = load_hf(path, pool).weights;
    std::map<std::string, std::span<const float>> trained;
    for (const TensorPlace& place : policy.trained_places()) trained[place.name] = policy.trained().subspan(place.offset, place.size);
    double worst = 0;
    std::size_t changed = 0;
    const auto before = policy.weights().tensors(), after = std::as_const(*merged).tensors();
    for (std::size_t t = 0; t < before.size(); ++t) {
      const std::string stem = before[t].name.substr(0, before[t].name.size() - std::string(".weight").size());
      const auto a = trained.find(stem + ".lora_A.weight"), b = trained.find(stem + ".lora_B.weight");
      if (a == trained.end()) {
        CHECK(std::ranges::equal(before[t].values, after[t].values));
        continue;
      }
      ++changed;
      const std::size_t inputs = std::size_t(before[t].shape[1]);
      for (std::size_t i = 0; i < before[t].values.size(); ++i) {
        double sum = 0;
        for (int r = 0; r < lora.rank; ++r) sum += double(b->second[i / inputs * lora.rank + r]) * a->second[r * inputs + i % inputs];
        worst = std::max(worst, std::abs(before[t].values[i] + lora.alpha / lora.rank * sum - after[t].values[i]));
      }
    }
    CHECK(changed == std::size_t(7 * architecture.num_hidden_layers));
    CHECK(worst < 1e-6);
    std::printf("%s: merged weights differ from those in double by %.1e at most\n", title.c_str(), worst);

    // The merged model gives the same log-probs as the adapters beside it, except for rounding.
    const auto tokens = random_tokens(24, architecture.vocab_size, 3);
    const auto beside = decode_logprobs(policy, tokens, 1, pool), within = decode_logprobs(Policy(merged), tokens, 1, pool);
    double apart = 0;
    for (std::size_t i = 0; i < beside.size(); ++i) apart = std::max(apart, double(std::abs(beside[i] - within[i])));
    CHECK(apart < 1e-4);
  }
}

void writes_peft_adapters() {
  const TemporaryFolder folder("export-peft");
  const LoraSettings lora{2, 5, {LoraTarget::v_proj, LoraTarget::up_proj}};
  const Policy policy = tiny_lora_policy(7, tiny_architecture(), lora);
  HfExport peft = settings(HfDtype::f32, HfAdapters::peft);
  peft.base_model = "some/model";
  const auto files = export_hf(policy, folder / "x", peft);
  CHECK(files.size() == 2);
  const Json config = read_json(folder / "x/adapter_config.json");
  CHECK(*config.find("peft_type")->string() == "LORA" && *config.find("task_type")->string() == "CAUSAL_LM");
  CHECK(*config.find("r")->number() == 2 && *config.find("lora_alpha")->number() == 5);
  CHECK(*config.find("base_model_name_or_path")->string() == "some/model");
  CHECK(write_json(*config.find("target_modules")) == R"(["v_proj","up_proj"])");
  // Compares the whole file: other values of these keys would make PEFT scale or transpose the adapters.
  CHECK(read_text(folder / "x/adapter_config.json") ==
        R"({"peft_type":"LORA","task_type":"CAUSAL_LM","base_model_name_or_path":"some/model","r":2,"lora_alpha":5,)"
        R"("target_modules":["v_proj","up_proj"],"lora_dropout":0,"bias":"none","fan_in_fan_out":false,"inference_mode":true,)"
        R"("init_lora_weights":true,"use_rslora":false,"use_dora":false,"modules_to_save":null,"rank_pattern":{},"alpha_pattern":{}})"
        "\n");
  const SafetensorsFile file = parse_safetensors(read_file(folder / "x/adapter_model.safetensors"));
  CHECK(file.tensors.size() == 8);
  for (const TensorPlace& place : policy.trained_places()) {
    const auto tensor = file.tensors.find("base_model.model." + place.name);
    CHECK(tensor != file.tensors.end() && tensor->second.shape == place.shape && tensor->second.dtype == "F32" &&
          std::memcmp(tensor->second.bytes.data(), policy.trained().data() + place.offset, 4 * place.size) == 0);
  }
  export_hf(policy, folder / "y", settings(HfDtype::bf16, HfAdapters::peft));
  CHECK(parse_safetensors(read_file(folder / "y/adapter_model.safetensors")).tensors.begin()->second.dtype == "BF16");
  CHECK(read_json(folder / "y/adapter_config.json").find("base_model_name_or_path")->is_null());
  // Without adapters, only the model is written.
  export_hf(tiny_policy(), folder / "z", settings(HfDtype::f32, HfAdapters::peft));
  CHECK(std::filesystem::exists(folder / "z/model.safetensors"));
}

void an_export_appears_whole_or_not_at_all() {
  const TemporaryFolder folder("export-atomic");
  const Policy policy = tiny_policy();
  std::filesystem::create_directory(folder / "taken");
  CHECK_THROWS(std::invalid_argument, export_hf(policy, folder / "taken", settings()), folder / "taken" + " exists already");
  CHECK_THROWS(std::system_error, export_hf(policy, folder / "none/x", settings()), "none/x");
  const Progress ends = [](std::uint64_t, std::uint64_t) { throw std::runtime_error("enough"); };
  CHECK_THROWS(std::runtime_error, export_hf(policy, folder / "x", settings(), ends), "enough");
  CHECK(folder.names() == std::vector<std::string>{"taken"});
  // Without stop tokens, no generation_config.json is written.
  HfExport none = settings();
  none.eos_tokens.clear();
  CHECK(export_hf(policy, folder / "x", none).size() == 2);
  CHECK(read_json(folder / "x/config.json").find("eos_token_id") == nullptr);
}

}  // namespace

int main() {
  gives_back_the_same_bits();
  cuts_into_shards();
  merges_adapters();
  writes_peft_adapters();
  an_export_appears_whole_or_not_at_all();
  return test::finish();
}
