#include "state/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace longhaul {

OutputFile::OutputFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail_io("cannot create", path);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::put(const void* data, std::size_t size) {
  size_ += size;
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote = ::write(fd_, bytes, size);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      fail_io("cannot write", path_);
    }
    bytes += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
}

WrittenFile OutputFile::finish() {
  if (::fsync(fd_) != 0) fail_io("cannot sync", path_);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail_io("cannot close", path_);
  return {size_, path_};
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int problem = errno;
  if (fd >= 0) ::close(fd);
  errno = problem;
  if (!synced) fail_io("cannot sync folder", folder);
}

void fail_io(const std::string& what, const std::string& path) {
  throw std::system_error(errno, std::generic_category(), what + " " + path);
}

}  // namespace longhaul
