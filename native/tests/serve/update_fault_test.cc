// An update is all or nothing, whichever of its allocations fails: the engine continues with the old state or with the next one, and it
// never reports the digest of one state while it holds the weights of another (R12).
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "support/checks.h"
#include "support/forked_engine.h"

namespace {

// Shared memory with the engine's process. From `arm` on, the allocations of the engine's thread are counted, and one of them fails.
struct AllocationFaults {
  std::atomic<bool> armed{false};
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> failing{-1};

  void arm(std::int64_t which) {
    count = 0;
    failing = which;
    armed = true;
  }
};

AllocationFaults* faults = nullptr;
thread_local bool watched = false;

void* allocate(std::size_t size, std::size_t alignment) {
  if (watched && faults->armed && faults->count++ == faults->failing) throw std::bad_alloc();
  void* memory = std::aligned_alloc(alignment, (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) { return allocate(size, static_cast<std::size_t>(alignment)); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return allocate(size, static_cast<std::size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

using namespace longhaul;
using namespace longhaul::test;

namespace {

const auto folder = std::filesystem::temp_directory_path() / ("longhaul-update-fault-" + std::to_string(getpid()));
constexpr int mini_batch_count = 2;

// Allocations that fail one after the other: all of the first and last ones, and one of `stride` between. An emulated device takes longer.
#ifdef LONGHAUL_TEST_ON_DEVICE
constexpr std::int64_t first_ones = 10, last_ones = 40, stride = 97;
#else
constexpr std::int64_t first_ones = 40, last_ones = 60, stride = 11;
#endif

std::unique_ptr<ForkedEngine> start_engine() {
  return std::make_unique<ForkedEngine>(EngineOptions{.prepare = [] { watched = true; }});
}

// sha256 of the saved state file. It shows what is in memory, whatever digest the engine reports.
std::string saved_sha256(ForkedEngine& engine, const std::string& state) {
  const Answer answer = engine.call(save_request(state, (folder / "state.safetensors").string()));
  if (!answer.ok()) return answer.error();
  std::ifstream file(folder / "state.safetensors", std::ios::binary);
  return sha256_hex(std::string(std::istreambuf_iterator<char>(file), {}));
}

struct Reference {
  std::string before, before_sha256;
  std::string after, after_sha256;
  std::string again;  // digest of the state after a second update
  std::int64_t allocations = 0;
  WrittenBatch first, second;
};

Reference undisturbed() {
  Reference known;
  const auto engine = start_engine();
  const OwnedBatch batch = group_batch(tiny_architecture().vocab_size, mini_batch_count, 2, 9, 2, 6);
  known.before = engine->start();
  known.before_sha256 = saved_sha256(*engine, known.before);
  known.first = write_batch((folder / "first").string(), batch, known.before, mini_batch_count);
  faults->arm(-1);
  known.after = engine->call(update_request(known.before, known.first, mini_batch_count, "first")).state();
  known.allocations = faults->count;
  faults->armed = false;
  known.after_sha256 = saved_sha256(*engine, known.after);
  known.second = write_batch((folder / "second").string(), batch, known.after, mini_batch_count);
  known.again = engine->call(update_request(known.after, known.second, mini_batch_count, "second")).state();
  CHECK(known.before != known.after && known.after != known.again && known.again.size() == 64);
  return known;
}

// Runs the first update with its `which`-th allocation failing, then the first update again, then the second one.
void fail_and_go_on(ForkedEngine& engine, const Reference& known, std::int64_t which) {
  faults->arm(which);
  const Answer hit = engine.call(update_request(known.before, known.first, mini_batch_count, "first"));
  faults->armed = false;
  const std::string sha256 = hit.alive ? saved_sha256(engine, hit.state()) : "";
  const bool old = hit.state() == known.before && sha256 == known.before_sha256;
  const bool next = hit.state() == known.after && sha256 == known.after_sha256;
  if (!old && !next) std::printf("allocation %lld: %s\n", static_cast<long long>(which), hit.error().c_str());
  CHECK(old || next);
  CHECK(hit.ok() ? next : hit.error().starts_with("OutOfMemory"));
  const Answer first = engine.call(update_request(known.before, known.first, mini_batch_count, "first"));
  CHECK(first.ok() && first.state() == known.after);
  const Answer second = engine.call(update_request(known.after, known.second, mini_batch_count, "second"));
  CHECK(second.ok() && second.state() == known.again);
}

void any_allocation_of_an_update_may_fail() {
  const Reference known = undisturbed();
  std::printf("an update makes %lld allocations\n", static_cast<long long>(known.allocations));
  std::vector<std::int64_t> places;
  for (std::int64_t k = 0; k < known.allocations;) {
    places.push_back(k);
    const std::int64_t last = known.allocations - last_ones;
    k = k < first_ones || k >= last ? k + 1 : std::min(k + stride, last);
  }
  for (const std::int64_t which : places) {
    const auto engine = start_engine();
    CHECK(engine->start() == known.before);
    fail_and_go_on(*engine, known, which);
    if (test::failures > 5) break;
  }
}

}  // namespace

int main() {
  void* memory = mmap(nullptr, sizeof(AllocationFaults), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  faults = new (memory) AllocationFaults;
  std::filesystem::create_directory(folder);
  any_allocation_of_an_update_may_fail();
  std::filesystem::remove_all(folder);
  return test::finish();
}
