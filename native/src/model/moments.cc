#include "model/moments.h"

#include <algorithm>

namespace longhaul {

const char* name(MomentFormat format) {
  switch (format) {
    case MomentFormat::int8:
      return "int8";
    case MomentFormat::fp32:
      break;
  }
  return "fp32";
}

Moments::Moments(MomentFormat format, size_t size) : format(format), size(size) {
  if (format == MomentFormat::fp32) {
    first.resize(size);
    second.resize(size);
  } else {
    first_codes.resize(size);
    second_codes.resize(size);
    first_scales.resize(blocks());
    second_scales.resize(blocks());
  }
}

void Moments::clear() {
  for (AlignedBuffer* buffer : {&first, &second, &first_scales, &second_scales})
    std::fill_n(buffer->data(), buffer->size(), 0.0f);
  std::fill(first_codes.begin(), first_codes.end(), int8_t{0});
  std::fill(second_codes.begin(), second_codes.end(), uint8_t{0});
}

}  // namespace longhaul
