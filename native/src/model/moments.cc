#include "model/moments.h"

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

}  // namespace longhaul
