// Records which cache block holds which tokens: a trie of 32-token blocks, in which a transcript finds its longest prefix that was computed
// before. Invariants: a full block's content never changes; a partly filled block has at most one owner that adds to it, and no children;
// a generation that holds a block also holds the block's parents, so the least recently released block is a leaf.
// defines: BlockTrie
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace longhaul {

class BlockTrie {
 public:
  static constexpr int block_tokens = 32;
  // Copying fewer positions than this costs more than computing them again.
  static constexpr int least_copied = 4;
  // How many partly filled siblings to compare, the newest first: the samples of one short prompt are siblings, and there may be thousands.
  static constexpr int most_compared = 64;
  static constexpr int root_block = -1;
  static constexpr int no_block = -2;

  explicit BlockTrie(int capacity);

  struct Match {
    // `adopt`: share a full block. `claim`: continue a partly filled block that has no holder. `copy`: copy the first `tokens` positions of
    // `block` into a new block. `wait`: as copy, but the current pass still computes some of these positions.
    enum class Kind { none, adopt, claim, copy, wait } kind = Kind::none;
    int block = no_block;
    int tokens = 0;
  };

  // The block below `parent` that shares the longest prefix with at most 32 `tokens`.
  Match find(int parent, std::span<const std::int32_t> tokens) const;

  // Takes a hold on a block.
  void hold(int block);
  // Releases a hold. Release the last block of a table first.
  void release(int block);
  // Returns a new empty block below `parent`, held once. If no block is free, evicts the least recently released one; if every block is
  // held, returns no_block.
  int create(int parent);

  // Records that the holder writes these tokens after the filled part of the block in this pass.
  void append(int block, std::span<const std::int32_t> tokens);
  // Records that the first `count` positions were copied from `from`.
  void append_copied(int block, int from, int count);

  // Ends a pass, which is one call of `extend`: all tokens appended so far now count as computed.
  void end_pass() { ++pass_; }

  // Forgets everything; no block may be held.
  void clear() noexcept;

  int capacity() const { return static_cast<int>(blocks_.size()); }
  // Number of blocks that `create` could return now.
  std::size_t available() const { return free_.size() + idle_.size(); }
  std::uint64_t evictions() const { return evictions_; }

 private:
  struct Block {
    int parent = no_block;
    int holds = 0;
    std::uint64_t written_pass = 0;
    int settled = 0;  // positions that were computed before pass `written_pass`
    std::vector<std::int32_t> tokens;
    std::list<int>::iterator idle;  // its place in idle_ if it has no holder
  };

  // Key of a full block, from all of its tokens.
  static std::uint64_t full_key(int parent, std::span<const std::int32_t> tokens);
  static std::uint64_t child_key(int parent, std::int32_t token) {
    return (std::uint64_t{static_cast<std::uint32_t>(parent)} << 32) | static_cast<std::uint32_t>(token);
  }
  void forget(int block);

  std::vector<Block> blocks_;
  std::vector<int> free_;
  std::list<int> idle_;  // least recently released first
  // Children of each parent, grouped by their first token; within a group, the block that was begun first comes first.
  std::unordered_map<std::uint64_t, std::vector<int>> children_;
  // Full blocks by `full_key`. If two blocks have the same key, the first one is found: a collision only hides a block.
  std::unordered_map<std::uint64_t, int> full_;
  std::uint64_t pass_ = 1;
  std::uint64_t evictions_ = 0;
};

}  // namespace longhaul
