// Streams and memory of a GPU. Only nvcc compiles this file; emulated/memory.cc has the emulated device's.
#include "cuda/device/device.h"
#include "cuda/device/properties.h"

#include <new>

namespace longhaul::cuda {

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  return stream;
}

// Called by destructors, as free_device_bytes: an error of an earlier kernel, which these return too, is device_sync's to throw.
void free_stream(Stream stream) { cudaStreamDestroy(stream); }

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
  const cudaError_t error = cudaMalloc(&p, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next launch would report it
    throw std::bad_alloc();
  }
  check(error, "device memory");
  return p;
}

void free_device_bytes(void* p) { cudaFree(p); }

void copy_device_bytes(void* to, const void* from, size_t bytes, Stream stream) {
  if (!stream) throw std::runtime_error("device_copy on a null stream");
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "device_copy");
  // The host's memory may be read, written or freed by the caller from now on.
  check(cudaStreamSynchronize(stream), "device_copy");
}

void zero_device_bytes(void* p, size_t bytes, Stream stream) {
  if (!stream) throw std::runtime_error("device_zero on a null stream");
  if (bytes == 0) return;
  check(cudaMemsetAsync(p, 0, bytes, stream), "device_zero");
}

}  // namespace longhaul::cuda
