// A temporary folder that is deleted with the test, and model files in it.
// defines: TemporaryFolder, read_text, write_text, bytes_of, ModelTensor, tensors_of, write_tensors
#pragma once

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "model/weights.h"
#include "state/float_formats.h"
#include "state/safetensors.h"

namespace longhaul::test {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("longhaul-" + name + "-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  // Names of the entries in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// Bytes of fp32 values converted to a file's dtype. For F16, the values must be exact in it.
inline std::vector<std::byte> bytes_of(std::span<const float> values, const std::string& dtype) {
  std::vector<std::byte> bytes(values.size() * dtype_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == "F32") {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
      continue;
    }
    std::uint16_t word = to_bf16(values[i]);
    if (dtype == "F16") {
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      const std::uint32_t exponent = bits >> 23 & 0xff;
      word = std::uint16_t(bits >> 16 & 0x8000);
      if (exponent == 255) {
        word |= 0x7c00 | (bits >> 13 & 0x3ff);
      } else if (exponent >= 113) {
        word |= std::uint16_t((exponent - 112) << 10 | (bits >> 13 & 0x3ff));
      }
    }
    std::memcpy(bytes.data() + 2 * i, &word, 2);
  }
  return bytes;
}

struct ModelTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

inline std::vector<ModelTensor> tensors_of(const Weights& weights, const std::string& dtype = "F32") {
  std::vector<ModelTensor> tensors;
  for (const auto& tensor : weights.tensors()) {
    tensors.push_back({tensor.name, dtype, tensor.shape, {tensor.values.begin(), tensor.values.end()}});
  }
  return tensors;
}

inline void write_tensors(const std::string& path, const std::vector<ModelTensor>& tensors) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<OutgoingTensor> outgoing;
  for (const ModelTensor& tensor : tensors) bytes.push_back(bytes_of(tensor.values, tensor.dtype));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    outgoing.push_back({tensors[i].name, tensors[i].dtype, tensors[i].shape, bytes[i]});
  }
  write_safetensors(path, {{"format", "pt"}}, outgoing);
}

}  // namespace longhaul::test
