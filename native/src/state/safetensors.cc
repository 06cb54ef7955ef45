#include "state/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "wire/json.h"

namespace longhaul {
namespace {

constexpr std::uint64_t max_header_bytes = std::uint64_t{100} << 20;
constexpr std::size_t length_bytes = 8;
// Bytes per write; progress is reported between writes.
constexpr std::size_t piece_bytes = std::size_t{8} << 20;

// A whole number in [0, 2^53], which a double holds exactly.
std::uint64_t whole_number(const Json& value, const std::string& where) {
  const double* number = value.number();
  if (number == nullptr || *number < 0 || *number > 9007199254740992.0 || *number != std::floor(*number)) {
    throw SafetensorsError(where + " is not a whole number");
  }
  return static_cast<std::uint64_t>(*number);
}

FileTensor read_place(const std::string& name, const Json& entry, std::uint64_t data_size) {
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  const Json* offsets = entry.find("data_offsets");
  if (dtype == nullptr || dtype->string() == nullptr || shape == nullptr || shape->array() == nullptr ||
      offsets == nullptr || offsets->array() == nullptr || offsets->array()->size() != 2) {
    throw SafetensorsError("tensor " + name + " needs dtype, shape and two data_offsets");
  }
  FileTensor place;
  place.dtype = *dtype->string();
  std::uint64_t bytes = dtype_bytes(place.dtype);
  if (bytes == 0) {
    throw SafetensorsError("tensor " + name + " has dtype " + place.dtype + "; F32, F16, BF16, I32, I8 and U8 are known");
  }
  for (const Json& item : *shape->array()) {
    const std::uint64_t extent = whole_number(item, "shape of tensor " + name);
    if (extent != 0 && bytes > UINT64_MAX / extent) throw SafetensorsError("shape of tensor " + name + " overflows");
    bytes *= extent;
    place.shape.push_back(static_cast<std::int64_t>(extent));
  }
  place.begin = whole_number((*offsets->array())[0], "data_offsets of tensor " + name);
  place.end = whole_number((*offsets->array())[1], "data_offsets of tensor " + name);
  if (place.begin > place.end || place.end > data_size) {
    throw SafetensorsError("tensor " + name + " is outside the file: data_offsets [" + std::to_string(place.begin) + ", " +
                           std::to_string(place.end) + "], but " + std::to_string(data_size) + " bytes follow the header");
  }
  if (place.end - place.begin != bytes) {
    throw SafetensorsError("tensor " + name + ": data_offsets do not fit its shape: " +
                           std::to_string(place.end - place.begin) + " bytes, and " +
                           describe_tensor(place.dtype, place.shape) + " takes " + std::to_string(bytes));
  }
  return place;
}

void check_contiguous(const SafetensorsHeader& header, std::uint64_t data_size) {
  struct Extent {
    std::uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Extent> extents;
  for (const auto& [name, place] : header.tensors) extents.push_back({place.begin, place.end, &name});
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t at = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != at) {
      throw SafetensorsError("tensors " + std::string(extent.begin < at ? "overlap" : "leave a gap") + " at byte " +
                             std::to_string(at) + ": tensor " + *extent.name + " begins at " + std::to_string(extent.begin));
    }
    at = extent.end;
  }
  if (at != data_size) throw SafetensorsError(std::to_string(data_size - at) + " bytes do not belong to any tensor");
}

// Length of the header, from the first eight bytes.
std::uint64_t header_length(const std::uint8_t* beginning, std::uint64_t file_size) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, beginning, sizeof bytes);
  if (bytes > max_header_bytes || bytes > file_size - length_bytes) {
    throw SafetensorsError("header of " + std::to_string(bytes) + " bytes does not fit the file of " +
                           std::to_string(file_size) + " bytes");
  }
  return bytes;
}

SafetensorsHeader parse_header(std::string_view text, std::uint64_t file_size) {
  SafetensorsHeader header;
  header.data_begin = length_bytes + text.size();
  const std::uint64_t data_size = file_size - header.data_begin;
  std::string error;
  const auto json = parse_json(text, error);
  if (!json) throw SafetensorsError("broken header: " + error);
  if (json->object() == nullptr) throw SafetensorsError("the header is not an object");
  for (const auto& [name, entry] : *json->object()) {
    if (name == "__metadata__") {
      if (entry.object() == nullptr) throw SafetensorsError("__metadata__ is not an object");
      for (const auto& [key, value] : *entry.object()) {
        if (value.string() == nullptr) throw SafetensorsError("__metadata__." + key + " is not a string");
        header.metadata[key] = *value.string();
      }
      continue;
    }
    header.tensors[name] = read_place(name, entry, data_size);
  }
  check_contiguous(header, data_size);
  return header;
}

void check_holds_length(std::uint64_t file_size) {
  if (file_size < length_bytes) {
    throw SafetensorsError("shorter than a header length: " + std::to_string(file_size) + " bytes");
  }
}

}  // namespace

std::size_t dtype_bytes(std::string_view dtype) {
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F16" || dtype == "BF16") return 2;
  if (dtype == "I8" || dtype == "U8") return 1;
  return 0;
}

std::string describe_tensor(std::string_view dtype, std::span<const std::int64_t> shape) {
  std::string text(dtype);
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  check_holds_length(file.size());
  std::uint8_t length[length_bytes];
  file.read(length, sizeof length, 0);
  std::string text(header_length(length, file.size()), '\0');
  file.read(text.data(), text.size(), length_bytes);
  return parse_header(text, file.size());
}

SafetensorsHeader parse_safetensors_header(std::span<const std::uint8_t> beginning, std::uint64_t file_size) {
  check_holds_length(std::min<std::uint64_t>(file_size, beginning.size()));
  const std::uint64_t length = header_length(beginning.data(), file_size);
  if (length > beginning.size() - length_bytes) {
    throw SafetensorsError("header of " + std::to_string(length) + " bytes; only " +
                           std::to_string(beginning.size() - length_bytes) + " of them are present");
  }
  return parse_header({reinterpret_cast<const char*>(beginning.data()) + length_bytes, length}, file_size);
}

SafetensorsFile parse_safetensors(std::vector<std::uint8_t> bytes) {
  SafetensorsFile file;
  file.bytes = std::move(bytes);
  SafetensorsHeader header = parse_safetensors_header(file.bytes, file.bytes.size());
  const auto data = std::span<const std::uint8_t>(file.bytes).subspan(header.data_begin);
  file.metadata = std::move(header.metadata);
  for (auto& [name, place] : header.tensors) {
    file.tensors[name] = {std::move(place.dtype), std::move(place.shape), data.subspan(place.begin, place.end - place.begin)};
  }
  return file;
}

std::uint64_t OutgoingTensor::byte_count() const {
  std::uint64_t count = dtype_bytes(dtype);
  for (const std::int64_t extent : shape) count *= static_cast<std::uint64_t>(extent);
  return count;
}

void put_safetensors(OutputFile& file, const std::map<std::string, std::string>& metadata,
                     std::span<const OutgoingTensor> tensors, const Progress& progress) {
  Json::Object header;
  Json notes{Json::Object{}};
  for (const auto& [key, value] : metadata) notes.set(key, value);
  header.push_back({"__metadata__", std::move(notes)});
  std::uint64_t total = 0;
  for (const OutgoingTensor& tensor : tensors) {
    Json::Array shape;
    for (const std::int64_t extent : tensor.shape) shape.emplace_back(extent);
    Json entry;
    entry.set("dtype", tensor.dtype);
    entry.set("shape", std::move(shape));
    const std::uint64_t end = total + tensor.byte_count();
    entry.set("data_offsets", Json::Array{Json(total), Json(end)});
    header.push_back({tensor.name, std::move(entry)});
    total = end;
  }
  std::string text = write_json(Json(std::move(header)));
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts on an 8-byte boundary, as the format's own writer does it
  const std::uint64_t header_bytes = text.size();
  file.put(&header_bytes, sizeof header_bytes);
  file.put(text);

  std::uint64_t done = 0;
  for (const OutgoingTensor& tensor : tensors) {
    const std::vector<std::byte> made = tensor.make ? tensor.make() : std::vector<std::byte>();
    const std::span<const std::byte> bytes = tensor.make ? std::span<const std::byte>(made) : tensor.bytes;
    if (bytes.size() != tensor.byte_count()) {
      throw std::logic_error("tensor " + tensor.name + " has " + std::to_string(bytes.size()) + " bytes; its shape takes " +
                             std::to_string(tensor.byte_count()));
    }
    for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
      const std::size_t size = std::min(piece_bytes, bytes.size() - at);
      file.put(bytes.data() + at, size);
      done += size;
      if (progress) progress(done, total);
    }
  }
}

WrittenFile write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                              std::span<const OutgoingTensor> tensors, const Progress& progress) {
  // The process id keeps two writers apart, and lets the node worker find leftovers whose writer is gone.
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  WrittenFile written;
  try {
    OutputFile file(temporary);
    put_safetensors(file, metadata, tensors, progress);
    written = file.finish();
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail_io("cannot rename to", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(path));
  written.path = path;
  return written;
}

}  // namespace longhaul
