#include "serve/generation/generations.h"

#include <algorithm>
#include <exception>

#include "serve/protocol/request_settings.h"

namespace longhaul {
namespace {

const char* finish_text(Finished::How how) {
  if (how == Finished::How::stop) return "stop";
  return how == Finished::How::stop_string ? "stop_string" : "length";
}

}  // namespace

void Generations::prepare(const Architecture& architecture, Backend& backend) {
  if (scheduler_ && architecture_ == architecture) return;
  scheduler_ = std::make_unique<Scheduler>(architecture, cache_bytes_, counters_, backend);
  if (architecture_.vocab_size != architecture.vocab_size) vocabulary_ = nullptr;
  architecture_ = architecture;
}

void Generations::submit(const Request& request, const Policy& policy) { scheduler_->submit(read(request, policy)); }

Generation Generations::read(const Request& request, const Policy& policy) const {
  Generation generation;
  generation.id = request.id();
  generation.tokens = read_tokens(request, policy);
  const Architecture& architecture = policy.architecture();
  const auto most = static_cast<std::size_t>(architecture.max_position_embeddings);
  if (generation.tokens.empty() || generation.tokens.size() >= most) {
    throw RequestError("BadInput", std::to_string(generation.tokens.size()) + " tokens to continue; the model's " +
                                       "max_position_embeddings, " + std::to_string(most) + ", leaves room for 1 to " +
                                       std::to_string(most - 1) + ", and one more to sample");
  }
  generation.prompt_length = generation.tokens.size();
  generation.key = read_key(request.field("key"));
  generation.temperature = static_cast<float>(read_temperature(request));
  if (request.has("top_p")) {
    const double top_p = request.number("top_p");
    if (!(top_p > 0) || top_p > 1) throw RequestError("BadInput", "top_p must be above 0 and at most 1");
    generation.top_p = top_p;
  }
  if (request.has("top_k")) generation.top_k = static_cast<int>(request.whole("top_k", 1, architecture.vocab_size));
  const auto limit = static_cast<std::size_t>(request.whole("max_new_tokens", 1, 1 << 30));
  generation.max_length = std::min(most, generation.prompt_length + limit);
  read_stops(request, generation);
  generation.cancelled = request.cancelled;
  generation.tokens.reserve(generation.max_length < 4096 ? generation.max_length : generation.prompt_length + 256);
  return generation;
}

void Generations::read_stops(const Request& request, Generation& generation) const {
  generation.stop_tokens = request.token_list("stop_tokens");
  if (!request.has("stop_strings")) return;
  generation.stop_strings = StopStrings(request.texts("stop_strings"));
  if (generation.stop_strings.empty()) return;
  if (!vocabulary_) {
    throw RequestError("BadInput", "stop_strings need the bytes of the model's tokens: send set_vocabulary after the load");
  }
  generation.vocabulary = vocabulary_;
}

void Generations::drop_cancelled() {
  if (!scheduler_) return;
  std::vector<Finished> finished;
  scheduler_->drop_cancelled(finished);
  for (const Finished& one : finished) answer(one);
}

void Generations::step(const Policy& policy, Backend& backend) {
  std::vector<Finished> finished;
  try {
    scheduler_->step(policy, backend, !replies_.blocked(), finished);
  } catch (...) {
    const ErrorReply error = error_reply(std::current_exception(), "this pass of the generations");
    for (const Generation& generation : scheduler_->take_all()) replies_.refuse(generation.id, error);
  }
  for (const Finished& one : finished) answer(one);
}

void Generations::answer(const Finished& finished) {
  const Generation& generation = finished.generation;
  if (finished.how == Finished::How::cancelled) return replies_.refuse(generation.id, {"Cancelled", "cancelled", {}});
  if (finished.how == Finished::How::not_finite) {
    return replies_.refuse(generation.id,
                           {"BadInput", "the policy's logits are not finite; its weights have diverged", {}});
  }
  const auto sampled = std::span<const std::int32_t>(generation.tokens).subspan(generation.prompt_length);
  const auto count = static_cast<std::int64_t>(sampled.size());
  const OutgoingArray arrays[] = {
      {"tokens", DType::i32, {count}, raw_bytes(sampled)},
      {"logprobs", DType::f32, {count}, raw_bytes(std::span<const float>(generation.logprobs))},
  };
  Json fields;
  fields.set("finish", finish_text(finished.how));
  replies_.reply(generation.id, std::move(fields), arrays);
}

}  // namespace longhaul
