#include "serve/scheduler.h"

#include <algorithm>

#include "model/sample.h"

namespace longhaul {
namespace {

constexpr int kBlock = BlockTrie::kBlockTokens;
static_assert(kBlock == KvCache::block_positions);

int choose_capacity(const Architecture& architecture, std::size_t cache_bytes) {
  // One transcript of full length, and one block more to copy from.
  const std::size_t least = static_cast<std::size_t>(architecture.max_position_embeddings + kBlock - 1) / kBlock + 1;
  return static_cast<int>(std::max(least, cache_bytes / KvCache::block_bytes(architecture)));
}

}  // namespace

Scheduler::Scheduler(const Architecture& architecture, std::size_t cache_bytes, GenerationCounters& counters)
    : max_positions_(architecture.max_position_embeddings),
      trie_(choose_capacity(architecture, cache_bytes)),
      cache_(architecture, trie_.capacity()),
      counters_(counters) {}

void Scheduler::submit(Generation generation) {
  waiting_.push_back(std::move(generation));
  count();
}

void Scheduler::step(const Policy& policy, ThreadPool& pool, bool admit, std::vector<Finished>& finished) {
  drop_cancelled(finished);
  if (running_.empty() || !finished.empty()) starved_ = false;
  while (admit && !starved_ && !waiting_.empty() && running_.size() < kMostRunning) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }

  feeds_.clear();
  fed_.clear();
  std::size_t budget = kPrefillPerPass;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    // Only generations behind this one are preempted: feeds that are already built stay valid.
    while (build_feed(running_[i], budget) == Built::no_blocks) {
      const bool itself = i + 1 == running_.size();
      preempt_last();
      if (itself) break;
    }
  }
  if (feeds_.empty()) return count();

  const auto vocab = static_cast<std::size_t>(policy.architecture().vocab_size);
  std::vector<std::size_t> sampling;  // indices of feeds whose logits are wanted
  for (std::size_t i = 0; i < feeds_.size(); ++i) {
    if (feeds_[i].want_logits) sampling.push_back(i);
  }
  if (logits_.size() < sampling.size() * vocab) logits_.resize(sampling.size() * vocab);
  extend(policy, cache_, feeds_, logits_.data(), pool);
  trie_.end_pass();

  std::vector<Drawn> drawn(sampling.size());
  constexpr std::size_t rows_per_task = 8;
  pool.parallel_for((sampling.size() + rows_per_task - 1) / rows_per_task, [&](std::size_t task) {
    const std::size_t end = std::min(sampling.size(), (task + 1) * rows_per_task);
    for (std::size_t row = task * rows_per_task; row < end; ++row) {
      const Generation& generation = *fed_[sampling[row]];
      const float uniform = sampling_uniform(generation.key, static_cast<std::uint32_t>(generation.tokens.size()));
      drawn[row] = draw(logits_.data() + row * vocab, static_cast<int>(vocab), generation.temperature, uniform);
    }
  });
  for (std::size_t i = 0; i < feeds_.size(); ++i) fed_[i]->cached += feeds_[i].tokens.size();

  std::vector<const Generation*> ended;
  std::vector<Finished::How> how;
  for (std::size_t row = 0; row < sampling.size(); ++row) {
    Generation& generation = *fed_[sampling[row]];
    if (drawn[row].token < 0) {
      ended.push_back(&generation);
      how.push_back(Finished::How::not_finite);
      continue;
    }
    generation.tokens.push_back(drawn[row].token);
    generation.logprobs.push_back(drawn[row].logprob);
    const auto& stops = generation.stop_tokens;
    if (std::find(stops.begin(), stops.end(), drawn[row].token) != stops.end()) {
      ended.push_back(&generation);
      how.push_back(Finished::How::stop);
    } else if (generation.tokens.size() >= generation.max_length) {
      ended.push_back(&generation);
      how.push_back(Finished::How::length);
    }
  }
  counters_.generated_tokens += sampling.size();
  ++counters_.passes;

  if (!ended.empty()) {
    // `ended` is in running_ order, so one sweep moves them out and closes the gaps.
    std::size_t next = 0;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (next < ended.size() && ended[next] == &running_[i]) {
        release_blocks(running_[i]);
        finished.push_back({how[next], std::move(running_[i])});
        ++next;
      } else {
        if (kept != i) running_[kept] = std::move(running_[i]);
        ++kept;
      }
    }
    running_.resize(kept);
    starved_ = false;
  }
  count();
}

void Scheduler::drop_cancelled(std::vector<Finished>& finished) {
  const auto sweep = [&](std::deque<Generation>& queue) {
    for (auto it = queue.begin(); it != queue.end();) {
      if (it->cancelled && it->cancelled->load(std::memory_order_relaxed)) {
        release_blocks(*it);
        finished.push_back({Finished::How::cancelled, std::move(*it)});
        it = queue.erase(it);
      } else {
        ++it;
      }
    }
  };
  sweep(running_);
  sweep(waiting_);
}

// Takes what the cache holds of the transcript; at least its last token is left to compute, for its logits.
void Scheduler::reuse_prefix(Generation& generation, bool& wait) {
  wait = false;
  while (generation.cached % kBlock == 0 && generation.cached == generation.blocks.size() * kBlock) {
    const std::size_t left = generation.tokens.size() - 1 - generation.cached;
    const auto tokens = std::span<const std::int32_t>(generation.tokens)
                            .subspan(generation.cached, std::min<std::size_t>(left, kBlock));
    const int parent = generation.blocks.empty() ? BlockTrie::kRoot : generation.blocks.back();
    const BlockTrie::Match match = trie_.find(parent, tokens);
    switch (match.kind) {
      case BlockTrie::Match::Kind::none: return;
      case BlockTrie::Match::Kind::wait: wait = true; return;
      case BlockTrie::Match::Kind::adopt:
      case BlockTrie::Match::Kind::claim:
        trie_.hold(match.block);
        generation.blocks.push_back(match.block);
        break;
      case BlockTrie::Match::Kind::copy: {
        trie_.hold(match.block);  // or making room could evict the source
        const int block = trie_.create(parent);
        if (block != BlockTrie::kNone) {
          cache_.copy_block(match.block, block);
          trie_.append_copied(block, match.block, match.tokens);
          generation.blocks.push_back(block);
        }
        trie_.release(match.block);
        if (block == BlockTrie::kNone) return;
        break;
      }
    }
    generation.cached += static_cast<std::size_t>(match.tokens);
    counters_.reused_tokens += static_cast<std::uint64_t>(match.tokens);
  }
}

Scheduler::Built Scheduler::build_feed(Generation& generation, std::size_t& budget) {
  const bool decoding = generation.tokens.size() - generation.cached == 1;
  if (!decoding) {
    bool wait = false;
    reuse_prefix(generation, wait);
    if (wait || budget == 0) return Built::later;
  }
  const std::size_t rest = generation.tokens.size() - generation.cached;
  const std::size_t size = decoding ? 1 : std::min(rest, budget);
  const std::size_t end = generation.cached + size;
  while (generation.blocks.size() * kBlock < end) {
    const int block = trie_.create(generation.blocks.empty() ? BlockTrie::kRoot : generation.blocks.back());
    if (block == BlockTrie::kNone) return Built::no_blocks;
    generation.blocks.push_back(block);
  }
  const auto tokens = std::span<const std::int32_t>(generation.tokens).subspan(generation.cached, size);
  for (std::size_t at = 0; at < size;) {
    const std::size_t position = generation.cached + at;
    const std::size_t part = std::min<std::size_t>(size - at, kBlock - position % kBlock);
    trie_.append(generation.blocks[position / kBlock], tokens.subspan(at, part));
    at += part;
  }
  if (!decoding) {
    budget -= size;
    counters_.prefilled_tokens += size;
  }
  feeds_.push_back({tokens, static_cast<int>(generation.cached), generation.blocks, end == generation.tokens.size()});
  fed_.push_back(&generation);
  return Built::yes;
}

void Scheduler::preempt_last() {
  Generation generation = std::move(running_.back());
  running_.pop_back();
  release_blocks(generation);
  waiting_.push_front(std::move(generation));
  ++counters_.preemptions;
  starved_ = true;
}

void Scheduler::release_blocks(Generation& generation) {
  for (std::size_t i = generation.blocks.size(); i-- > 0;) trie_.release(generation.blocks[i]);
  generation.blocks.clear();
  generation.cached = 0;
}

std::vector<Generation> Scheduler::take_all() {
  std::vector<Generation> all;
  for (auto* queue : {&running_, &waiting_}) {
    for (Generation& generation : *queue) {
      release_blocks(generation);
      all.push_back(std::move(generation));
    }
    queue->clear();
  }
  forget_cache();
  count();
  return all;
}

void Scheduler::forget_cache() noexcept {
  trie_.end_pass();
  trie_.clear();
}

void Scheduler::count() {
  counters_.running = running_.size();
  counters_.waiting = waiting_.size();
  counters_.evicted_blocks = trie_.evictions();
}

}  // namespace longhaul
