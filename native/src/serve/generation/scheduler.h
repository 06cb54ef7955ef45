// Continuous batching: every pass adds one token to each running generation and also prefills new generations. The bits of a result depend
// neither on which generations share a pass nor on what the cache holds: rows are computed one by one, and random numbers depend only on
// the token's place. Waiting generations cost nothing.
// defines: Generation, Finished, GenerationCounters, Scheduler
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/philox.h"
#include "serve/generation/block_trie.h"
#include "serve/generation/stop_strings.h"
#include "serve/generation/vocabulary.h"

namespace longhaul {

struct Generation {
  std::uint32_t id = 0;
  std::vector<std::int32_t> tokens;  // the transcript, including the sampled tokens
  std::size_t prompt_length = 0;
  SamplingKey key;
  float temperature = 1;
  double top_p = 1;  // 1: the whole distribution
  int top_k = 0;    // 0: the whole vocabulary
  std::size_t max_length = 0;  // of `tokens`
  std::vector<std::int32_t> stop_tokens;
  StopStrings stop_strings;
  std::shared_ptr<const Vocabulary> vocabulary;  // only set with stop strings
  std::vector<float> logprobs;
  std::shared_ptr<std::atomic<bool>> cancelled;

  // Positions [0, cached) are in `blocks`.
  std::size_t cached = 0;
  std::vector<std::int32_t> blocks;
};

struct Finished {
  enum class How { stop, stop_string, length, cancelled, not_finite } how = How::stop;
  Generation generation;
};

// The thread that answers `stats` reads these counters, too.
struct GenerationCounters {
  std::atomic<std::uint64_t> generated_tokens{0};
  std::atomic<std::uint64_t> prefilled_tokens{0};
  std::atomic<std::uint64_t> reused_tokens{0};
  std::atomic<std::uint64_t> passes{0};
  std::atomic<std::uint64_t> preemptions{0};
  std::atomic<std::uint64_t> evicted_blocks{0};
  std::atomic<std::uint64_t> running{0};
  std::atomic<std::uint64_t> waiting{0};
};

class Scheduler {
 public:
  // More rows make a pass no more efficient, and in a longer pass a cancellation waits longer.
  static constexpr std::size_t most_running = 1024;
  // Prompts are prefilled in pieces of this size beside decoding, so that a cancellation does not wait for a long prompt.
  static constexpr std::size_t prefill_per_pass = 1024;
  static_assert(most_running + prefill_per_pass <= most_feed_rows);
  // `cache_bytes` bounds the KV cache, which always has room for at least one transcript of full length.
  Scheduler(const Architecture& architecture, std::size_t cache_bytes, GenerationCounters& counters, Backend& backend);
  // The size in bytes to which the cache of such a scheduler may grow, with blocks of `block_bytes`.
  static std::size_t most_cache_bytes(const Architecture& architecture, std::size_t cache_bytes, std::size_t block_bytes);

  void submit(Generation generation);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  bool has_running() const { return !running_.empty(); }

  // Runs one pass. With `admit` false, waiting generations stay waiting.
  void step(const Policy& policy, Backend& backend, bool admit, std::vector<Finished>& finished);

  // Moves the generations whose cancellation flag is set to `finished`.
  void drop_cancelled(std::vector<Finished>& finished);

  // Removes and returns all generations, after a failure.
  std::vector<Generation> take_all();

  // Forgets all cached blocks, because the weights changed.
  void forget_cache() noexcept;

 private:
  enum class Built { yes, later, no_blocks };

  void feed_running();
  void admit_waiting();
  void reuse_prefix(Generation& generation, bool& wait);
  Built build_feed(Generation& generation);
  void compute(const Policy& policy, Backend& backend);
  bool take_token(Generation& generation, std::int32_t token, float logprob, Finished::How& how) const;
  void sweep_ended(std::vector<Finished>& finished);
  void send_back_last();
  void release_blocks(Generation& generation);
  void count();

  struct Ended {
    const Generation* generation;
    Finished::How how;
  };

  BlockTrie trie_;
  std::unique_ptr<BlockCache> cache_;
  GenerationCounters& counters_;
  std::deque<Generation> waiting_;
  std::deque<Generation> running_;  // in order of admission
  bool starved_ = false;  // true if blocks ran out: no generation is admitted until one ends

  // State of the current pass.
  std::size_t prefill_left_ = 0;
  std::vector<Feed> feeds_;
  std::vector<Generation*> fed_;
  std::vector<DrawRequest> draws_;
  std::vector<Drawn> drawn_;
  std::vector<Ended> ended_;  // in the order of `running_`
};

}  // namespace longhaul
