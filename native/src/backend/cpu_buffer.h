// Memory of passes on the CPU.
#pragma once

#include "base/aligned_buffer.h"
#include "pass/rows.h"

namespace longhaul {

/// Memory that grows to what is asked for, and no further (AlignedBuffer::scratch may add a quarter), and is kept between calls. Contents are
/// unspecified.
template <class T>
class CpuBuffer {
 public:
  T* room(size_t n) {
    const size_t floats = (n * sizeof(T) + sizeof(float) - 1) / sizeof(float);
    if (buffer_.size() < floats) buffer_.resize(floats);
    return data();
  }
  T* rows(int rows, size_t width) { return room(rounded_rows(rows) * width); }
  T* row(int index, size_t width) { return data() + size_t(index) * width; }
  T* data() { return reinterpret_cast<T*>(buffer_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(buffer_.data()); }
  void swap(CpuBuffer& other) noexcept { buffer_.swap(other.buffer_); }

 private:
  AlignedBuffer buffer_{BufferMemory::mapped};
};

}  // namespace longhaul
