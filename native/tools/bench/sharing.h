// The cost of training several samples of one prompt when the prompt is computed once, compared with computing it for each sample.
#pragma once

#include "train.h"

namespace longhaul::bench {

/// [--size 6M] [--samples 8] [--prompt 1000] [--answer 100] [--groups 1] [--rounds 5] [--threads 2]
inline void bench_sharing(Options options) {
  const std::string size = options.text("size", "6M");
  const int samples = options.whole("samples", 8), prompt = options.whole("prompt", 1000), answer = options.whole("answer", 100),
            groups = options.whole("groups", 1), rounds = options.whole("rounds", 5), threads = options.whole("threads", 2);
  options.done();

  const Architecture architecture = architecture_of(size);
  ThreadPool pool(threads);
  TrainingBatch shared, apart;
  for (int g = 0; g < groups; ++g) {
    const std::vector<int32_t> prompt_tokens = random_tokens(prompt, architecture.vocab_size, 1000 + uint32_t(g));
    const int root_end = int(shared.tokens.size()) + prompt - 1, root = shared.add(-1, prompt_tokens);
    for (int s = 0; s < samples; ++s) {
      const int sample = g * samples + s;
      const std::vector<int32_t> tokens = random_tokens(answer, architecture.vocab_size, uint32_t(sample));
      const int leaf = int(shared.tokens.size());
      shared.add(root, tokens);
      const int own_end = int(apart.tokens.size()) + prompt - 1;
      std::vector<int32_t> whole = prompt_tokens;
      whole.insert(whole.end(), tokens.begin(), tokens.end());
      apart.add(-1, whole);
      for (int i = 0; i < answer; ++i) {
        shared.target(i == 0 ? root_end : leaf + i - 1, tokens[size_t(i)], sample);
        apart.target(own_end + i, tokens[size_t(i)], sample);
      }
    }
  }

  // The two variants run in turns, so that a busy machine slows both.
  const Policy policy = policy_of(architecture, pool);
  Updater with(policy, pool), without(policy, pool);
  with.update(shared);
  without.update(apart);
  std::vector<double> shared_times, apart_times;
  double shared_processor = 1e9, apart_processor = 1e9;
  for (int r = 0; r < rounds; ++r) {
    apart_times.push_back(without.update(apart));
    apart_processor = std::min(apart_processor, without.processor);
    shared_times.push_back(with.update(shared));
    shared_processor = std::min(shared_processor, with.processor);
  }
  const double shared_seconds = median(shared_times), apart_seconds = median(apart_times);
  print({{"bench", "sharing"},
         {"engine", "longhaul"},
         {"size", size},
         {"threads", threads},
         {"groups", groups},
         {"samples", samples},
         {"prompt", prompt},
         {"answer", answer},
         {"shared_seconds", shared_seconds},
         {"apart_seconds", apart_seconds},
         {"ratio", shared_seconds / apart_seconds},
         {"processor_ratio", shared_processor / apart_processor}});
}

}  // namespace longhaul::bench
