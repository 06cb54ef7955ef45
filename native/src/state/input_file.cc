#include "state/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "state/output_file.h"

namespace longhaul {

InputFile::InputFile(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail_io("cannot open", path);
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);  // only advice: the kernel then reads twice as far ahead
    return;
  }
  const int problem = known ? EINVAL : errno;
  ::close(fd_);
  throw std::system_error(problem, std::generic_category(), (known ? "not a regular file: " : "cannot stat ") + path);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(void* to, std::size_t size, std::uint64_t offset) const {
  auto* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("cannot read", path_);
    if (got == 0) {
      throw std::system_error(EIO, std::generic_category(), "the file became shorter while it was read: " + path_);
    }
    bytes += got;
    size -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
}

void InputFile::will_need(std::uint64_t offset, std::uint64_t size) const {
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_WILLNEED);
}

MappedFile::MappedFile(const std::string& path) {
  const InputFile file(path);
  if (file.size() == 0) return;  // an empty file cannot be mapped
  void* memory = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd_, 0);
  if (memory == MAP_FAILED) fail_io("cannot map", path);
  ::madvise(memory, file.size(), MADV_WILLNEED);  // only advice
  bytes_ = {static_cast<const std::uint8_t*>(memory), file.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

std::vector<std::uint8_t> read_file(const std::string& path) {
  const InputFile file(path);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
  file.read(bytes.data(), bytes.size(), 0);
  return bytes;
}

}  // namespace longhaul
