#include "cuda/host/device_digest.h"

#include <stdexcept>

namespace longhaul::cuda {

namespace {

/// An array of the state, which host and device have.
struct SharedArray {
  const std::byte* host;
  std::size_t bytes;
  const std::uint8_t* device;
};

template <class Host, class T>
SharedArray shared(const Host& host, const DeviceArray<T>& device) {
  return {reinterpret_cast<const std::byte*>(host.data()), device.size() * sizeof(T), reinterpret_cast<const std::uint8_t*>(device.data())};
}

const std::uint8_t* on_device(std::span<const std::byte> tensor, std::span<const SharedArray> arrays) {
  for (const SharedArray& array : arrays)
    if (tensor.data() >= array.host && tensor.data() + tensor.size() <= array.host + array.bytes) return array.device + (tensor.data() - array.host);
  throw std::logic_error("the device has no such tensor");
}

}  // namespace

std::vector<LeafDigest> DeviceDigest::hash(const Policy& policy, std::span<const std::span<const std::byte>> tensors, DeviceModel& model,
                                           const DeviceMoments& moments, Stream stream) {
  const Moments& host = policy.moments();
  std::vector<SharedArray> arrays{shared(policy.trained(), model.trained())};
  each_array(host, moments, [&](const auto& host, const auto& device) { arrays.push_back(shared(host, device)); });
  std::vector<DigestPart> parts;
  std::uint64_t total = 0;
  for (const std::span<const std::byte>& tensor : tensors) {
    parts.push_back({on_device(tensor, arrays), total});
    total += tensor.size();
  }
  std::vector<LeafDigest> digests(leaf_count(total));
  std::uint32_t* words = digests_.room(digests.size() * 8);
  leaf_digests({parts_.put(parts, stream), int(parts.size()), total, words}, stream);
  device_copy(reinterpret_cast<std::uint32_t*>(digests.data()), words, digests.size() * 8, stream);
  return digests;
}

}  // namespace longhaul::cuda
