// Floats on a 64-byte boundary, zero when allocated. A value type: copies copy.
#pragma once

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
  ~AlignedBuffer() { ::operator delete[](data_, alignment); }

  /// New contents, all zero.
  void resize(size_t size) {
    reserve(size);
    size_ = size;
    if (size > 0) std::memset(data_, 0, size * sizeof(float));
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
  }

 private:
  static constexpr std::align_val_t alignment{64};

  void reserve(size_t size) {
    if (size <= capacity_) return;
    float* fresh = static_cast<float*>(::operator new[](size * sizeof(float), alignment));
    ::operator delete[](data_, alignment);
    data_ = fresh;
    capacity_ = size;
  }

  float* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace longhaul
