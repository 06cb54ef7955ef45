#include "device_choice.h"

#include <cstdlib>
#include <new>
#include <string>

#include "backend/cpu_backend.h"
#include "serve/log.h"
#include "serve/protocol/request.h"
#include "serve/selftest.h"

#if defined(LONGHAUL_CUDA) || defined(LONGHAUL_EMULATED_DEVICE)
#define LONGHAUL_HAS_DEVICE
#include "cuda/cuda_backend.h"
#include "cuda/device/properties.h"
#endif

namespace longhaul {
namespace {

#if defined(LONGHAUL_EMULATED_DEVICE)
constexpr const char* device_kind = "emulated";
#else
constexpr const char* device_kind = "cuda";
#endif

std::string chosen_kind() {
  const char* named = std::getenv("LONGHAUL_DEVICE");
  if (named == nullptr || *named == 0) {
#if defined(LONGHAUL_HAS_DEVICE)
    const std::string missing = cuda::device_absence();
    if (missing.empty()) return device_kind;
    log_line("warn", "computes on the CPU, though it is built for GPUs: " + missing);
    return "cpu";
#else
    return "cpu";
#endif
  }
  const std::string kind = named;
  if (kind != "cpu" && kind != device_kind)
    throw RequestError("DeviceUnavailable", "LONGHAUL_DEVICE is " + kind + "; it must be cpu or " + device_kind);
  return kind;
}

#if defined(LONGHAUL_HAS_DEVICE)
std::unique_ptr<Backend> make_device_backend(ThreadPool& pool) {
  const auto unavailable = [](const std::string& why) {
    return RequestError("DeviceUnavailable", why + ". LONGHAUL_DEVICE=cpu computes on the CPU");
  };
  try {
    cuda::require_usable_device();
    require_oracle_bits(*std::make_unique<cuda::CudaBackend>(), pool);
    return std::make_unique<cuda::CudaBackend>();
  } catch (const RequestError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw unavailable("the GPU has no memory left for its first check: another process may have taken it");
  } catch (const std::runtime_error& error) {
    throw unavailable(error.what());
  }
}
#else
std::unique_ptr<Backend> make_device_backend(ThreadPool&) {
  throw RequestError("DeviceUnavailable", "LONGHAUL_DEVICE is cuda, but this engine is built for CPUs alone: build it for GPUs with "
                                          "LONGHAUL_CUDA=1 npm run build:native");
}
#endif

}  // namespace

const Numerics& chosen_numerics() {
  const char* named = std::getenv("LONGHAUL_NUMERICS");
  if (named == nullptr || *named == 0) return cpu_numerics;
  for (const Numerics* numerics : {&cpu_numerics, &bf16_numerics})
    if (std::string(named) == numerics->name) return *numerics;
  throw RequestError("DeviceUnavailable", "LONGHAUL_NUMERICS is " + std::string(named) + "; it must be " + cpu_numerics.name + " or " +
                                              bf16_numerics.name);
}

std::unique_ptr<Backend> make_chosen_backend(ThreadPool& pool) {
  const std::string kind = chosen_kind();
  const Numerics& numerics = chosen_numerics();
  if (kind == "cpu") return numerics.oracle.make_backend(pool);
  if (&numerics != &cpu_numerics)
    throw RequestError("DeviceUnavailable", std::string("LONGHAUL_NUMERICS is ") + numerics.name +
                                                ", and this engine has no GPU kernels for it yet: LONGHAUL_DEVICE=cpu computes it on the CPU");
  auto backend = make_device_backend(pool);
  const DeviceInfo device = backend->device();
  log_line("info", "computes on " + device.name, {{"device", device.kind}, {"memory_bytes", std::uint64_t{device.memory_bytes}}});
  return backend;
}

}  // namespace longhaul
