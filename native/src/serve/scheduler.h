// Continuous batching: every pass adds one token to each running generation and prefills new ones beside them. Which
// generations share a pass, and what the cache holds, never changes a bit of any result: rows are computed one by one and
// random numbers are keyed by the token's place.
// defines: Generation, Finished, Scheduler
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "base/thread_pool.h"
#include "model/decode.h"
#include "model/policy.h"
#include "serve/block_trie.h"

namespace longhaul {

struct Generation {
  std::uint32_t id = 0;
  std::vector<std::int32_t> tokens;  // the transcript, with what was sampled
  std::size_t prompt_length = 0;
  SamplingKey key;
  float temperature = 1;
  std::size_t max_length = 0;  // of `tokens`
  std::vector<std::int32_t> stop_tokens;
  std::vector<float> logprobs;
  std::shared_ptr<std::atomic<bool>> cancelled;

  // Positions [0, cached) are in `blocks`.
  std::size_t cached = 0;
  std::vector<std::int32_t> blocks;
};

struct Finished {
  enum class How { stop, length, cancelled, not_finite } how = How::stop;
  Generation generation;
};

// Read by the thread that answers `stats`.
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
  static constexpr std::size_t kMostRunning = 512;
  // Prefill beside decoding in pieces of this size, so that a cancellation waits for no long prompt.
  static constexpr std::size_t kPrefillPerPass = 1024;

  // `cache_bytes` bounds the KV cache; it always holds at least one transcript of full length.
  Scheduler(const Architecture& architecture, std::size_t cache_bytes, GenerationCounters& counters);

  void submit(Generation generation);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  bool has_running() const { return !running_.empty(); }

  // One pass. `admit` false leaves waiting generations waiting.
  void step(const Policy& policy, ThreadPool& pool, bool admit, std::vector<Finished>& finished);

  // Takes all generations back, after a failure.
  std::vector<Generation> take_all();

  // The weights changed: nothing in the cache is valid.
  void forget_cache() noexcept;

 private:
  enum class Built { yes, later, no_blocks };

  void drop_cancelled(std::vector<Finished>& finished);
  void reuse_prefix(Generation& generation, bool& wait);
  Built build_feed(Generation& generation, std::size_t& budget);
  void preempt_last();
  void release_blocks(Generation& generation);
  void count();

  int max_positions_;
  BlockTrie trie_;
  KvCache cache_;
  GenerationCounters& counters_;
  std::deque<Generation> waiting_;
  std::deque<Generation> running_;  // in order of admission
  bool starved_ = false;  // blocks ran out; nobody is admitted until somebody ends
  std::vector<Feed> feeds_;
  std::vector<Generation*> fed_;
  std::vector<float> logits_;
};

}  // namespace longhaul
