// Device memory that grows to what is asked for and is kept between calls.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "cuda/device/memory.h"

namespace longhaul::cuda {

template <class T>
class Buffer {
 public:
  /// Room for at least n values; contents are unspecified.
  T* room(size_t n) {
    if (array_.size() < n) {
      array_ = DeviceArray<T>();  // frees the old room before the new one is taken
      array_ = DeviceArray<T>(n);
    }
    return array_.data();
  }
  T* rows(int rows, size_t width) { return room(size_t(rows) * width); }
  T* row(int index, size_t width) { return array_.data() + size_t(index) * width; }

  T* zeros(size_t n, Stream stream) {
    T* values = room(n);
    device_zero(values, n, stream);
    return values;
  }

  T* put(std::span<const T> values, Stream stream) {
    T* to = room(values.size());
    device_copy(to, values.data(), values.size(), stream);
    return to;
  }
  T* put(const std::vector<T>& values, Stream stream) { return put(std::span<const T>(values), stream); }

  T* data() { return array_.data(); }
  const T* data() const { return array_.data(); }

  void swap(Buffer& other) noexcept { std::swap(array_, other.array_); }

 private:
  DeviceArray<T> array_;
};

}  // namespace longhaul::cuda
