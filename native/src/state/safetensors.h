// Safetensors files: a reader that trusts nothing, and a writer of canonical bytes.
// defines: SafetensorsError, InputFile, SafetensorsHeader, TensorView, SafetensorsFile, write_safetensors
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

// Where a tensor lies: bytes [begin, end) of the data that follow the header.
struct TensorPlace {
  std::string dtype;  // I32 or F32
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, TensorPlace> tensors;
  std::uint64_t data_begin = 0;  // in the file
};

// A regular file that several threads may read at once. Throws std::system_error.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  // Bytes [offset, offset + size). Throws SafetensorsError where the file ends before.
  void read(void* to, std::size_t size, std::uint64_t offset) const;

 private:
  std::string path_;
  int fd_;
  std::uint64_t size_ = 0;
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
// Throws SafetensorsError, and std::system_error.
SafetensorsHeader read_safetensors_header(const InputFile& file);

// As above, for a file in memory.
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
