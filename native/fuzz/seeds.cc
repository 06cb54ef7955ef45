// Writes the initial corpora: one folder for each fuzzer, inside the folder that is given, with valid inputs of every kind.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "state/hf/hf_config.h"
#include "state/identity.h"
#include "wire/frame.h"

using namespace longhaul;

namespace {

class Corpus {
 public:
  Corpus(const std::filesystem::path& folder, const char* fuzzer) : folder_(folder / fuzzer) {
    std::filesystem::create_directories(folder_);
  }
  void add(std::string_view bytes) {
    std::ofstream file(folder_ / ("seed-" + std::to_string(count_++)), std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

Architecture tiny(ModelType type, bool yarn) {
  Architecture architecture;
  architecture.model_type = type;
  architecture.vocab_size = 64;
  architecture.hidden_size = 32;
  architecture.intermediate_size = 48;
  architecture.num_hidden_layers = 2;
  architecture.num_attention_heads = 2;
  architecture.num_key_value_heads = 1;
  architecture.head_dim = 16;
  architecture.max_position_embeddings = 128;
  if (yarn) {
    YarnScaling scaling;
    scaling.factor = 2;
    scaling.original_max_position_embeddings = 64;
    scaling.attention_factor = 1.0693147180559945;
    architecture.yarn = scaling;
  }
  return architecture;
}

void write_frames(const std::filesystem::path& folder) {
  Corpus corpus(folder, "frame_fuzz");
  const std::vector<std::int32_t> numbers{1, 2, 3, 4, 5, 6};
  const auto bytes = raw_bytes(std::span<const std::int32_t>(numbers));
  const std::vector<OutgoingArray> none, some{{"tokens", DType::i32, {6}, bytes}, {"table", DType::u8, {2, 3, 4}, bytes}};
  for (const std::string_view header :
       {R"({"verb":"stats"})", R"({"verb":"generate","key":{"seed":9007199254740991,"domain":"train"},"stop_tokens":[1,-3.5e-7]})",
        R"({"a":null,"b":[[[]],"é😀\n\\\"",true,false,0,-0,1e308,5e-324]})"}) {
    std::string error;
    const auto json = parse_json(header, error);
    for (const auto& arrays : {none, some}) {
      const auto frame = encode_frame(7, *json, arrays);
      corpus.add({reinterpret_cast<const char*>(frame.data()) + 4, frame.size() - 4});
    }
  }
}

std::string safetensors(const std::string& header, std::size_t data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + std::string(data, '\1');
}

void write_safetensors_files(const std::filesystem::path& folder) {
  Corpus corpus(folder, "safetensors_fuzz");
  corpus.add(safetensors("{}", 0));
  corpus.add(safetensors(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16));
  corpus.add(safetensors(R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},"b":{"dtype":"F16","shape":[1],"data_offsets":[6,8]}})", 8));
  corpus.add(safetensors(R"({"codes":{"dtype":"I8","shape":[4],"data_offsets":[4,8]},"u":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 8));
  corpus.add(safetensors(R"({"nodes":{"dtype":"I32","shape":[0,3],"data_offsets":[0,0]}}   )", 0));
}

void write_configs(const std::filesystem::path& folder) {
  Corpus corpus(folder, "config_fuzz");
  const std::vector<std::int32_t> eos{1, 2};
  for (const ModelType type : {ModelType::qwen3, ModelType::qwen2}) {
    for (const bool yarn : {false, true}) {
      const Architecture architecture = tiny(type, yarn);
      corpus.add("c" + write_json(hf_config_json(architecture, eos, "bfloat16")));
      corpus.add("a" + write_json(architecture_json(architecture)));
    }
  }
  corpus.add(R"(c{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","vocab_size":64,"hidden_size":32,"intermediate_size":48,)"
             R"("num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":16,"max_position_embeddings":128,)"
             R"("rms_norm_eps":1e-06,"rope_theta":1000000,"rope_scaling":{"rope_type":"yarn","factor":2.0,)"
             R"("original_max_position_embeddings":64},"tie_word_embeddings":true,"torch_dtype":"bfloat16","hidden_act":"silu",)"
             R"("attention_bias":false,"use_sliding_window":false,"eos_token_id":3})");
  corpus.add(R"(e{"eos_token_id":[151645,151643],"temperature":0.6})");
  corpus.add(R"(e{"eos_token_id":5})");
  corpus.add(R"(l{"rank":8,"alpha":16,"targets":["q_proj","v_proj","down_proj"],"seed":1})");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  write_frames(argv[1]);
  write_safetensors_files(argv[1]);
  write_configs(argv[1]);
  return 0;
}
