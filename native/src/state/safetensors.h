// Safetensors files: a reader that trusts nothing, and a writer of canonical bytes.
// defines: SafetensorsError, TensorView, SafetensorsFile, write_safetensors
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace longhaul {

struct SafetensorsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct TensorView {
  std::string dtype;  // I32 or F32
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;  // not aligned

  std::size_t elements() const { return bytes.size() / 4; }
};

// The bytes of a file and the tensors in them.
struct SafetensorsFile {
  std::vector<std::uint8_t> bytes;
  std::map<std::string, std::string> metadata;
  std::map<std::string, TensorView> tensors;
};

// Reads a whole file. Throws std::system_error.
std::vector<std::uint8_t> read_file(const std::string& path);

// Every offset is checked: inside the file, equal to the shape's size, without overlap and without gaps.
// Throws SafetensorsError.
SafetensorsFile parse_safetensors(std::vector<std::uint8_t> bytes);

struct OutgoingTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

struct WrittenFile {
  std::uint64_t size = 0;
  std::string sha256;
};

// Writes F32 tensors (sorted by name by the caller) and string metadata: temporary file, fsync, rename, fsync of the
// folder; the file is there whole or not at all. Throws std::system_error.
WrittenFile write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                              std::span<const OutgoingTensor> tensors);

}  // namespace longhaul
