// Fuzzes the readers of frames and of the JSON in them. Each input gives either a frame or one error. The arrays of an
// accepted frame lie inside it, and the frame means the same after it is written and read again.
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz.h"
#include "wire/frame.h"

using namespace longhaul;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string error;
  const auto frame = decode_frame({data, data + size}, error);
  MUST(frame.has_value() == error.empty());
  if (!frame) return 0;
  const std::uint8_t* begin = frame->body.data();
  const std::uint8_t* end = begin + frame->body.size();
  std::vector<OutgoingArray> arrays;
  for (const ArrayView& array : frame->arrays) {
    MUST(array.bytes.empty() || (array.bytes.data() >= begin && array.bytes.data() + array.bytes.size() <= end));
    std::uint64_t elements = 1;
    for (const std::int64_t extent : array.shape) {
      MUST(extent >= 0);
      elements *= static_cast<std::uint64_t>(extent);
    }
    MUST(array.bytes.size() == elements * (array.dtype == DType::u8 ? 1 : 4));
    arrays.push_back({array.name, array.dtype, array.shape, array.bytes});
  }
  const auto bytes = encode_frame(frame->id, frame->header, arrays);
  const auto again = decode_frame({bytes.begin() + 4, bytes.end()}, error);
  MUST(again.has_value() && again->id == frame->id && again->arrays.size() == frame->arrays.size());
  if (arrays.empty()) {
    MUST(write_json(again->header, KeyOrder::sorted) == write_json(frame->header, KeyOrder::sorted));
  }
  return 0;
}
