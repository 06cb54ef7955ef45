// Safetensors files: a reader that checks everything, and a writer of canonical bytes.
// defines: SafetensorsError, dtype_bytes, SafetensorsHeader, FileTensor, TensorView, SafetensorsFile, OutgoingTensor, WrittenFile,
//          read_safetensors_header, parse_safetensors_header, parse_safetensors, write_safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "state/input_file.h"
#include "state/output_file.h"
#include "state/progress.h"

namespace longhaul {

struct SafetensorsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bytes of one element of F32, F16, BF16, I32, I8 or U8; 0 for any other name.
std::size_t dtype_bytes(std::string_view dtype);

// Where a tensor lies: bytes [begin, end), counted from the end of the header.
struct FileTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, FileTensor> tensors;
  std::uint64_t data_begin = 0;  // in the file
};

struct TensorView {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;  // may be unaligned

  std::size_t elements() const { return bytes.size() / dtype_bytes(dtype); }
};

// The bytes of a file and the tensors in them.
struct SafetensorsFile {
  std::vector<std::uint8_t> bytes;
  std::map<std::string, std::string> metadata;
  std::map<std::string, TensorView> tensors;
};

// Checks that every tensor lies inside the file and has the size of its shape, and that there are no overlaps or gaps. Throws
// SafetensorsError, which names tensors but not the file, and std::system_error.
SafetensorsHeader read_safetensors_header(const InputFile& file);

// Parses the header from the first bytes of a file: at least the header, at most `file_size` bytes.
SafetensorsHeader parse_safetensors_header(std::span<const std::uint8_t> beginning, std::uint64_t file_size);

// Parses a file that is in memory.
SafetensorsFile parse_safetensors(std::vector<std::uint8_t> bytes);

// "F32 [2, 3]"
std::string describe_tensor(std::string_view dtype, std::span<const std::int64_t> shape);

struct OutgoingTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  // If set, `bytes` is empty, and this function makes the bytes just before they are written.
  std::function<std::vector<std::byte>()> make = nullptr;

  std::uint64_t byte_count() const;
};

// Writes the header (tensors in the given order, and string metadata), then the data in the same order.
void put_safetensors(OutputFile& file, const std::map<std::string, std::string>& metadata,
                     std::span<const OutgoingTensor> tensors, const Progress& progress = {});

// Writes a whole safetensors file: temporary file, fsync, rename, fsync of the folder. So the file appears whole or not at all. Throws
// std::system_error.
WrittenFile write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                              std::span<const OutgoingTensor> tensors, const Progress& progress = {});

}  // namespace longhaul
