// Streams and memory of a GPU. Only nvcc compiles this file; emulated/memory.cc has the emulated device's.
#include "cuda/device/device.h"
#include "cuda/device/properties.h"

#include <mutex>
#include <new>
#include <unordered_map>

namespace longhaul::cuda {

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  return stream;
}

// Called by destructors, as free_device_bytes: an error of an earlier kernel, which these return too, is device_sync's to throw.
void free_stream(Stream stream) { cudaStreamDestroy(stream); }

namespace {

/// What this process has allocated: the driver's figures also count other processes.
/// (Never destroyed, since arrays may be freed while the process ends.)
auto& sizes_lock = *new std::mutex;
auto& sizes = *new std::unordered_map<void*, std::size_t>;

std::size_t allocated() {
  const std::lock_guard lock(sizes_lock);
  std::size_t bytes = 0;
  for (const auto& [p, size] : sizes) bytes += size;
  return bytes;
}

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

/// Why there is no device, and what mends it.
std::string absence(cudaError_t error) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0)
    return "there is no NVIDIA driver that this process can load: install one, or let the container or sandbox see it (libcuda.so.1 and "
           "/dev/nvidia*)";
  if (error == cudaErrorInsufficientDriver)
    return "the NVIDIA driver is for CUDA " + version_text(driver) + ", and this engine needs " + version_text(CUDART_VERSION) +
           ": install a newer driver";
  if (error == cudaSuccess || error == cudaErrorNoDevice)
    return "the NVIDIA driver shows no GPU: CUDA_VISIBLE_DEVICES, the container or the sandbox may hide it (/dev/nvidia*, /dev/nvidia-uvm)";
  return std::string("the NVIDIA driver does not start: ") + cudaGetErrorString(error);
}

}  // namespace

std::string device_absence() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (counted != cudaSuccess || count == 0) return absence(counted);
  cudaDeviceProp properties;
  const cudaError_t known = cudaGetDeviceProperties(&properties, 0);
  cudaGetLastError();
  if (known != cudaSuccess) return absence(known);
  if (properties.major >= 8) return "";
  return std::string(properties.name) + " has compute capability " + std::to_string(properties.major) + "." + std::to_string(properties.minor) +
         "; the engine needs 8.0 or newer";
}

DeviceMemory device_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "device memory");
  return {free, allocated()};
}

void require_usable_device() {
  const std::string missing = device_absence();
  if (!missing.empty()) throw std::runtime_error(missing);
  const std::string name = device_properties().name;
  const cudaError_t opened = cudaFree(nullptr);
  if (opened == cudaErrorDevicesUnavailable)
    throw std::runtime_error(name + " is in the exclusive use of another process: end it, or set the GPU's compute mode to default");
  check(opened, name.c_str());
}

DeviceProperties device_properties() {
  int device = 0;
  check(cudaGetDevice(&device), "device");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "device");
  return {"cuda", properties.name, properties.totalGlobalMem};
}

std::size_t most_shared_bytes() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory");
  return std::size_t(bytes);
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
  const std::lock_guard lock(sizes_lock);
  sizes[p] = bytes;
  return p;
}

void free_device_bytes(void* p) {
  cudaFree(p);
  const std::lock_guard lock(sizes_lock);
  sizes.erase(p);
}

void copy_device_bytes(void* to, const void* from, size_t bytes, Stream stream) {
  if (!stream) throw std::runtime_error("device_copy on a null stream");
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "device_copy");
  // The host's memory may be read, written or freed by the caller from now on.
  check(cudaStreamSynchronize(stream), "device_copy");
}

bool lock_host_pages(void* data, size_t bytes) noexcept {
  if (cudaHostRegister(data, bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
  cudaGetLastError();  // or the next launch would report it
  return false;
}

void unlock_host_pages(void* data) noexcept {
  if (cudaHostUnregister(data) != cudaSuccess) cudaGetLastError();
}

void zero_device_bytes(void* p, size_t bytes, Stream stream) {
  if (!stream) throw std::runtime_error("device_zero on a null stream");
  if (bytes == 0) return;
  check(cudaMemsetAsync(p, 0, bytes, stream), "device_zero");
}

}  // namespace longhaul::cuda
