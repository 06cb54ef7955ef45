// Floats on a 64-byte boundary, zero when allocated. A value type: copies copy. Large ones are mapped: the kernel gives zeroed
// huge pages to whichever thread touches them first, where a fill by one thread would take longer than reading a state from disk.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace longhaul {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) { resize(size); }
  AlignedBuffer(const AlignedBuffer& other) : AlignedBuffer(other.size_) {
    if (size_ > 0) std::memcpy(data_, other.data_, size_ * sizeof(float));
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer other) noexcept {
    swap(other);
    return *this;
  }
  ~AlignedBuffer() { release(data_, capacity_); }

  /// New contents, all zero.
  void resize(size_t size) {
    if (size > capacity_) {
      reserve(size);
    } else if (size > 0) {
      std::memset(data_, 0, size * sizeof(float));
    }
    size_ = size;
  }
  /// At least `size` floats whose contents are unspecified; never shrinks. For scratch space.
  float* scratch(size_t size) {
    if (size > size_) {
      reserve(size + size / 4);
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
  }

 private:
  static constexpr std::align_val_t alignment{64};

  static constexpr size_t mapped_from = (size_t{2} << 20) / sizeof(float);

  /// Contents are lost; fresh ones are zero.
  void reserve(size_t size) {
    if (size <= capacity_) return;
    float* fresh = allocate(size);
    release(data_, capacity_);
    data_ = fresh;
    capacity_ = size;
  }

  static float* allocate(size_t size) {
    const size_t bytes = size * sizeof(float);
    if (size < mapped_from) {
      void* fresh = ::operator new[](bytes, alignment);
      return static_cast<float*>(std::memset(fresh, 0, bytes));
    }
    void* fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) throw std::bad_alloc();
    ::madvise(fresh, bytes, MADV_HUGEPAGE);  // advice: small pages are only slower
    return static_cast<float*>(fresh);
  }

  static void release(float* data, size_t capacity) {
    if (capacity < mapped_from) {
      ::operator delete[](data, alignment);
    } else {
      ::munmap(data, capacity * sizeof(float));
    }
  }


  float* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace longhaul
