#include "serve/generations.h"

#include <algorithm>
#include <new>

#include "serve/request_settings.h"

namespace longhaul {

void Generations::prepare(const Architecture& architecture) {
  if (scheduler_ && architecture_ == architecture) return;
  scheduler_ = std::make_unique<Scheduler>(architecture, cache_bytes_, counters_);
  architecture_ = architecture;
}

void Generations::submit(const Request& request, const Policy& policy) {
  Generation generation;
  generation.id = request.id();
  generation.tokens = read_tokens(request, policy);
  const auto most = static_cast<std::size_t>(policy.architecture().max_position_embeddings);
  if (generation.tokens.empty() || generation.tokens.size() >= most) {
    throw RequestError("BadInput", std::to_string(generation.tokens.size()) + " tokens; a transcript has 1 to " +
                                       std::to_string(most - 1) + " before it goes on");
  }
  generation.prompt_length = generation.tokens.size();
  generation.key = read_key(request.field("key"));
  generation.temperature = static_cast<float>(read_temperature(request));
  const auto limit = static_cast<std::size_t>(request.whole("max_new_tokens", 1, 1 << 30));
  generation.max_length = std::min(most, generation.prompt_length + limit);
  for (const double token : request.numbers("stop_tokens")) generation.stop_tokens.push_back(static_cast<std::int32_t>(token));
  generation.cancelled = request.cancelled;
  generation.tokens.reserve(generation.max_length < 4096 ? generation.max_length : generation.prompt_length + 256);
  scheduler_->submit(std::move(generation));
}

void Generations::step(const Policy& policy, ThreadPool& pool) {
  std::vector<Finished> finished;
  try {
    scheduler_->step(policy, pool, !replies_.blocked(), finished);
  } catch (const std::exception& error) {
    const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    for (const Generation& generation : scheduler_->take_all()) {
      replies_.refuse(generation.id, memory ? "OutOfMemory" : "BadInput",
                      memory ? std::string("not enough memory for this pass") : std::string(error.what()));
    }
  }
  for (Finished& one : finished) answer(one);
}

void Generations::answer(Finished& finished) {
  const Generation& generation = finished.generation;
  if (finished.how == Finished::How::cancelled) return replies_.refuse(generation.id, "Cancelled", "cancelled");
  if (finished.how == Finished::How::not_finite) {
    return replies_.refuse(generation.id, "BadInput", "the policy's logits are not finite; its weights have diverged");
  }
  const auto sampled = std::span<const std::int32_t>(generation.tokens).subspan(generation.prompt_length);
  const auto count = static_cast<std::int64_t>(sampled.size());
  const OutgoingArray arrays[] = {
      {"tokens", DType::i32, {count}, raw_bytes(sampled)},
      {"logprobs", DType::f32, {count}, raw_bytes(std::span<const float>(generation.logprobs))},
  };
  Json fields;
  fields.set("finish", finished.how == Finished::How::stop ? "stop" : "length");
  replies_.reply(generation.id, std::move(fields), arrays);
}

}  // namespace longhaul
