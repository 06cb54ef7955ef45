// Fuzzes the reader of safetensors files. Each input gives either tensors that lie inside the file, without gaps or
// overlap, or one error that can be logged.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "state/safetensors.h"

using namespace longhaul;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  SafetensorsFile file;
  try {
    file = parse_safetensors({data, data + size});
  } catch (const SafetensorsError& error) {
    MUST(error.what()[0] != '\0');
    return 0;
  }
  const std::uint8_t* begin = file.bytes.data();
  const std::uint8_t* end = begin + file.bytes.size();
  std::vector<std::pair<const std::uint8_t*, const std::uint8_t*>> places;
  for (const auto& [name, tensor] : file.tensors) {
    std::uint64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) {
      MUST(extent >= 0);
      elements *= static_cast<std::uint64_t>(extent);
    }
    MUST(dtype_bytes(tensor.dtype) > 0 && tensor.bytes.size() == elements * dtype_bytes(tensor.dtype));
    if (tensor.bytes.empty()) continue;
    MUST(tensor.bytes.data() >= begin && tensor.bytes.data() + tensor.bytes.size() <= end);
    places.emplace_back(tensor.bytes.data(), tensor.bytes.data() + tensor.bytes.size());
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i) MUST(places[i - 1].second == places[i].first);
  // Reading only the header gives the same result.
  const SafetensorsHeader header = parse_safetensors_header({data, size}, size);
  MUST(header.tensors.size() == file.tensors.size() && header.metadata == file.metadata);
  return 0;
}
