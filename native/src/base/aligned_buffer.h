// Floats on a 64-byte boundary, zero when allocated. A value type: copies copy.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace longhaul {

/// Where a buffer's memory comes from. `mapped`: large ones are zeroed huge pages, given by the kernel to whichever threads touch
/// them first, where a fill by one thread would take longer than reading the same bytes from disk. For what lives long: a buffer
/// that comes and goes would be zeroed each time.
enum class BufferMemory { heap, mapped };

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(BufferMemory memory) : memory_(memory) {}
  explicit AlignedBuffer(size_t size) { resize(size); }
  AlignedBuffer(const AlignedBuffer& other) : memory_(other.memory_) {
    resize(other.size_);
    if (size_ > 0) std::memcpy(data_, other.data_, size_ * sizeof(float));
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer other) noexcept {
    swap(other);
    return *this;
  }
  ~AlignedBuffer() { release(); }

  /// New contents, all zero.
  void resize(size_t size) {
    const bool fresh = reserve(size);
    size_ = size;
    if (size > 0 && !(fresh && is_mapped(capacity_))) std::memset(data_, 0, size * sizeof(float));
  }
  /// At least `size` floats whose contents are unspecified; never shrinks. For scratch space.
  float* scratch(size_t size) {
    if (size > size_) {
      reserve(size + size / 4);
      std::memset(data_, 0, capacity_ * sizeof(float));
      size_ = capacity_;
    }
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
  }

 private:
  static constexpr std::align_val_t alignment{64};

  /// Below it a page of its own, and the zeroing of all of it, cost more than they save.
  static constexpr size_t mapped_from = (size_t{4} << 20) / sizeof(float);

  bool is_mapped(size_t capacity) const { return memory_ == BufferMemory::mapped && capacity >= mapped_from; }

  /// Contents are lost where it gives fresh memory, and then unspecified, or zero where that is mapped.
  bool reserve(size_t size) {
    if (size <= capacity_) return false;
    const size_t bytes = size * sizeof(float);
    float* fresh = static_cast<float*>(is_mapped(size) ? map(bytes) : ::operator new[](bytes, alignment));
    release();
    data_ = fresh;
    capacity_ = size;
    return true;
  }

  static void* map(size_t bytes) {
    void* fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) throw std::bad_alloc();
    ::madvise(fresh, bytes, MADV_HUGEPAGE);  // advice: small pages are only slower
    return fresh;
  }

  void release() {
    if (is_mapped(capacity_)) {
      ::munmap(data_, capacity_ * sizeof(float));
    } else {
      ::operator delete[](data_, alignment);
    }
  }

  float* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  BufferMemory memory_ = BufferMemory::heap;
};

}  // namespace longhaul
