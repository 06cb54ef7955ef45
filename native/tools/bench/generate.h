// Generation through the scheduler: a batch of different prompts, all sampled at temperature 1 to the same length.
#pragma once

#include "options.h"
#include "report.h"
#include "sizes.h"
#include "device_choice.h"
#include "serve/generation/scheduler.h"

namespace longhaul::bench {

/// [--size 6M] [--batch 64] [--prompt 32] [--new 96] [--seconds 10] [--threads 2] [--decode 1: also measures the tokens behind the first
/// alone, without the prompts]
inline void bench_generate(Options options) {
  const std::string size = options.text("size", "6M");
  const int batch = options.whole("batch", 64), prompt = options.whole("prompt", 32), fresh = options.whole("new", 96),
            threads = options.whole("threads", 2);
  const bool decode = options.whole("decode", 0, 0) > 0;
  const double seconds = options.number("seconds", 10, 0);
  options.done();

  const Architecture architecture = architecture_of(size);
  if (prompt + fresh > architecture.max_position_embeddings)
    throw std::invalid_argument("--prompt and --new together are above " + std::to_string(architecture.max_position_embeddings));
  ThreadPool pool(threads);
  const std::unique_ptr<Backend> chosen = make_chosen_backend(pool);
  Backend& backend = *chosen;
  const auto held = std::make_shared<const Policy>(policy_of(architecture, pool));
  const Policy& policy = *held;
  backend.hold(held);
  const size_t blocks = size_t(batch) * (size_t(prompt + fresh) / block_positions + 2);
  GenerationCounters counters;
  Scheduler scheduler(architecture, blocks * backend.block_bytes(architecture), counters, backend);

  double processor = 1e9;
  const auto run = [&](uint32_t round, int fresh) {
    for (int i = 0; i < batch; ++i) {
      Generation generation;
      generation.id = uint32_t(i) + 1;
      generation.tokens = random_tokens(prompt, architecture.vocab_size, round * 100'000 + uint32_t(i));
      generation.prompt_length = size_t(prompt);
      generation.key = {1, PhiloxDomain::train, round, uint32_t(i), 0};
      generation.max_length = size_t(prompt + fresh);
      scheduler.submit(std::move(generation));
    }
    const double start = now(), start_processor = processor_time();
    std::vector<Finished> finished;
    while (!scheduler.idle()) scheduler.step(policy, backend, true, finished);
    for (const Finished& one : finished)
      if (one.how != Finished::How::length) throw std::runtime_error("a generation did not reach its length");
    if (int(finished.size()) != batch) throw std::runtime_error("a generation was lost");
    processor = std::min(processor, processor_time() - start_processor);
    return now() - start;
  };

  run(0, fresh);
  std::vector<double> times, first_times;
  for (const double end = now() + seconds; times.size() < 2 || now() < end;) {
    times.push_back(run(uint32_t(times.size()) + 1, fresh));
    if (decode) first_times.push_back(run(uint32_t(times.size()) + 50'000, 1));
  }
  const double tokens = double(batch) * fresh;
  if (decode && fresh > 1) {
    // What a step reads: the weights once, and the keys and values of all that lies behind each token.
    const double step_seconds = (median(times) - median(first_times)) / (fresh - 1), positions = prompt + 0.5 * (fresh - 1);
    const double bytes = sizeof(float) * double(policy.layout().total) + batch * positions * double(backend.block_bytes(architecture)) / block_positions;
    const double flops = 2.0 * double(policy.layout().total) + 4.0 * architecture.num_hidden_layers * architecture.query_width() * positions;
    print({{"bench", "decode"}, {"device", backend.device().kind}, {"size", size}, {"batch", batch}, {"positions", positions},
           {"tokens_per_second", batch / step_seconds}, {"bytes_per_token", bytes / batch}, {"flops_per_token", flops}});
  }
  print({{"bench", "generate"},
         {"engine", "longhaul"},
         {"device", backend.device().kind},
         {"instruction_set", ops::name(ops::instruction_set())},
         {"size", size},
         {"parameters", std::uint64_t(policy.layout().total)},
         {"threads", threads},
         {"batch", batch},
         {"prompt", prompt},
         {"new_tokens", fresh},
         {"rounds", int(times.size())},
         {"tokens_per_second", tokens / median(times)},
         {"best_tokens_per_second", tokens / *std::min_element(times.begin(), times.end())},
         {"tokens_per_processor_second", tokens / processor}});
}

}  // namespace longhaul::bench
