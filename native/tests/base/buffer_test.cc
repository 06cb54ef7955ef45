#include "base/aligned_buffer.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "support/check.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

std::set<void*> locked;
size_t most_locked = 0;

bool lock(void* data, size_t) noexcept {
  if (!locked.insert(data).second) std::abort();
  most_locked = std::max(most_locked, locked.size());
  return true;
}

void unlock(void* data) noexcept {
  if (locked.erase(data) == 0) std::abort();
}

AlignedBuffer filled(size_t size, float value, BufferMemory memory = BufferMemory::heap) {
  AlignedBuffer buffer(memory);
  buffer.resize(size);
  std::fill_n(buffer.data(), size, value);
  return buffer;
}

bool holds(const AlignedBuffer& buffer, size_t size, float value) {
  return buffer.size() == size && std::all_of(buffer.span().begin(), buffer.span().end(), [&](float x) { return x == value; });
}

constexpr size_t large = (size_t{5} << 20) / sizeof(float);  // large enough to be mapped, if the buffer asks for that

void assignment_keeps_the_memory() {
  for (const BufferMemory memory : {BufferMemory::heap, BufferMemory::mapped, BufferMemory::copied})
    for (const size_t size : {size_t{100}, large}) {
      AlignedBuffer target = filled(size, 1, memory);
      const float* place = target.data();
      const AlignedBuffer same = filled(size, 2, memory), smaller = filled(size / 2, 3, memory), other = filled(size, 4);
      target = same;
      check(target.data() == place && holds(target, size, 2), "assignment of the same size");
      target = smaller;
      check(target.data() == place && holds(target, size / 2, 3), "assignment of a smaller one");
      target = other;
      check(target.data() == place && holds(target, size, 4), "assignment from another kind of memory");
      check(holds(same, size, 2) && holds(smaller, size / 2, 3), "the sources keep their values");
      const AlignedBuffer& alias = target;
      target = alias;
      check(holds(target, size, 4), "assignment to itself");
    }
}

void larger_values_and_copies_arrive() {
  AlignedBuffer target = filled(10, 1);
  const AlignedBuffer source = filled(large, 2, BufferMemory::mapped);
  target = source;
  check(holds(target, large, 2), "assignment of a larger one");
  AlignedBuffer copy(source), moved(std::move(copy));
  check(holds(moved, large, 2), "copy, moved");
  AlignedBuffer empty;
  target = empty;
  check_equal(target.size(), size_t{0}, "size after assignment of nothing");
  target = std::move(moved);
  check(holds(target, large, 2), "move assignment");
}

void resize_zeroes() {
  for (const BufferMemory memory : {BufferMemory::heap, BufferMemory::mapped, BufferMemory::copied})
    for (const size_t size : {size_t{100}, large}) {
      AlignedBuffer buffer = filled(size, 1, memory);
      buffer.resize(size / 2);
      check(holds(buffer, size / 2, 0), "resized to less");
      buffer.resize(size + 3);
      check(holds(buffer, size + 3, 0), "resized to more");
      check_equal(reinterpret_cast<uintptr_t>(buffer.data()) % 64, uintptr_t{0}, "address modulo 64");
    }
}

void small_scratch_grows_with_spare_room_and_large_scratch_exactly() {
  AlignedBuffer small;
  const float* first = small.scratch(1000);
  check(small.scratch(1200) == first && small.scratch(10) == first, "small scratch has room to grow, and stays");
  check(small.size() >= 1200, "size of small scratch");
  AlignedBuffer huge(BufferMemory::mapped);
  const size_t size = (size_t{65} << 20) / sizeof(float);
  huge.scratch(size);
  check_equal(huge.size(), size, "size of large scratch");
}

void all_locks_are_undone() { check(locked.empty() && most_locked > 0, "no page stays locked, and some were"); }

}  // namespace

int main() {
  page_locks = {lock, unlock};
  return run({{"assignment keeps the memory", assignment_keeps_the_memory},
              {"larger values and copies arrive", larger_values_and_copies_arrive},
              {"resize zeroes", resize_zeroes},
              {"small scratch grows with spare room, and large scratch exactly", small_scratch_grows_with_spare_room_and_large_scratch_exactly},
              {"all locks are undone", all_locks_are_undone}});
}
