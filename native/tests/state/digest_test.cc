// The digests of states and weights are as docs/engine-protocol.md defines them, for any number of threads, and depend on every part of a
// state.
#include "state/digest/digest.h"

#include "support/checks.h"
#include "support/policies.h"
#include "state/digest/sha256.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

// The digest's definition, implemented as simply as possible.
std::string plain_digest(const std::string& schema, const std::string& identity,
                         const std::vector<TensorBytes<const std::byte>>& tensors) {
  std::vector<std::byte> all;
  for (const auto& tensor : tensors) all.insert(all.end(), tensor.bytes.begin(), tensor.bytes.end());
  Blake3 root(Blake3Code::portable);
  root.add(schema + "\n" + identity + "\n");
  for (std::size_t at = 0; at < all.size(); at += std::size_t{1} << 20) {
    const auto leaf = std::span(all).subspan(at, std::min(std::size_t{1} << 20, all.size() - at));
    const Blake3Digest digest = blake3(leaf, Blake3Code::portable);
    root.add(digest.data(), digest.size());
  }
  return to_hex(root.finish());
}

// Some MiB of tensors, most of them small.
Architecture wide_architecture() {
  Architecture architecture = tiny_architecture();
  architecture.vocab_size = 3001;
  architecture.hidden_size = 96;
  architecture.num_hidden_layers = 3;
  return architecture;
}

const char* const wide_architecture_text =
    R"({"head_dim":32,"hidden_size":96,"intermediate_size":80,"max_position_embeddings":256,"model_type":"qwen3",)"
    R"("num_attention_heads":4,"num_hidden_layers":3,"num_key_value_heads":2,"rms_norm_eps":0.000001,"rope_theta":10000,)"
    R"("tie_word_embeddings":true,"vocab_size":3001})";

void is_the_documented_tree() {
  ThreadPool one(1), many(3);
  for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::int8}) {
    Policy policy = tiny_policy(7, wide_architecture(), moments);
    policy.optimizer_steps = 41;
    const std::string identity = std::string(R"({"architecture":)") + wide_architecture_text + R"(,"moments":")" + name(moments) + R"(","optimizer_steps":41})";
    const std::string expected = plain_digest("longhaul.state/2", identity, state_tensors(std::as_const(policy)));
    CHECK(state_digest(policy, one) == expected);
    CHECK(state_digest(policy, many) == expected);
  }
  const auto weights = tiny_weights(7, wide_architecture());
  const std::string base = plain_digest("longhaul.weights/1", std::string(R"({"architecture":)") + wide_architecture_text + "}",
                                        weight_tensors(std::as_const(*weights)));
  CHECK(weights_digest(*weights, one) == base);
  CHECK(weights_digest(*weights, many) == base);

  Policy lora(weights, lora_settings(3, 6), 5, MomentFormat::int8);
  const std::string identity = std::string(R"({"architecture":)") + wide_architecture_text + R"(,"base":")" + base +
                               R"(","lora":{"alpha":6,"rank":3,"targets":["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]},)" +
                               R"("moments":"int8","optimizer_steps":0})";
  const std::string expected = plain_digest("longhaul.state/2", identity, state_tensors(std::as_const(lora)));
  CHECK(state_digest(lora, many) == expected);
  CHECK(state_digest(lora, one, base) == expected);
  CHECK(state_digest(lora, one, std::string(64, '0')) != expected);
}

void covers_every_bit() {
  ThreadPool pool(2);
  for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::int8}) {
    Policy policy = tiny_policy(7, tiny_architecture(), moments);
    const std::string before = state_digest(policy, pool);
    for (auto& tensor : state_tensors(policy)) {
      for (const std::size_t at : {std::size_t{0}, tensor.bytes.size() - 1}) {
        tensor.bytes[at] ^= std::byte{1};
        CHECK(state_digest(policy, pool) != before);
        tensor.bytes[at] ^= std::byte{1};
      }
    }
    CHECK(state_digest(policy, pool) == before);
    policy.optimizer_steps = 1;
    CHECK(state_digest(policy, pool) != before);
  }
  Architecture other = tiny_architecture();
  other.rope_theta = 20000;
  CHECK(weights_digest(*tiny_weights(7, other), pool) != weights_digest(*tiny_weights(7), pool));
}

// Checks the tensors of a state by name and in the order of their names.
void lists_what_a_state_has() {
  const auto names = [](const Policy& policy) {
    std::vector<std::string> names;
    for (const auto& tensor : state_tensors(policy)) names.push_back(tensor.name + " " + tensor.dtype);
    return names;
  };
  const Policy full = tiny_policy();
  CHECK(std::ranges::is_sorted(names(full)));
  CHECK(names(full).front() == "adam.m.model.embed_tokens.weight F32");
  CHECK(names(full).size() == 3 * full.weights().tensors().size());
  const Policy small = tiny_lora_policy(7, tiny_architecture(), {2, 4, {LoraTarget::v_proj}}, MomentFormat::int8);
  CHECK(names(small) == (std::vector<std::string>{
                            "adam.m8.codes I8", "adam.m8.scales F32", "adam.v8.codes U8", "adam.v8.scales F32",
                            "model.layers.0.self_attn.v_proj.lora_A.weight F32", "model.layers.0.self_attn.v_proj.lora_B.weight F32",
                            "model.layers.1.self_attn.v_proj.lora_A.weight F32", "model.layers.1.self_attn.v_proj.lora_B.weight F32"}));
  // The tensors expected before allocation are those that exist afterwards.
  for (const auto& [title, policy] : tiny_policies()) {
    const std::optional<LoraSettings> lora =
        policy.adapters() == nullptr ? std::nullopt : std::optional(policy.adapters()->settings());
    const auto expected = expected_state_tensors(policy.architecture(), lora, policy.moments().format);
    const auto there = state_tensors(policy);
    bool equal = expected.size() == there.size();
    for (std::size_t i = 0; equal && i < there.size(); ++i) {
      equal = expected[i].name == there[i].name && expected[i].dtype == there[i].dtype && expected[i].shape == there[i].shape;
    }
    CHECK(equal);
  }
}

void reads_the_identity_that_it_writes() {
  for (const auto& [title, architecture] : tiny_architectures()) {
    CHECK(architecture_from_json(architecture_json(architecture)) == architecture);
  }
  const LoraSettings lora{4, 8.5, {LoraTarget::k_proj, LoraTarget::down_proj}};
  CHECK(lora_from_json(lora_json(lora)) == lora);
  std::string error;
  const auto refuse = [&](const std::string& text, const std::string& part) {
    CHECK_THROWS(std::invalid_argument, architecture_from_json(*parse_json(text, error)), part);
  };
  const std::string wide = wide_architecture_text;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = wide;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  CHECK(architecture_from_json(*parse_json(wide, error)) == wide_architecture());
  refuse(with(R"("vocab_size":3001)", R"("vocab_size":"many")"), R"(architecture.vocab_size is "many"; it must be a whole number)");
  refuse(with(R"("head_dim":32,)", ""), "architecture.head_dim is missing");
  refuse(with(R"("model_type":"qwen3")", R"("model_type":"llama")"), R"(architecture.model_type is "llama"; it must be qwen3 or qwen2)");
  refuse(with(R"("head_dim")", R"("heads":1,"head_dim")"), "architecture.heads is unknown");
  refuse(with(R"("tie_word_embeddings":true)", R"("tie_word_embeddings":1)"), "true or false");
  refuse(with(R"("head_dim")", R"("yarn":{"factor":2},"head_dim")"), "architecture.yarn.original_max_position_embeddings is missing");
  refuse(with(R"("head_dim")", R"("yarn":3,"head_dim")"), "architecture.yarn must be an object");
  const auto stretched = architecture_from_json(*parse_json(
      with(R"("head_dim")", R"("yarn":{"factor":4,"original_max_position_embeddings":64},"head_dim")"), error));
  CHECK(stretched.yarn && std::abs(stretched.yarn->attention_factor - 1.1386294361119891) < 1e-15);
  CHECK(stretched.yarn->beta_fast == 32 && stretched.yarn->beta_slow == 1);
  const auto refuse_lora = [&](const std::string& text, const std::string& part) {
    CHECK_THROWS(std::invalid_argument, lora_from_json(*parse_json(text, error)), part);
  };
  refuse_lora(R"({"rank":4,"alpha":8,"targets":["q_proj","x"]})", "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
  refuse_lora(R"({"rank":4,"alpha":8,"targets":["q_proj","q_proj"]})", "each once");
  refuse_lora(R"({"rank":4,"alpha":8,"targets":[]})", "lora.targets is []");
  refuse_lora(R"({"rank":4.5,"alpha":8,"targets":["q_proj"]})", "lora.rank is 4.5");
  refuse_lora(R"({"rank":4,"alpha":8,"dropout":0.1,"targets":["q_proj"]})", "lora.dropout is unknown");
  CHECK(lora_from_json(*parse_json(R"({"rank":4,"alpha":8,"seed":3,"targets":["v_proj","q_proj"]})", error)).targets ==
        (std::vector{LoraTarget::q_proj, LoraTarget::v_proj}));
  CHECK_THROWS(std::invalid_argument, moment_format_from("bf16"), "it must be fp32 or int8");
}

}  // namespace

int main() {
  is_the_documented_tree();
  covers_every_bit();
  lists_what_a_state_has();
  reads_the_identity_that_it_writes();
  return test::finish();
}
