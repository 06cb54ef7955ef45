// Ownership of the cache's blocks: a cancelled generation returns all its blocks, and an evicted block is never found again.
#include "serve/generation/scheduler.h"

#include "support/cpu.h"
#include "support/checks.h"
#include "support/policies.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

// A policy for the smallest cache: there is room for one transcript of full length and one more block.
Policy policy_of(int positions) {
  Architecture architecture = tiny_architecture();
  architecture.max_position_embeddings = positions;
  return random_policy(architecture, 0.2, 7);
}

std::vector<std::int32_t> tokens_of(int count, std::uint32_t stream) { return random_tokens(count, tiny_architecture().vocab_size, stream); }

Generation generation_of(std::vector<std::int32_t> tokens, std::size_t most) {
  Generation generation;
  generation.id = 1;
  generation.prompt_length = tokens.size();
  generation.max_length = tokens.size() + most;
  generation.tokens = std::move(tokens);
  return generation;
}

// Runs a generation alone in the scheduler. Returns nothing if that takes more passes than the transcript may have tokens.
std::vector<Finished> run_alone(Scheduler& scheduler, const Policy& policy, ThreadPool& pool, Generation generation) {
  const std::size_t passes = generation.max_length;
  scheduler.submit(std::move(generation));
  std::vector<Finished> finished;
  for (std::size_t i = 0; i < passes && !scheduler.idle(); ++i) scheduler.step(policy, cpu(pool), true, finished);
  return finished;
}

void cancelled_generations_release_their_blocks() {
  ThreadPool pool(1);
  const Policy policy = policy_of(256);
  GenerationCounters counters;
  Scheduler scheduler(policy.architecture(), 0, counters, cpu(pool));
  for (std::uint32_t round = 0; round < 4; ++round) {
    std::vector<std::shared_ptr<std::atomic<bool>>> flags;
    for (std::uint32_t i = 0; i < 4; ++i) {
      Generation generation = generation_of(tokens_of(40, 4 * round + i), 100);
      generation.cancelled = flags.emplace_back(std::make_shared<std::atomic<bool>>(false));
      scheduler.submit(std::move(generation));
    }
    std::vector<Finished> finished;
    // The first passes start generations; later there is no room for all, and some are sent back to the queue.
    for (std::uint32_t i = 0; i < 3 + 20 * round; ++i) scheduler.step(policy, cpu(pool), true, finished);
    CHECK(counters.running >= 2 && finished.empty());
    for (const auto& flag : flags) *flag = true;
    scheduler.drop_cancelled(finished);
    CHECK(finished.size() == 4 && scheduler.idle());
    for (const Finished& one : finished) CHECK(one.how == Finished::How::cancelled && one.generation.blocks.empty());

    // This generation needs all blocks of the cache but one.
    const auto longest = run_alone(scheduler, policy, pool, generation_of(tokens_of(255, 100 + round), 1));
    CHECK(longest.size() == 1 && longest[0].how == Finished::How::length && longest[0].generation.logprobs.size() == 1);
    if (!scheduler.idle()) return;
  }
}

// If a block were evicted before its children, the children would stay, below the block that takes its place.
void blocks_below_an_evicted_block_are_not_found() {
  ThreadPool pool(1);
  const Policy policy = policy_of(96);
  GenerationCounters counters;
  Scheduler scheduler(policy.architecture(), 0, counters, cpu(pool));  // four blocks
  const std::vector<std::int32_t> a = tokens_of(32, 1), b = tokens_of(32, 2), tail = tokens_of(33, 3);
  const auto behind = [&](std::vector<std::int32_t> tokens) {
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    return tokens;
  };
  CHECK(run_alone(scheduler, policy, pool, generation_of(behind(a), 1)).size() == 1);       // three blocks
  CHECK(run_alone(scheduler, policy, pool, generation_of(tokens_of(20, 4), 1)).size() == 1);  // the fourth
  CHECK(counters.evicted_blocks == 0);
  CHECK(run_alone(scheduler, policy, pool, generation_of(b, 1)).size() == 1);
  CHECK(counters.evicted_blocks == 1);
  const auto after = run_alone(scheduler, policy, pool, generation_of(behind(b), 20));
  CHECK(counters.reused_tokens >= 32 && counters.evicted_blocks > 1);

  GenerationCounters of_another;
  Scheduler another(policy.architecture(), 0, of_another, cpu(pool));
  const auto alone = run_alone(another, policy, pool, generation_of(behind(b), 20));
  CHECK(after.size() == 1 && alone.size() == 1);
  if (after.size() != 1 || alone.size() != 1) return;
  CHECK(after[0].generation.tokens == alone[0].generation.tokens && after[0].generation.logprobs == alone[0].generation.logprobs);

  // The first prompt again, after its blocks were evicted.
  GenerationCounters of_third;
  Scheduler third(policy.architecture(), 0, of_third, cpu(pool));
  const auto again = run_alone(scheduler, policy, pool, generation_of(behind(a), 20));
  const auto expected = run_alone(third, policy, pool, generation_of(behind(a), 20));
  CHECK(again.size() == 1 && expected.size() == 1 && again[0].generation.logprobs == expected[0].generation.logprobs);
}

}  // namespace

int main() {
  cancelled_generations_release_their_blocks();
  blocks_below_an_evicted_block_are_not_found();
  return test::finish();
}
