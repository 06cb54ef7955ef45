#include "serve/generation/scheduler.h"

#include <algorithm>

namespace longhaul {
namespace {

constexpr int block_tokens = BlockTrie::block_tokens;
static_assert(block_tokens == block_positions);

int choose_capacity(const Architecture& architecture, std::size_t cache_bytes, std::size_t block_bytes) {
  // At least one transcript of full length, and one more block to copy from.
  const std::size_t least = static_cast<std::size_t>(architecture.max_position_embeddings + block_tokens - 1) / block_tokens + 1;
  return static_cast<int>(std::max(least, cache_bytes / block_bytes));
}

std::size_t blocks_for(std::size_t positions) { return (positions + block_tokens - 1) / block_tokens; }

}  // namespace

Scheduler::Scheduler(const Architecture& architecture, std::size_t cache_bytes, GenerationCounters& counters, Backend& backend)
    : trie_(choose_capacity(architecture, cache_bytes, backend.block_bytes(architecture))),
      cache_(backend.make_cache(architecture, trie_.capacity())),
      counters_(counters) {}

std::size_t Scheduler::most_cache_bytes(const Architecture& architecture, std::size_t cache_bytes, std::size_t block_bytes) {
  return static_cast<std::size_t>(choose_capacity(architecture, cache_bytes, block_bytes)) * block_bytes;
}

void Scheduler::submit(Generation generation) {
  waiting_.push_back(std::move(generation));
  count();
}

void Scheduler::step(const Policy& policy, Backend& backend, bool admit, std::vector<Finished>& finished) {
  feeds_.clear();
  fed_.clear();
  ended_.clear();
  prefill_left_ = prefill_per_pass;
  feed_running();
  if (admit) admit_waiting();
  if (!feeds_.empty()) {
    compute(policy, backend);
    sweep_ended(finished);
    ++counters_.passes;
  }
  count();
}

void Scheduler::feed_running() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    // Only generations later in `running_` are preempted, so the feeds built so far stay valid.
    while (build_feed(running_[i]) == Built::no_blocks) {
      const bool itself = i + 1 == running_.size();
      send_back_last();
      ++counters_.preemptions;
      if (itself) break;
    }
  }
}

// An admitted generation begins in this pass and never preempts another: there is room for its prompt, and for a new block for half of the
// running generations. A generation that is not admitted waits, which costs nothing.
void Scheduler::admit_waiting() {
  if (running_.empty()) starved_ = false;
  while (!waiting_.empty() && !starved_ && running_.size() < most_running && prefill_left_ > 0) {
    const std::size_t reserve = running_.size() / 2;
    if (!running_.empty() && trie_.available() <= reserve) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    Generation& generation = running_.back();
    bool wait = false;
    reuse_prefix(generation, wait);
    const std::size_t missing = blocks_for(generation.tokens.size() + 1) - generation.blocks.size();
    const bool fits = running_.size() == 1 || trie_.available() >= missing + reserve;
    if (!fits || build_feed(generation) == Built::no_blocks) send_back_last();
  }
}

// If another generation computes the same prompt in the current pass, `generation` is fed in the next pass.
Scheduler::Built Scheduler::build_feed(Generation& generation) {
  const bool decoding = generation.tokens.size() - generation.cached == 1;
  if (!decoding) {
    if (prefill_left_ == 0) return Built::later;
    bool wait = false;
    reuse_prefix(generation, wait);
    if (wait) return Built::later;
  }
  const std::size_t rest = generation.tokens.size() - generation.cached;
  const std::size_t size = decoding ? 1 : std::min(rest, prefill_left_);
  const std::size_t end = generation.cached + size;
  while (generation.blocks.size() * block_tokens < end) {
    const int block = trie_.create(generation.blocks.empty() ? BlockTrie::root_block : generation.blocks.back());
    if (block == BlockTrie::no_block) return Built::no_blocks;
    generation.blocks.push_back(block);
  }
  const auto tokens = std::span<const std::int32_t>(generation.tokens).subspan(generation.cached, size);
  for (std::size_t at = 0; at < size;) {
    const std::size_t position = generation.cached + at;
    const std::size_t part = std::min<std::size_t>(size - at, block_tokens - position % block_tokens);
    trie_.append(generation.blocks[position / block_tokens], tokens.subspan(at, part));
    at += part;
  }
  if (!decoding) {
    prefill_left_ -= size;
    counters_.prefilled_tokens += size;
  }
  feeds_.push_back({tokens, static_cast<int>(generation.cached), generation.blocks, end == generation.tokens.size()});
  fed_.push_back(&generation);
  return Built::yes;
}

// Reuses the cached part of the transcript. At least the last token is left to compute, for its logits.
void Scheduler::reuse_prefix(Generation& generation, bool& wait) {
  wait = false;
  while (generation.cached % block_tokens == 0 && generation.cached == generation.blocks.size() * block_tokens) {
    const std::size_t left = generation.tokens.size() - 1 - generation.cached;
    const auto tokens = std::span<const std::int32_t>(generation.tokens)
                            .subspan(generation.cached, std::min<std::size_t>(left, block_tokens));
    const int parent = generation.blocks.empty() ? BlockTrie::root_block : generation.blocks.back();
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
        trie_.hold(match.block);  // otherwise making room could evict the source
        const int block = trie_.create(parent);
        if (block != BlockTrie::no_block) {
          cache_->copy_block(match.block, block);
          trie_.append_copied(block, match.block, match.tokens);
          generation.blocks.push_back(block);
        }
        trie_.release(match.block);
        if (block == BlockTrie::no_block) return;
        break;
      }
    }
    generation.cached += static_cast<std::size_t>(match.tokens);
    counters_.reused_tokens += static_cast<std::uint64_t>(match.tokens);
  }
}

// Computes the feeds and draws a token behind each whole transcript.
void Scheduler::compute(const Policy& policy, Backend& backend) {
  draws_.clear();
  for (std::size_t i = 0; i < feeds_.size(); ++i) {
    if (!feeds_[i].want_logits) continue;
    const Generation& one = *fed_[i];
    const float uniform = sampling_uniform(one.key, static_cast<std::uint32_t>(one.tokens.size()));
    draws_.push_back({one.temperature, uniform, one.top_p, one.top_k});
  }
  drawn_.resize(draws_.size());
  backend.extend(policy, *cache_, feeds_, draws_, drawn_);
  std::size_t draw = 0;
  for (std::size_t i = 0; i < feeds_.size(); ++i) {
    fed_[i]->cached += feeds_[i].tokens.size();
    if (!feeds_[i].want_logits) continue;
    const Drawn& drawn = drawn_[draw++];
    Finished::How how = Finished::How::length;
    if (take_token(*fed_[i], drawn.token, drawn.logprob, how)) ended_.push_back({fed_[i], how});
  }
  counters_.generated_tokens += draws_.size();
  trie_.end_pass();
}

// True if the generation ends with this token.
bool Scheduler::take_token(Generation& generation, std::int32_t token, float logprob, Finished::How& how) const {
  if (token < 0) {
    how = Finished::How::not_finite;
    return true;
  }
  generation.tokens.push_back(token);
  generation.logprobs.push_back(logprob);
  const auto& stops = generation.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    how = Finished::How::stop;
    return true;
  }
  if (!generation.stop_strings.empty() && generation.stop_strings.advance(generation.vocabulary->bytes_of(token))) {
    how = Finished::How::stop_string;
    return true;
  }
  how = Finished::How::length;
  return generation.tokens.size() >= generation.max_length;
}

// `ended_` has the order of `running_`, so a single pass moves ended generations out and closes the gaps.
void Scheduler::sweep_ended(std::vector<Finished>& finished) {
  if (ended_.empty()) return;
  std::size_t next = 0;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (next < ended_.size() && ended_[next].generation == &running_[i]) {
      release_blocks(running_[i]);
      finished.push_back({ended_[next].how, std::move(running_[i])});
      ++next;
    } else {
      if (kept != i) running_[kept] = std::move(running_[i]);
      ++kept;
    }
  }
  running_.resize(kept);
  starved_ = false;
}

void Scheduler::drop_cancelled(std::vector<Finished>& finished) {
  for (auto* queue : {&running_, &waiting_}) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < queue->size(); ++i) {
      Generation& generation = (*queue)[i];
      if (generation.cancelled && generation.cancelled->load(std::memory_order_relaxed)) {
        release_blocks(generation);
        finished.push_back({Finished::How::cancelled, std::move(generation)});
        starved_ = false;
        continue;
      }
      if (kept != i) (*queue)[kept] = std::move(generation);
      ++kept;
    }
    queue->resize(kept);
  }
  count();
}

// Returns the last running generation to the queue. Later it reuses those of its computed blocks that are still in the cache.
void Scheduler::send_back_last() {
  Generation generation = std::move(running_.back());
  running_.pop_back();
  release_blocks(generation);
  waiting_.push_front(std::move(generation));
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
