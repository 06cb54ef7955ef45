// Device memory, for the host.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/device/stream.h"

namespace longhaul::cuda {

void* allocate_device_bytes(size_t bytes);
void free_device_bytes(void* p);
void copy_device_bytes(void* to, const void* from, size_t bytes, Stream stream);
void zero_device_bytes(void* p, size_t bytes, Stream stream);

/// Locks the host's pages, so that the device copies from and to them by itself. Returns false if the driver does not.
bool lock_host_pages(void* data, size_t bytes) noexcept;
void unlock_host_pages(void* data) noexcept;

/// n values, aligned to 256 bytes. The emulated device fills them with NaN (bytes 0xFF). Throws where memory is short.
template <class T>
T* device_alloc(size_t n) {
  static_assert(std::is_trivially_copyable_v<T>);
  return static_cast<T*>(allocate_device_bytes(n * sizeof(T)));
}

template <class T>
void device_free(T* p) {
  free_device_bytes(const_cast<std::remove_const_t<T>*>(p));
}

/// Copies n values after the stream's earlier work. Either side may be host memory: its values are then read or written on return.
template <class T>
void device_copy(T* to, const T* from, size_t n, Stream stream) {
  static_assert(std::is_trivially_copyable_v<T>);
  copy_device_bytes(to, from, n * sizeof(T), stream);
}

/// Sets n values to zero after the stream's earlier work.
template <class T>
void device_zero(T* p, size_t n, Stream stream) {
  static_assert(std::is_trivially_copyable_v<T>);
  zero_device_bytes(p, n * sizeof(T), stream);
}

/// An array in device memory, which it owns.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size = 0) : data_(size ? device_alloc<T>(size) : nullptr), size_(size) {}
  DeviceArray(const std::vector<T>& values, Stream stream) : DeviceArray(values.size()) {
    device_copy(data_, values.data(), size_, stream);
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr, other.size_ = 0; }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() {
    if (data_) device_free(data_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

  /// The values after the stream's earlier work.
  std::vector<T> host(Stream stream) const {
    std::vector<T> values(size_);
    device_copy(values.data(), data_, size_, stream);
    return values;
  }

 private:
  T* data_;
  size_t size_;
};

}  // namespace longhaul::cuda
