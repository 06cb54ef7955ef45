#include "serve/generation/block_trie.h"

#include <algorithm>

namespace longhaul {

BlockTrie::BlockTrie(int capacity) : blocks_(static_cast<std::size_t>(capacity)) {
  free_.reserve(blocks_.size());  // room for all blocks, so that `clear` allocates nothing and cannot fail
  clear();
}

std::uint64_t BlockTrie::full_key(int parent, std::span<const std::int32_t> tokens) {
  // FNV-1a over words.
  std::uint64_t hash = 0xcbf29ce484222325u ^ static_cast<std::uint32_t>(parent);
  for (const std::int32_t token : tokens) {
    hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  return hash;
}

void BlockTrie::clear() noexcept {
  free_.clear();
  for (int block = capacity() - 1; block >= 0; --block) {
    blocks_[block] = Block{};
    free_.push_back(block);
  }
  idle_.clear();
  children_.clear();
  full_.clear();
}

BlockTrie::Match BlockTrie::find(int parent, std::span<const std::int32_t> tokens) const {
  Match best;
  if (tokens.empty()) return best;
  if (tokens.size() == block_tokens) {
    const auto whole = full_.find(full_key(parent, tokens));
    if (whole != full_.end()) {
      const Block& block = blocks_[whole->second];
      if (block.parent == parent && std::equal(tokens.begin(), tokens.end(), block.tokens.begin(), block.tokens.end())) {
        return {Match::Kind::adopt, whole->second, block_tokens};
      }
    }
  }
  const auto found = children_.find(child_key(parent, tokens[0]));
  if (found == children_.end()) return best;
  const std::vector<int>& siblings = found->second;
  int compared = 0;
  for (auto sibling = siblings.rbegin(); sibling != siblings.rend() && compared < most_compared; ++sibling, ++compared) {
    const int candidate = *sibling;
    const Block& block = blocks_[candidate];
    const std::size_t most = std::min(tokens.size(), block.tokens.size());
    const auto end = std::mismatch(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(most), block.tokens.begin());
    const int common = static_cast<int>(end.first - tokens.begin());
    const bool whole = common == static_cast<int>(block.tokens.size());
    Match match{Match::Kind::copy, candidate, common};
    if (whole && common == block_tokens) {
      return {Match::Kind::adopt, candidate, common};
    }
    if (whole && block.holds == 0) {
      match.kind = Match::Kind::claim;
    } else if (common < least_copied) {
      continue;
    } else if (block.written_pass == pass_ && common > block.settled) {
      match.kind = Match::Kind::wait;
    }
    const bool sooner = match.kind == Match::Kind::claim || best.kind == Match::Kind::wait;
    if (common > best.tokens || (common == best.tokens && sooner)) best = match;
  }
  return best;
}

void BlockTrie::hold(int block) {
  Block& held = blocks_[block];
  if (held.holds == 0) idle_.erase(held.idle);
  ++held.holds;
}

void BlockTrie::release(int block) {
  Block& held = blocks_[block];
  if (--held.holds > 0) return;
  if (held.tokens.empty()) {
    forget(block);
    free_.push_back(block);
    return;
  }
  held.idle = idle_.insert(idle_.end(), block);
}

int BlockTrie::create(int parent) {
  int block = no_block;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (!idle_.empty()) {
    block = idle_.front();
    idle_.pop_front();
    forget(block);
    ++evictions_;
  } else {
    return no_block;
  }
  blocks_[block] = Block{};
  blocks_[block].parent = parent;
  blocks_[block].holds = 1;
  return block;
}

void BlockTrie::append(int block, std::span<const std::int32_t> tokens) {
  if (tokens.empty()) return;
  Block& held = blocks_[block];
  if (held.tokens.empty()) children_[child_key(held.parent, tokens[0])].push_back(block);
  if (held.written_pass != pass_) {
    held.settled = static_cast<int>(held.tokens.size());
    held.written_pass = pass_;
  }
  held.tokens.insert(held.tokens.end(), tokens.begin(), tokens.end());
  if (held.tokens.size() == block_tokens) full_.emplace(full_key(held.parent, held.tokens), block);
}

void BlockTrie::append_copied(int block, int from, int count) {
  const std::vector<std::int32_t> tokens(blocks_[from].tokens.begin(), blocks_[from].tokens.begin() + count);
  append(block, tokens);
  blocks_[block].settled = count;
}

void BlockTrie::forget(int block) {
  Block& gone = blocks_[block];
  if (!gone.tokens.empty()) {
    const auto siblings = children_.find(child_key(gone.parent, gone.tokens[0]));
    std::erase(siblings->second, block);
    if (siblings->second.empty()) children_.erase(siblings);
  }
  if (gone.tokens.size() == block_tokens) {
    const auto whole = full_.find(full_key(gone.parent, gone.tokens));
    if (whole != full_.end() && whole->second == block) full_.erase(whole);
  }
  gone = Block{};
}

}  // namespace longhaul
