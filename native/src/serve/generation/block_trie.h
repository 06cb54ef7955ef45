// Which cache block holds what: a trie of 32-token blocks, so that a transcript finds the longest prefix of it that was computed before.
// Invariants: a full block's content never changes; a partly filled block has at most one owner that adds to it, and no children; a holder
// of a block holds its parents, so the least recently released block is a leaf.
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
  // Number of partly filled siblings to look at, the youngest first: thousands of samples of one short prompt are siblings.
  static constexpr int most_compared = 64;
  static constexpr int root_block = -1;
  static constexpr int no_block = -2;

  explicit BlockTrie(int capacity);

  struct Match {
    // `adopt`: share a full block. `claim`: go on in a partly filled block without a holder. `copy`: take over the first `tokens` positions
    // of `block` into a new one. `wait`: as copy, but some of them are computed in this very pass.
    enum class Kind { none, adopt, claim, copy, wait } kind = Kind::none;
    int block = no_block;
    int tokens = 0;
  };

  // Best continuation of `parent` by at most 32 `tokens`.
  Match find(int parent, std::span<const std::int32_t> tokens) const;

  // Takes a hold on a block.
  void hold(int block);
  // Releases a hold; release a table's last block first.
  void release(int block);
  // A new empty block below `parent`, held once; evicts the least recently released one if no block is free. no_block if every block is
  // held.
  int create(int parent);

  // Notes that the holder writes these tokens behind the filled part in this pass.
  void append(int block, std::span<const std::int32_t> tokens);
  // Notes that the first `count` positions were copied from `from`.
  void append_copied(int block, int from, int count);

  // A pass is one call of `extend`: the tokens appended since the last call of this are computed now.
  void end_pass() { ++pass_; }

  // Forgets everything; no block may be held.
  void clear() noexcept;

  int capacity() const { return static_cast<int>(blocks_.size()); }
  // Blocks that `create` could give out now.
  std::size_t available() const { return free_.size() + idle_.size(); }
  std::uint64_t evictions() const { return evictions_; }

 private:
  struct Block {
    int parent = no_block;
    int holds = 0;
    std::uint64_t written_pass = 0;
    int settled = 0;  // positions that were computed before `written_pass`
    std::vector<std::int32_t> tokens;
    std::list<int>::iterator idle;  // its place in idle_ while it has no holder
  };

  // Full blocks are found by all of their tokens.
  static std::uint64_t full_key(int parent, std::span<const std::int32_t> tokens);
  static std::uint64_t child_key(int parent, std::int32_t token) {
    return (std::uint64_t{static_cast<std::uint32_t>(parent)} << 32) | static_cast<std::uint32_t>(token);
  }
  void forget(int block);

  std::vector<Block> blocks_;
  std::vector<int> free_;
  std::list<int> idle_;  // least recently released first
  // Children of a parent by their first token, in order of their beginning.
  std::unordered_map<std::uint64_t, std::vector<int>> children_;
  // By `full_key`; of two equal blocks the first, and a collision only hides one.
  std::unordered_map<std::uint64_t, int> full_;
  std::uint64_t pass_ = 1;
  std::uint64_t evictions_ = 0;
};

}  // namespace longhaul
