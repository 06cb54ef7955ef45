// Floats on a 64-byte boundary, zero when allocated. A value type: each copy has its own memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace longhaul {

/// Where a buffer's memory comes from. `mapped`: a large buffer consists of huge pages, which the kernel zeroes and gives to the threads
/// that touch them first; a fill by one thread would take longer than reading the same bytes from disk. Use it for long-lived buffers: a
/// short-lived one would pay for the zeroing each time. `copied`: mapped, and a device copies from and to it: `page_locks`, which
/// touch all pages at once.
enum class BufferMemory { heap, mapped, copied };

/// What a device does with the pages of `copied` buffers that are allocated from then on: it locks them, since it copies several times as
/// fast from and to memory that cannot move. Set while no other thread allocates; nothing by default.
struct PageLocks {
  /// Returns false if it cannot; then copies are slower.
  bool (*lock)(void* data, size_t bytes) noexcept = nullptr;
  void (*unlock)(void* data) noexcept = nullptr;
};
inline PageLocks page_locks;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(BufferMemory memory) : memory_(memory) {}
  explicit AlignedBuffer(size_t size) { resize(size); }
  AlignedBuffer(const AlignedBuffer& other) : memory_(other.memory_) { copy(other); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  /// Reuses its memory if that is large enough, otherwise allocates new memory of its kind. A buffer without memory first takes the kind of
  /// `other`.
  AlignedBuffer& operator=(const AlignedBuffer& other) {
    if (this == &other) return *this;
    if (capacity_ == 0) memory_ = other.memory_;
    copy(other);
    return *this;
  }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~AlignedBuffer() { release(); }

  /// Sets the size and fills with zeros. If memory runs out (std::bad_alloc), the buffer is empty.
  void resize(size_t size) {
    const bool fresh = reserve(size);
    size_ = size;
    if (size > 0 && !(fresh && is_mapped(capacity_))) std::memset(data_, 0, size * sizeof(float));
  }
  /// Room for at least `size` floats; never shrinks. For scratch space: contents are unspecified, but finite in new memory.
  float* scratch(size_t size) {
    if (size > size_) resize(size > exact_from ? size : size + size / 4);
    return data_;
  }

  [[gnu::always_inline]] float* data() { return data_; }
  [[gnu::always_inline]] const float* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<float> span() { return {data_, size_}; }
  std::span<const float> span() const { return {data_, size_}; }

  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(memory_, other.memory_);
    std::swap(locked_, other.locked_);
  }

 private:
  static constexpr std::align_val_t alignment{64};

  /// Smaller buffers come from the heap: mapping and zeroing pages for them costs more than it saves.
  static constexpr size_t mapped_from = (size_t{4} << 20) / sizeof(float);
  /// Scratch space above this size is allocated exactly, as planned (backend/cpu_memory.h). Smaller scratch space gets spare room, which
  /// saves allocations.
  static constexpr size_t exact_from = (size_t{64} << 20) / sizeof(float);

  bool is_mapped(size_t capacity) const { return memory_ != BufferMemory::heap && capacity >= mapped_from; }

  void copy(const AlignedBuffer& other) {
    reserve(other.size_);
    size_ = other.size_;
    if (size_ > 0) std::memcpy(data_, other.data_, size_ * sizeof(float));
  }

  /// Returns true if it allocates: the old contents are lost, and the new ones are unspecified, or zero if the memory is mapped. Frees the
  /// old memory first, since two large buffers may not fit at once.
  bool reserve(size_t size) {
    if (size <= capacity_) return false;
    release();
    const size_t bytes = size * sizeof(float);
    data_ = static_cast<float*>(is_mapped(size) ? map(bytes) : ::operator new[](bytes, alignment));
    capacity_ = size;
    locked_ = memory_ == BufferMemory::copied && is_mapped(size) && page_locks.lock && page_locks.lock(data_, bytes);
    return true;
  }

  static void* map(size_t bytes) {
    void* fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) throw std::bad_alloc();
    ::madvise(fresh, bytes, MADV_HUGEPAGE);  // only advice: small pages work too, but slower
    return fresh;
  }

  void release() noexcept {
    if (locked_) page_locks.unlock(data_);
    locked_ = false;
    if (is_mapped(capacity_)) {
      ::munmap(data_, capacity_ * sizeof(float));
    } else {
      ::operator delete[](data_, alignment);
    }
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

  float* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  BufferMemory memory_ = BufferMemory::heap;
  bool locked_ = false;
};

}  // namespace longhaul
