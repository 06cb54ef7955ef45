// Tests which blocks of the prefix cache may be shared, copied, claimed and evicted.
#include "serve/generation/block_trie.h"

#include <numeric>

#include "support/checks.h"

using namespace longhaul;

namespace {

using Kind = BlockTrie::Match::Kind;

std::vector<std::int32_t> run(int from, int count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

int filled_block(BlockTrie& trie, int parent, const std::vector<std::int32_t>& tokens) {
  const int block = trie.create(parent);
  trie.append(block, tokens);
  return block;
}

void full_blocks_are_shared_even_while_they_are_computed() {
  BlockTrie trie(4);
  const int first = filled_block(trie, BlockTrie::root_block, run(0, 32));
  CHECK(trie.find(BlockTrie::root_block, run(0, 32)).kind == Kind::adopt);
  CHECK(trie.find(first, run(0, 32)).kind == Kind::none);
  // Only 31 of the 32 tokens are looked up, because the last token's logits are wanted.
  trie.end_pass();
  const auto match = trie.find(BlockTrie::root_block, run(0, 31));
  CHECK(match.kind == Kind::copy && match.tokens == 31);
}

void partly_filled_blocks_are_claimed_copied_or_waited_for() {
  BlockTrie trie(4);
  const int block = filled_block(trie, BlockTrie::root_block, run(0, 10));
  CHECK(trie.find(BlockTrie::root_block, run(0, 32)).kind == Kind::wait);
  trie.end_pass();
  CHECK(trie.find(BlockTrie::root_block, run(0, 32)).kind == Kind::copy);
  // The owner adds to the block, but the positions computed before can still be copied.
  trie.append(block, run(10, 1));
  const std::vector<std::int32_t> other{0, 1, 2, 3, 4, 5, 6, 99};
  CHECK(trie.find(BlockTrie::root_block, other).kind == Kind::copy && trie.find(BlockTrie::root_block, other).tokens == 7);
  CHECK(trie.find(BlockTrie::root_block, run(0, 11)).kind == Kind::wait);
  trie.end_pass();
  trie.release(block);
  const auto next_turn = trie.find(BlockTrie::root_block, run(0, 32));
  CHECK(next_turn.kind == Kind::claim && next_turn.tokens == 11);
  CHECK(trie.find(BlockTrie::root_block, other).kind == Kind::copy);
  CHECK(trie.find(BlockTrie::root_block, {{0, 1, 2, 99}}).kind == Kind::none);
  CHECK(trie.find(BlockTrie::root_block, run(5, 5)).kind == Kind::none);
}

void the_least_recently_released_leaf_is_evicted() {
  BlockTrie trie(3);
  const int root = filled_block(trie, BlockTrie::root_block, run(0, 32));
  const int old = filled_block(trie, root, run(100, 32));
  const int young = filled_block(trie, root, run(200, 32));
  CHECK(trie.create(root) == BlockTrie::no_block);
  trie.end_pass();
  trie.hold(root);  // the second table's hold on the shared block
  trie.release(old);
  trie.release(root);
  trie.release(young);
  trie.release(root);
  CHECK(trie.create(BlockTrie::root_block) == old);
  CHECK(trie.find(root, run(100, 32)).kind == Kind::none);
  CHECK(trie.find(root, run(200, 32)).kind == Kind::adopt);
  CHECK(trie.create(BlockTrie::root_block) == young);
  CHECK(trie.find(BlockTrie::root_block, run(0, 32)).kind == Kind::adopt);
  CHECK(trie.create(BlockTrie::root_block) == root);
  CHECK(trie.find(BlockTrie::root_block, run(0, 32)).kind == Kind::none);
  CHECK(trie.evictions() == 3);
}

// With thousands of samples of one short prompt, a full block is found among all siblings, but a partly filled block only among the newest
// siblings.
void a_full_block_is_found_among_thousands_of_siblings() {
  BlockTrie trie(5000);
  std::vector<int> blocks;
  for (int i = 0; i < 4000; ++i) {
    std::vector<std::int32_t> tokens = run(0, 32);
    tokens[20] = 1000 + i;
    blocks.push_back(filled_block(trie, BlockTrie::root_block, tokens));
  }
  trie.end_pass();
  for (const int i : {0, 1, 1999, 3999}) {
    std::vector<std::int32_t> tokens = run(0, 32);
    tokens[20] = 1000 + i;
    const auto match = trie.find(BlockTrie::root_block, tokens);
    CHECK(match.kind == Kind::adopt && match.block == blocks[static_cast<std::size_t>(i)]);
  }
  CHECK(trie.find(BlockTrie::root_block, run(0, 32)).kind == Kind::copy && trie.find(BlockTrie::root_block, run(0, 32)).tokens == 20);
  CHECK(trie.available() == 1000);
  // An evicted block is no longer found.
  trie.release(blocks[1999]);
  CHECK(trie.available() == 1001);
  for (int i = 0; i < 1001; ++i) trie.create(BlockTrie::root_block);
  std::vector<std::int32_t> gone = run(0, 32);
  gone[20] = 1000 + 1999;
  CHECK(trie.find(BlockTrie::root_block, gone).kind == Kind::copy);
}

void a_released_empty_block_is_free_again() {
  BlockTrie trie(1);
  const int block = trie.create(BlockTrie::root_block);
  trie.release(block);
  CHECK(trie.create(BlockTrie::root_block) == block);
  CHECK(trie.evictions() == 0);
}

}  // namespace

int main() {
  full_blocks_are_shared_even_while_they_are_computed();
  partly_filled_blocks_are_claimed_copied_or_waited_for();
  the_least_recently_released_leaf_is_evicted();
  a_full_block_is_found_among_thousands_of_siblings();
  a_released_empty_block_is_free_again();
  return test::finish();
}
