// Streams and memory of a GPU. Only nvcc compiles this file; emulated/memory.cc has the emulated device's.
#include "cuda/device/device.h"
#include "cuda/device/properties.h"

namespace longhaul::cuda {

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  return stream;
}

void free_stream(Stream stream) { check(cudaStreamDestroy(stream), "free_stream"); }

DeviceProperties device_properties() {
  int device = 0;
  check(cudaGetDevice(&device), "device");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "device");
  return {"cuda", properties.name, properties.totalGlobalMem};
}

void device_sync() { check(cudaDeviceSynchronize(), "device_sync"); }

void set_schedule(uint64_t) {}

void* allocate_device_bytes(size_t bytes) {
  void* p = nullptr;
  check(cudaMalloc(&p, bytes), "device memory");
  return p;
}

// Called by destructors: an error of an earlier kernel, which cudaFree returns too, is device_sync's to throw.
void free_device_bytes(void* p) { cudaFree(p); }

void copy_device_bytes(void* to, const void* from, size_t bytes, Stream stream) {
  if (!stream) throw std::runtime_error("device_copy on a null stream");
  // With pageable host memory this call returns only when that memory has been read or written.
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "device_copy");
}

void zero_device_bytes(void* p, size_t bytes, Stream stream) {
  if (!stream) throw std::runtime_error("device_zero on a null stream");
  check(cudaMemsetAsync(p, 0, bytes, stream), "device_zero");
}

}  // namespace longhaul::cuda
