// State and weights files are loaded back as they were saved, bit for bit. A file that does not fit the request is refused, and the error
// names the field or tensor.
#include "state/state_file.h"

#include <cmath>
#include <limits>

#include "support/checks.h"
#include "support/folders.h"
#include "support/policies.h"
#include "state/digest/digest.h"
#include "state/weights_file.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

// Fills the moments with values that differ everywhere, as after some steps.
void fill_moments(Policy& policy) {
  std::uint32_t i = 0;
  for (auto& tensor : state_tensors(policy)) {
    if (!tensor.name.starts_with("adam.")) continue;
    if (tensor.dtype == "F32") {
      for (std::size_t at = 0; at < tensor.bytes.size(); at += 4) {
        const float value = uniform_at(i++, 9);
        std::memcpy(tensor.bytes.data() + at, &value, 4);
      }
    } else {
      for (std::byte& byte : tensor.bytes) byte = std::byte(i++ * 37 & 0xff);
    }
  }
  policy.optimizer_steps = 12;
}

bool same_bits(const Policy& one, const Policy& other) {
  const auto a = state_tensors(one), b = state_tensors(other);
  bool same = a.size() == b.size() && one.optimizer_steps == other.optimizer_steps;
  for (std::size_t i = 0; same && i < a.size(); ++i) same = std::ranges::equal(a[i].bytes, b[i].bytes) && a[i].name == b[i].name;
  return same;
}

void loads_what_it_saved() {
  const TemporaryFolder folder("state");
  ThreadPool pool(2);
  std::uint64_t seed = 3;
  for (const auto& [title, architecture] : tiny_architectures()) {
    for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::int8}) {
      Policy full = tiny_policy(seed, architecture, moments);
      fill_moments(full);
      const std::string path = folder / "full";
      const WrittenFile written = save_state(full, path);
      CHECK(written.size == std::filesystem::file_size(path) && written.path == path);
      std::uint64_t told = 0, whole = 0;
      const LoadedState loaded = load_state(path, pool, {}, [&](std::uint64_t done, std::uint64_t total) { told = done, whole = total; });
      CHECK(told == whole && whole > 0);
      CHECK(same_bits(*loaded.policy, full));
      CHECK(loaded.digest == state_digest(full, pool));
      CHECK(loaded.weights == weights_digest(full.weights(), pool));
      save_state(*loaded.policy, folder / "again");
      CHECK(read_file(folder / "again") == read_file(path));
      const StateHeader header = read_state_header(path);
      CHECK(header.architecture == architecture && header.moments == moments && !header.lora && header.base.empty() &&
            header.optimizer_steps == 12);

      // A policy with adapters on those weights.
      Policy lora = tiny_lora_policy(seed, architecture, lora_settings(3, 7.5), moments);
      fill_moments(lora);
      const std::string base = weights_digest(lora.weights(), pool);
      const std::string small = folder / "lora";
      CHECK_THROWS(std::logic_error, save_state(lora, small), "without the digest of its base weights");
      save_state(lora, small, base);
      const LoadedState other = load_state(small, pool, {lora.shared_weights(), base});
      CHECK(same_bits(*other.policy, lora));
      CHECK(other.digest == state_digest(lora, pool, base) && other.weights == base);
      CHECK(other.policy->shared_weights() == lora.shared_weights());
      CHECK(load_state(small, pool, {lora.shared_weights(), ""}).digest == other.digest);  // hashes the base weights itself
      CHECK(read_state_header(small).lora == lora_settings(3, 7.5) && read_state_header(small).base == base);

      // Only the weights.
      const std::string alone = folder / "weights";
      save_weights(full.weights(), alone);
      CHECK(read_weights_architecture(alone) == architecture);
      const LoadedWeights weights = load_weights(alone, pool);
      CHECK(weights.digest == loaded.weights);
      CHECK(std::ranges::equal(weights.weights->values(), full.weights().values()));
      ++seed;
    }
  }
}

// A loaded policy computes the same as the saved one: its panels belong to the weights that were read.
void computes_the_same() {
  const TemporaryFolder folder("state-forward");
  ThreadPool pool(2);
  const std::vector<std::int32_t> tokens = random_tokens(40, tiny_architecture().vocab_size, 5);
  const Policy lora = tiny_lora_policy(), full = tiny_policy();
  save_state(lora, folder / "lora", weights_digest(lora.weights(), pool));
  save_state(full, folder / "full");
  const LoadedState small = load_state(folder / "lora", pool, {lora.shared_weights(), ""});
  const LoadedState whole = load_state(folder / "full", pool);
  CHECK(decode_logprobs(*small.policy, tokens, 1, pool) == decode_logprobs(lora, tokens, 1, pool));
  CHECK(decode_logprobs(*whole.policy, tokens, 1, pool) == decode_logprobs(full, tokens, 1, pool));
}

void refuses_another_base() {
  const TemporaryFolder folder("state-base");
  ThreadPool pool(1);
  const Policy lora = tiny_lora_policy(7);
  const std::string base = weights_digest(lora.weights(), pool), path = folder / "lora";
  save_state(lora, path, base);
  const auto others = tiny_weights(8);
  const std::string other = weights_digest(*others, pool);
  CHECK_THROWS(WrongBaseError, load_state(path, pool, {others, other}), path + " has adapters on the weights " + base + ", not on " + other);
  CHECK_THROWS(WrongBaseError, load_state(path, pool, {others, ""}), base + ", not on " + other);
  CHECK_THROWS(WrongBaseError, load_state(path, pool), base + ", but no weights are loaded");
}

struct Parts {
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::pair<FileTensor, std::vector<std::byte>>> tensors;
};

Parts take_apart(const std::string& path) {
  const SafetensorsFile file = parse_safetensors(read_file(path));
  Parts parts{file.metadata, {}};
  for (const auto& [name, view] : file.tensors) {
    const auto* bytes = reinterpret_cast<const std::byte*>(view.bytes.data());
    parts.tensors[name] = {{view.dtype, view.shape}, {bytes, bytes + view.bytes.size()}};
  }
  return parts;
}

void put_together(const std::string& path, const Parts& parts) {
  std::vector<OutgoingTensor> tensors;
  for (const auto& [name, tensor] : parts.tensors) tensors.push_back({name, tensor.first.dtype, tensor.first.shape, tensor.second});
  write_safetensors(path, parts.metadata, tensors);
}

void set_value(std::vector<std::byte>& bytes, std::size_t index, float value) { std::memcpy(bytes.data() + 4 * index, &value, 4); }

void refuses_what_does_not_fit() {
  const TemporaryFolder folder("state-broken");
  ThreadPool pool(2);
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  Policy full = tiny_policy();
  fill_moments(full);
  const Policy small = tiny_lora_policy(7, tiny_architecture(), {1, 1, {LoraTarget::k_proj}}, MomentFormat::int8);
  const std::string path = folder / "x";
  save_state(full, folder / "full");
  save_state(small, folder / "small", weights_digest(small.weights(), pool));
  const Parts whole = take_apart(folder / "full"), parts = take_apart(folder / "small");
  const BaseWeights base{small.shared_weights(), ""};
  const auto refuse = [&](Parts changed, auto&& change, const std::string& part) {
    change(changed);
    put_together(path, changed);
    CHECK_THROWS(SafetensorsError, load_state(path, pool, base), "state file " + path + ": " + part);
  };
  put_together(path, whole);
  CHECK(read_text(path) == read_text(folder / "full"));  // taken apart and put together again, the file is the same

  const std::string norm = "model.norm.weight", adapter = "model.layers.0.self_attn.k_proj.lora_A.weight";
  refuse(whole, [&](Parts& p) { p.tensors.erase(norm); }, "tensor model.norm.weight is missing; expected F32 [48]");
  refuse(whole, [&](Parts& p) { p.tensors["model.extra"] = p.tensors[norm]; }, "tensor model.extra is not one of the ");
  refuse(whole, [&](Parts& p) { p.tensors[norm].first.shape = {4, 12}; }, "tensor model.norm.weight is F32 [4, 12]; expected F32 [48]");
  refuse(whole, [&](Parts& p) { p.tensors[norm].first.dtype = "I32"; }, "tensor model.norm.weight is I32 [48]; expected F32 [48]");
  refuse(whole, [&](Parts& p) { set_value(p.tensors[norm].second, 5, nan); }, "tensor model.norm.weight has nan as value 5; all must be finite");
  refuse(whole, [&](Parts& p) { set_value(p.tensors["adam.v." + norm].second, 47, inf); }, "tensor adam.v.model.norm.weight has inf as value 47");
  refuse(whole, [&](Parts& p) { p.metadata["optimizer_steps"] = "-1"; }, "__metadata__.optimizer_steps is \"-1\"");
  refuse(whole, [&](Parts& p) { p.metadata["optimizer_steps"] = "9007199254740993"; }, "__metadata__.optimizer_steps is");
  refuse(whole, [&](Parts& p) { p.metadata["optimizer_steps"] = "3.5"; }, "__metadata__.optimizer_steps is");
  refuse(whole, [&](Parts& p) { p.metadata.erase("moments"); }, "__metadata__.moments is missing");
  refuse(whole, [&](Parts& p) { p.metadata["moments"] = "int8"; }, "tensor adam.m8.codes is missing; expected I8 [");
  refuse(whole, [&](Parts& p) { p.metadata["moments"] = "fp16"; }, "moments is fp16; it must be fp32 or int8");
  refuse(whole, [&](Parts& p) { p.metadata["architecture"] = "{}"; }, "architecture.vocab_size is missing");
  refuse(whole, [&](Parts& p) { p.metadata["architecture"] = "{"; }, "__metadata__.architecture is broken");
  refuse(whole, [&](Parts& p) { p.metadata["note"] = "x"; }, "__metadata__.note is unknown");
  refuse(whole, [&](Parts& p) { p.metadata["base"] = std::string(64, 'a'); }, "__metadata__.lora is missing");

  refuse(parts, [&](Parts& p) { set_value(p.tensors["adam.m8.scales"].second, 0, inf); }, "tensor adam.m8.scales has inf as value 0");
  refuse(parts, [&](Parts& p) { set_value(p.tensors["adam.v8.scales"].second, 0, nan); }, "tensor adam.v8.scales has nan as value 0");
  refuse(parts, [&](Parts& p) { set_value(p.tensors["adam.v8.scales"].second, 0, -1); }, "tensor adam.v8.scales has -1.0");
  refuse(parts, [&](Parts& p) { set_value(p.tensors[adapter].second, 0, nan); }, "tensor " + adapter + " has nan as value 0");
  refuse(parts, [&](Parts& p) { p.tensors.erase("adam.v8.codes"); }, "tensor adam.v8.codes is missing; expected U8 [");
  refuse(parts, [&](Parts& p) { p.tensors["adam.v8.codes"].first.dtype = "I8"; }, "tensor adam.v8.codes is I8 [");
  refuse(parts, [&](Parts& p) { p.metadata["lora"] = R"({"rank":2,"alpha":1,"targets":["k_proj"]})"; }, "tensor adam.m8.codes is I8 [");
  refuse(parts, [&](Parts& p) { p.metadata["lora"] = R"({"rank":0,"alpha":1,"targets":["k_proj"]})"; }, "");
  refuse(parts, [&](Parts& p) { p.metadata["base"] = "abc"; }, "__metadata__.base is \"abc\"");
  refuse(parts, [&](Parts& p) { p.metadata.erase("base"); }, "__metadata__.base is missing");

  // Data that is not in the order of names.
  std::vector<OutgoingTensor> reversed;
  for (const auto& [name, tensor] : parts.tensors) reversed.insert(reversed.begin(), {name, tensor.first.dtype, tensor.first.shape, tensor.second});
  write_safetensors(path, parts.metadata, reversed);
  CHECK_THROWS(SafetensorsError, load_state(path, pool, base), "is out of order: tensor data must follow");

  // A file that is truncated, empty or missing.
  std::filesystem::resize_file(folder / "full", std::filesystem::file_size(folder / "full") - 4);
  CHECK_THROWS(SafetensorsError, load_state(folder / "full", pool), "tensor model.norm.weight is outside the file");
  write_text(path, "");
  CHECK_THROWS(SafetensorsError, load_state(path, pool), "shorter than a header length");
  CHECK_THROWS(std::system_error, load_state(folder / "none", pool), "cannot open");
}

void refuses_weights_that_do_not_fit() {
  const TemporaryFolder folder("weights-broken");
  ThreadPool pool(2);
  const auto weights = tiny_weights();
  const std::string path = folder / "x";
  save_weights(*weights, path);
  const Parts whole = take_apart(path);
  Parts changed = whole;
  set_value(changed.tensors["model.embed_tokens.weight"].second, 7, std::numeric_limits<float>::infinity());
  put_together(path, changed);
  CHECK_THROWS(SafetensorsError, load_weights(path, pool), "weights file " + path + ": tensor model.embed_tokens.weight has inf as value 7");
  changed = whole;
  changed.tensors.erase("model.layers.1.mlp.up_proj.weight");
  put_together(path, changed);
  CHECK_THROWS(SafetensorsError, read_weights_architecture(path), "tensor model.layers.1.mlp.up_proj.weight is missing");
  save_state(Policy(weights), path);
  CHECK_THROWS(SafetensorsError, load_weights(path, pool), "if the file is a state, read it with load_state");
  changed = whole;
  changed.metadata.clear();
  put_together(path, changed);
  CHECK_THROWS(SafetensorsError, load_weights(path, pool), "__metadata__.architecture is missing");
}

}  // namespace

int main() {
  loads_what_it_saved();
  computes_the_same();
  refuses_another_base();
  refuses_what_does_not_fit();
  refuses_weights_that_do_not_fit();
  return test::finish();
}
