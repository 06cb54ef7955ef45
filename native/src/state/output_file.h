// A file that is being written.
// defines: WrittenFile, OutputFile, sync_folder, fail_io
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace longhaul {

struct WrittenFile {
  std::uint64_t size = 0;
  std::string path;
};

// The constructor creates or empties the file. All functions throw std::system_error that names the file.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void put(const void* data, std::size_t size);
  void put(std::string_view text) { put(text.data(), text.size()); }

  // Syncs (fsync) and closes the file; the object must not be used again. `path` is where it was written.
  WrittenFile finish();

 private:
  std::string path_;
  int fd_;
  std::uint64_t size_ = 0;
};

// Syncs a folder, so that new names in it survive a crash.
void sync_folder(const std::string& folder);

// The folder that contains `path`.
std::string folder_of(const std::string& path);

// The error of the system call that just failed: "<what> <path>: <reason>".
[[noreturn]] void fail_io(const std::string& what, const std::string& path);

}  // namespace longhaul
