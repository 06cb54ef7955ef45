#include "wire/frame.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

static_assert(std::endian::native == std::endian::little, "frames and state files are little-endian");

namespace longhaul {
namespace {

std::uint32_t read_u32(const std::uint8_t* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void append_u32(std::vector<std::uint8_t>& out, std::uint32_t value) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

std::size_t element_bytes(DType dtype) { return dtype == DType::u8 ? 1 : 4; }

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::i32: return "I32";
    case DType::f32: return "F32";
    case DType::u8: return "U8";
  }
  return "";
}

std::optional<DType> parse_dtype(const std::string& name) {
  if (name == "I32") return DType::i32;
  if (name == "F32") return DType::f32;
  if (name == "U8") return DType::u8;
  return std::nullopt;
}

// Reads one entry of `header.arrays` and removes its bytes from the front of `rest`.
bool take_array(const Json& entry, std::span<const std::uint8_t>& rest, ArrayView& view, std::string& error) {
  const Json* name = entry.find("name");
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  if (name == nullptr || name->string() == nullptr || dtype == nullptr || dtype->string() == nullptr ||
      shape == nullptr || shape->array() == nullptr) {
    error = "an array needs name, dtype and shape";
    return false;
  }
  view.name = *name->string();
  const auto known = parse_dtype(*dtype->string());
  if (!known) {
    error = "array " + view.name + ": unknown dtype " + *dtype->string();
    return false;
  }
  view.dtype = *known;
  std::size_t bytes = element_bytes(*known);
  for (const Json& extent : *shape->array()) {
    const double* number = extent.number();
    if (number == nullptr || *number < 0 || *number > max_frame_bytes || *number != std::floor(*number)) {
      error = "array " + view.name + ": broken shape";
      return false;
    }
    view.shape.push_back(static_cast<std::int64_t>(*number));
    bytes *= static_cast<std::size_t>(*number);  // ≤ 2^56, since both factors are bounded
    if (bytes > max_frame_bytes) bytes = max_frame_bytes + 1;
  }
  if (bytes > rest.size()) {
    error = "array " + view.name + " does not fit the frame";
    return false;
  }
  view.bytes = rest.first(bytes);
  rest = rest.subspan(bytes);
  return true;
}

}  // namespace

const ArrayView* Frame::array(std::string_view name) const {
  for (const ArrayView& view : arrays) {
    if (view.name == name) return &view;
  }
  return nullptr;
}

std::optional<Frame> decode_frame(std::vector<std::uint8_t> body, std::string& error) {
  if (body.size() < 8) {
    error = "shorter than id and header length";
    return std::nullopt;
  }
  Frame frame;
  frame.body = std::move(body);
  frame.id = read_u32(frame.body.data());
  if (frame.id == 0) {
    error = "id 0 is not used";
    return std::nullopt;
  }
  const std::size_t header_bytes = read_u32(frame.body.data() + 4);
  if (header_bytes > frame.body.size() - 8) {
    error = "the header does not fit the frame";
    return std::nullopt;
  }
  std::string problem;
  auto header = parse_json({reinterpret_cast<const char*>(frame.body.data()) + 8, header_bytes}, problem);
  if (!header || header->object() == nullptr) {
    error = "broken header: " + (problem.empty() ? "not an object" : problem);
    return std::nullopt;
  }
  frame.header = std::move(*header);
  std::span<const std::uint8_t> rest(frame.body);
  rest = rest.subspan(8 + header_bytes);
  if (const Json* arrays = frame.header.find("arrays")) {
    if (arrays->array() == nullptr) {
      error = "arrays is not a list";
      return std::nullopt;
    }
    for (const Json& entry : *arrays->array()) {
      ArrayView view{};
      if (!take_array(entry, rest, view, error)) return std::nullopt;
      frame.arrays.push_back(std::move(view));
    }
  }
  if (!rest.empty()) {
    error = std::to_string(rest.size()) + " bytes after the last array";
    return std::nullopt;
  }
  return frame;
}

std::vector<std::uint8_t> encode_frame(std::uint32_t id, Json header, std::span<const OutgoingArray> arrays) {
  std::size_t payload = 0;
  if (!arrays.empty()) {
    Json::Array entries;
    for (const OutgoingArray& array : arrays) {
      Json::Array shape;
      for (const std::int64_t extent : array.shape) shape.emplace_back(extent);
      Json entry;
      entry.set("name", array.name);
      entry.set("dtype", dtype_name(array.dtype));
      entry.set("shape", std::move(shape));
      entries.push_back(std::move(entry));
      payload += array.bytes.size();
    }
    header.set("arrays", std::move(entries));
  }
  const std::string text = write_json(header);
  const std::size_t length = 8 + text.size() + payload;
  if (length > max_frame_bytes) throw std::length_error("a reply of " + std::to_string(length) + " bytes is too large");
  std::vector<std::uint8_t> out;
  out.reserve(4 + length);
  append_u32(out, static_cast<std::uint32_t>(length));
  append_u32(out, id);
  append_u32(out, static_cast<std::uint32_t>(text.size()));
  out.insert(out.end(), text.begin(), text.end());
  for (const OutgoingArray& array : arrays) out.insert(out.end(), array.bytes.begin(), array.bytes.end());
  return out;
}

}  // namespace longhaul
