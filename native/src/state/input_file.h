// Files for reading: by several threads at once, or mapped into memory.
// defines: InputFile, MappedFile, read_file
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace longhaul {

// A regular file that several threads may read at once. Throws std::system_error that names the file.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  // Reads bytes [offset, offset + size). Throws std::system_error if the file ends before that.
  void read(void* to, std::size_t size, std::uint64_t offset) const;
  // Advises the kernel that these bytes will be read soon.
  void will_need(std::uint64_t offset, std::uint64_t size) const;

 private:
  friend class MappedFile;

  std::string path_;
  int fd_;
  std::uint64_t size_ = 0;
};

// The bytes of a regular file, mapped: the kernel reads a page when it is first used. If the file is truncated
// meanwhile, the process ends (SIGBUS), so use it only for folders that nobody changes.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

// Reads a whole file. Throws std::system_error.
std::vector<std::uint8_t> read_file(const std::string& path);

}  // namespace longhaul
