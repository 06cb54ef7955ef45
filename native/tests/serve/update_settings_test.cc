// The settings of an `update` reach the loss and the optimizer: the new state equals, bit for bit, the state after an update whose settings
// are written here by hand. The policy differs from the one that sampled, so every clip, gate and weight has an effect.
#include <map>
#include <set>

#include "support/cpu.h"
#include "support/checks.h"
#include "support/forked_engine.h"
#include "state/batch_file.h"
#include "state/digest/digest.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const auto folder = std::filesystem::temp_directory_path() / ("longhaul-update-settings-" + std::to_string(getpid()));
constexpr int mini_batch_count = 2;

std::string path_of(const std::string& name) { return (folder / name).string(); }

// A value from −1 to 1.
float jitter(std::size_t place, std::uint32_t stream) { return 2 * uniform_at(static_cast<std::uint32_t>(place), stream) - 1; }

// Samples have different lengths, since otherwise the mean over samples would equal the mean over tokens. Ratios lie around 1.65 and 0.6,
// each with advantages of both signs; importance weights lie on both sides of 1.
OwnedBatch off_policy_batch(const Policy& policy, ThreadPool& pool) {
  const int vocab = policy.architecture().vocab_size;
  OwnedBatch batch;
  int sample = 0;
  for (int k = 0; k < mini_batch_count; ++k) {
    const int root = batch.add_node(-1, random_tokens(9, vocab, static_cast<std::uint32_t>(k)), k);
    const int last_of_root = static_cast<int>(batch.tokens.size()) - 1;
    for (const int own : {3, 6, 11, 5}) {
      const std::vector<std::int32_t> mine = random_tokens(own, vocab, static_cast<std::uint32_t>(10 + sample));
      const int first = static_cast<int>(batch.tokens.size());
      batch.add_node(root, mine, k);
      const float advantage = (sample % 4 == 0 || sample % 4 == 3 ? 1.1f : -0.7f) + 0.05f * static_cast<float>(sample);
      for (int i = 0; i < own; ++i) {
        batch.add_target(i == 0 ? last_of_root : first + i - 1, mine[static_cast<std::size_t>(i)], advantage, 0, sample);
      }
      ++sample;
    }
  }
  batch.old_logprobs = logprobs_under(policy, batch.view(), mini_batch_count, pool);
  for (std::size_t i = 0; i < batch.old_logprobs.size(); ++i) {
    batch.old_logprobs[i] += (batch.target_samples[i] % 2 == 0 ? -0.5f : 0.5f) + 0.25f * jitter(i, 1);
    batch.rollout_logprobs.push_back(batch.old_logprobs[i] + 0.8f * jitter(i, 2));
  }
  return batch;
}

// The settings that update_request sends.
UpdateSettings settings_of_request() {
  UpdateSettings settings;
  settings.learning_rates = {1e-2, 1e-2};
  settings.optimizer.beta1 = 0.9;
  settings.optimizer.beta2 = 0.98;
  settings.optimizer.adam_eps = 1e-8;
  settings.optimizer.weight_decay = 0.1;
  settings.optimizer.max_grad_norm = 1;
  settings.reset_moments = false;
  settings.temperature = 1;
  settings.loss.kind = LossKind::regular;
  settings.loss.reduction = LossReduction::token_mean;
  settings.loss.eps_clip_low = 0.2;
  settings.loss.eps_clip_high = 0.28;
  return settings;
}

struct Case {
  std::string name;
  Json::Object fields;  // further fields of the request
  Json::Object loss;    // the whole loss; if empty, that of update_request
  std::function<void(UpdateSettings&)> set;
};

Json::Array pair_of(double first, double second) { return {Json(first), Json(second)}; }

std::vector<Case> optimizer_cases() {
  return {
      {"update_request as it is", {}, {}, [](UpdateSettings&) {}},
      {"learning rates", {{"learning_rates", pair_of(4e-3, 1e-3)}}, {}, [](UpdateSettings& s) { s.learning_rates = {4e-3, 1e-3}; }},
      {"learning rates exchanged", {{"learning_rates", pair_of(1e-3, 4e-3)}}, {}, [](UpdateSettings& s) { s.learning_rates = {1e-3, 4e-3}; }},
      {"betas", {{"adam_betas", pair_of(0.5, 0.8)}}, {}, [](UpdateSettings& s) { s.optimizer.beta1 = 0.5, s.optimizer.beta2 = 0.8; }},
      {"betas exchanged", {{"adam_betas", pair_of(0.8, 0.5)}}, {}, [](UpdateSettings& s) { s.optimizer.beta1 = 0.8, s.optimizer.beta2 = 0.5; }},
      {"adam_eps", {{"adam_eps", 1e-3}}, {}, [](UpdateSettings& s) { s.optimizer.adam_eps = 1e-3; }},
      {"weight_decay", {{"weight_decay", 0.3}}, {}, [](UpdateSettings& s) { s.optimizer.weight_decay = 0.3; }},
      {"no weight_decay", {{"weight_decay", 0}}, {}, [](UpdateSettings& s) { s.optimizer.weight_decay = 0; }},
      {"max_grad_norm", {{"max_grad_norm", 0.05}}, {}, [](UpdateSettings& s) { s.optimizer.max_grad_norm = 0.05; }},
      {"no clipped gradient", {{"max_grad_norm", 1e9}}, {}, [](UpdateSettings& s) { s.optimizer.max_grad_norm = 1e9; }},
      {"reset_moments", {{"reset_moments", true}}, {}, [](UpdateSettings& s) { s.reset_moments = true; }},
      {"temperature", {{"temperature", 0.7}}, {}, [](UpdateSettings& s) { s.temperature = 0.7; }},
  };
}

Case loss_case(std::string name, Json::Object loss, std::function<void(LossSettings&)> set) {
  return {std::move(name), {}, std::move(loss), [set = std::move(set)](UpdateSettings& settings) {
            settings.loss = LossSettings{};
            set(settings.loss);
          }};
}

std::vector<Case> kind_cases() {
  const auto clipped = [](const char* kind, LossKind of, double low, double high) {
    return loss_case(std::string(kind) + " from " + std::to_string(low) + " to " + std::to_string(high),
                     {{"kind", kind}, {"reduction", "token_mean"}, {"eps_clip_low", low}, {"eps_clip_high", high}},
                     [=](LossSettings& s) { s.kind = of, s.eps_clip_low = low, s.eps_clip_high = high; });
  };
  const auto dual = [](double c) {
    return loss_case("dual_clip",
                     {{"kind", "dual_clip"}, {"reduction", "token_mean"}, {"eps_clip_low", 0.2}, {"eps_clip_high", 0.28}, {"clip_ratio_c", c}},
                     [=](LossSettings& s) { s.kind = LossKind::dual_clip, s.eps_clip_low = 0.2, s.eps_clip_high = 0.28, s.clip_ratio_c = c; });
  };
  const auto cispo = [](double low, double high) {
    return loss_case("cispo",
                     {{"kind", "cispo"}, {"reduction", "token_mean"}, {"cispo_eps_clip_low", low}, {"cispo_eps_clip_high", high}},
                     [=](LossSettings& s) { s.kind = LossKind::cispo, s.cispo_eps_clip_low = low, s.cispo_eps_clip_high = high; });
  };
  const auto sapo = [](double positive, double negative) {
    return loss_case("sapo", {{"kind", "sapo"}, {"reduction", "token_mean"}, {"sapo_tau_pos", positive}, {"sapo_tau_neg", negative}},
                     [=](LossSettings& s) { s.kind = LossKind::sapo, s.sapo_tau_pos = positive, s.sapo_tau_neg = negative; });
  };
  return {
      clipped("regular", LossKind::regular, 0.1, 0.7),
      clipped("regular", LossKind::regular, 0.7, 0.1),
      clipped("gspo", LossKind::gspo, 0.1, 0.8),
      clipped("gspo", LossKind::gspo, 0.8, 0.1),
      dual(1.2),
      dual(1.6),
      cispo(0.1, 0.5),
      cispo(0.5, 0.1),
      sapo(1, 3),
      sapo(3, 1),
      loss_case("reinforce", {{"kind", "reinforce"}, {"reduction", "token_mean"}}, [](LossSettings& s) { s.kind = LossKind::reinforce; }),
      // cross_entropy has the formula of reinforce. This case uses another reduction, because equal settings would give equal states.
      loss_case("cross_entropy", {{"kind", "cross_entropy"}, {"reduction", "sequence_mean"}},
                [](LossSettings& s) { s.kind = LossKind::cross_entropy, s.reduction = LossReduction::sequence_mean; }),
  };
}

// The loss of update_request with the members of `more`.
Case regular_case(std::string name, const Json::Object& more, std::function<void(LossSettings&)> set) {
  Json loss;
  for (const JsonMember& field : Json::Object{{"kind", "regular"}, {"reduction", "token_mean"}, {"eps_clip_low", 0.2}, {"eps_clip_high", 0.28}})
    loss.set(field.name, field.value);
  for (const JsonMember& field : more) loss.set(field.name, field.value);
  return {std::move(name), {}, *loss.object(), [set = std::move(set)](UpdateSettings& settings) { set(settings.loss); }};
}

std::vector<Case> term_cases(const std::string& reference, const std::shared_ptr<const Weights>& weights) {
  std::vector<Case> cases{
      regular_case("sequence_mean", {{"reduction", "sequence_mean"}}, [](LossSettings& s) { s.reduction = LossReduction::sequence_mean; }),
      regular_case("seq_mean_token_sum_norm of 40", {{"reduction", "seq_mean_token_sum_norm"}, {"max_seq_len", 40}},
                   [](LossSettings& s) { s.reduction = LossReduction::seq_mean_token_sum_norm, s.max_seq_len = 40; }),
      regular_case("seq_mean_token_sum_norm of 60", {{"reduction", "seq_mean_token_sum_norm"}, {"max_seq_len", 60}},
                   [](LossSettings& s) { s.reduction = LossReduction::seq_mean_token_sum_norm, s.max_seq_len = 60; }),
      regular_case("entropy_weight of 0.01", {{"entropy_weight", 0.01}}, [](LossSettings& s) { s.entropy_weight = 0.01; }),
      regular_case("entropy_weight of 0.1", {{"entropy_weight", 0.1}}, [](LossSettings& s) { s.entropy_weight = 0.1; }),
      regular_case("tis_cap of 1.1", {{"tis_cap", 1.1}}, [](LossSettings& s) { s.tis_cap = 1.1; }),
      regular_case("tis_cap of 1.6", {{"tis_cap", 1.6}}, [](LossSettings& s) { s.tis_cap = 1.6; }),
  };
  const auto kl = [&](const char* name, KlEstimator estimator, double weight) {
    Case one = regular_case(std::string("kl_estimator ") + name, {{"kl_weight", weight}, {"kl_estimator", name}},
                            [=](LossSettings& s) { s.kl_estimator = estimator, s.kl_weight = weight; });
    one.fields = {{"reference", reference}};
    one.set = [set = std::move(one.set), weights](UpdateSettings& settings) {
      set(settings);
      settings.reference = weights;
    };
    cases.push_back(std::move(one));
  };
  kl("k1", KlEstimator::k1, 0.1);
  kl("k2", KlEstimator::k2, 0.1);
  kl("k3", KlEstimator::k3, 0.1);
  kl("k3", KlEstimator::k3, 0.5);
  return cases;
}

void every_setting_of_a_request_takes_effect() {
  ThreadPool pool(1);
  ForkedEngine engine;
  const std::string start = engine.start();
  const Policy begun = random_policy(tiny_architecture(), 0.2, 7);
  CHECK(state_digest(begun, pool) == start);
  Json reference = verb_request("set_reference");
  reference.set("from", "held");
  const std::string weights = engine.call(std::move(reference)).text("reference");

  // One step first, so that there are moments to reset, and the weights differ from the reference.
  const OwnedBatch warm_up = group_batch(tiny_architecture().vocab_size, mini_batch_count, 2, 9, 2, 6);
  const Answer first = engine.call(update_request(start, write_batch(path_of("first"), warm_up, start, mini_batch_count), mini_batch_count, "first"));
  const UpdateReport report = compute_update(begun, warm_up.view(), settings_of_request(), cpu(pool));
  CHECK(report.applied && first.ok());
  const Policy& policy = *report.next;
  const std::string state = state_digest(policy, pool);
  CHECK(first.state() == state && state != start);
  CHECK(engine.call(save_request(state, path_of("state"))).ok());

  const WrittenBatch written = write_batch(path_of("off-policy"), off_policy_batch(policy, pool), state, mini_batch_count);
  const BatchFile batch = read_batch(written.path, written.sha256, state, mini_batch_count);
  std::map<std::string, std::string> seen;
  for (const std::vector<Case>& cases : {optimizer_cases(), kind_cases(), term_cases(weights, begun.shared_weights())}) {
    for (const Case& one : cases) {
      Json load = verb_request("load_state");
      load.set("path", path_of("state"));
      CHECK(engine.call(std::move(load)).state() == state);
      Json request = update_request(state, written, mini_batch_count, one.name);
      for (const JsonMember& field : one.fields) request.set(field.name, field.value);
      if (!one.loss.empty()) request.set("loss", one.loss);
      const Answer answer = engine.call(std::move(request));
      UpdateSettings settings = settings_of_request();
      one.set(settings);
      const UpdateReport expected = compute_update(policy, batch.view(), settings, cpu(pool));
      const std::string digest = expected.applied ? state_digest(*expected.next, pool) : expected.reason;
      const bool same = answer.ok() && answer.state() == digest;
      if (!same) std::printf("%s: %s\n", one.name.c_str(), answer.error().c_str());
      CHECK(same);
      // Every case has an effect: no two cases give the same state.
      const auto [other, is_new] = seen.emplace(digest, one.name);
      if (!is_new) std::printf("%s leads where %s does\n", one.name.c_str(), other->second.c_str());
      CHECK(is_new && digest != state);
    }
  }
}

std::string applied_of(const Answer& answer) {
  const Json* applied = answer.alive ? answer.header.find("applied") : nullptr;
  return applied == nullptr ? answer.error() : write_json(*applied);
}

void a_step_that_was_not_applied_is_remembered_too() {
  ForkedEngine engine;
  const std::string state = engine.start();
  OwnedBatch batch = group_batch(tiny_architecture().vocab_size, mini_batch_count, 2, 9, 2, 6);
  batch.old_logprobs.back() = -1e6f;  // the ratio overflows
  batch.advantages.back() = -1;
  const WrittenBatch written = write_batch(path_of("overflowing"), batch, state, mini_batch_count);
  const Answer first = engine.call(update_request(state, written, mini_batch_count, "step"));
  CHECK(first.ok() && first.state() == state && applied_of(first) == R"({"reason":"non_finite"})");
  CHECK(engine.call("held").text("last_step_id") == sha256_hex("step"));
  // The same request again gets the same answer without computing.
  std::filesystem::remove(written.path);
  const Answer again = engine.call(update_request(state, written, mini_batch_count, "step"));
  CHECK(again.ok() && again.state() == state && applied_of(again) == R"({"reason":"non_finite"})");
  CHECK(!engine.call(update_request(state, written, mini_batch_count, "another step")).ok());
}

}  // namespace

int main() {
  std::filesystem::create_directory(folder);
  every_setting_of_a_request_takes_effect();
  a_step_that_was_not_applied_is_remembered_too();
  std::filesystem::remove_all(folder);
  return test::finish();
}
