// One frame of the protocol: id, JSON header, raw little-endian arrays (docs/engine-protocol.md, "Frames").
// defines: DType, ArrayView, Frame, raw_bytes, OutgoingArray, decode_frame, encode_frame
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/json.h"

namespace longhaul {

inline constexpr std::size_t max_frame_bytes = std::size_t{256} << 20;

enum class DType { i32, f32, u8 };

struct ArrayView {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;  // view of Frame::body; may be unaligned
};

struct Frame {
  std::uint32_t id = 0;
  Json header;
  std::vector<std::uint8_t> body;  // the frame without its length field
  std::vector<ArrayView> arrays;

  const ArrayView* array(std::string_view name) const;
};

template <class T>
std::span<const std::uint8_t> raw_bytes(std::span<const T> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

struct OutgoingArray {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;
};

// `body` is the frame without its length field. On failure returns nothing, and `error` says what is wrong.
std::optional<Frame> decode_frame(std::vector<std::uint8_t> body, std::string& error);

// Returns the whole frame with its length field. Throws std::length_error if it would exceed max_frame_bytes.
std::vector<std::uint8_t> encode_frame(std::uint32_t id, Json header, std::span<const OutgoingArray> arrays = {});

}  // namespace longhaul
