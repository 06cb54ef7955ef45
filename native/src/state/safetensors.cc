#include "state/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "state/sha256.h"
#include "wire/json.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{100} << 20;

[[noreturn]] void fail_io(const std::string& what, const std::string& path) {
  throw std::system_error(errno, std::generic_category(), what + " " + path);
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, const void* data, std::size_t size, const std::string& path) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote = ::write(fd, bytes, size);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      fail_io("cannot write", path);
    }
    bytes += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
}

void sync_folder(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) fail_io("cannot sync folder", folder);
}

// A whole number in [0, 2^53]; doubles hold those exactly.
std::uint64_t whole_number(const Json& value, const std::string& where) {
  const double* number = value.number();
  if (number == nullptr || *number < 0 || *number > 9007199254740992.0 || *number != std::floor(*number)) {
    throw SafetensorsError(where + " is no whole number");
  }
  return static_cast<std::uint64_t>(*number);
}

TensorPlace read_place(const std::string& name, const Json& entry, std::uint64_t data_size) {
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  const Json* offsets = entry.find("data_offsets");
  if (dtype == nullptr || dtype->string() == nullptr || shape == nullptr || shape->array() == nullptr ||
      offsets == nullptr || offsets->array() == nullptr || offsets->array()->size() != 2) {
    throw SafetensorsError("tensor " + name + " needs dtype, shape and two data_offsets");
  }
  TensorPlace place;
  place.dtype = *dtype->string();
  if (place.dtype != "I32" && place.dtype != "F32") {
    throw SafetensorsError("tensor " + name + " has dtype " + place.dtype + "; I32 and F32 are known");
  }
  std::uint64_t bytes = 4;
  for (const Json& item : *shape->array()) {
    const std::uint64_t extent = whole_number(item, "shape of tensor " + name);
    if (extent != 0 && bytes > UINT64_MAX / extent) throw SafetensorsError("shape of tensor " + name + " overflows");
    bytes *= extent;
    place.shape.push_back(static_cast<std::int64_t>(extent));
  }
  place.begin = whole_number((*offsets->array())[0], "data_offsets of tensor " + name);
  place.end = whole_number((*offsets->array())[1], "data_offsets of tensor " + name);
  if (place.begin > place.end || place.end > data_size) {
    throw SafetensorsError("tensor " + name + " lies outside the file");
  }
  if (place.end - place.begin != bytes) {
    throw SafetensorsError("tensor " + name + ": data_offsets do not fit its shape");
  }
  return place;
}

void check_contiguous(const SafetensorsHeader& header, std::uint64_t data_size) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;
  for (const auto& [name, place] : header.tensors) extents.emplace_back(place.begin, place.end);
  std::sort(extents.begin(), extents.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : extents) {
    if (begin != at) throw SafetensorsError("tensors overlap or leave a gap at byte " + std::to_string(at));
    at = end;
  }
  if (at != data_size) throw SafetensorsError(std::to_string(data_size - at) + " bytes belong to no tensor");
}

constexpr std::size_t kLengthBytes = 8;

// Of the first eight bytes.
std::uint64_t header_length(const std::uint8_t* beginning, std::uint64_t file_size) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, beginning, sizeof bytes);
  if (bytes > kMaxHeaderBytes || bytes > file_size - kLengthBytes) {
    throw SafetensorsError("header of " + std::to_string(bytes) + " bytes does not fit the file");
  }
  return bytes;
}

SafetensorsHeader parse_header(std::string_view text, std::uint64_t file_size) {
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + text.size();
  const std::uint64_t data_size = file_size - header.data_begin;
  std::string error;
  const auto json = parse_json(text, error);
  if (!json) throw SafetensorsError("broken header: " + error);
  if (json->object() == nullptr) throw SafetensorsError("the header is no object");
  for (const auto& [name, entry] : *json->object()) {
    if (name == "__metadata__") {
      if (entry.object() == nullptr) throw SafetensorsError("__metadata__ is no object");
      for (const auto& [key, value] : *entry.object()) {
        if (value.string() == nullptr) throw SafetensorsError("__metadata__." + key + " is no string");
        header.metadata[key] = *value.string();
      }
      continue;
    }
    header.tensors[name] = read_place(name, entry, data_size);
  }
  check_contiguous(header, data_size);
  return header;
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail_io("cannot open", path);
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);  // advice: the kernel reads twice as far ahead
    return;
  }
  const int problem = known ? EINVAL : errno;
  ::close(fd_);
  throw std::system_error(problem, std::generic_category(), (known ? "no regular file: " : "cannot stat ") + path);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(void* to, std::size_t size, std::uint64_t offset) const {
  auto* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("cannot read", path_);
    if (got == 0) throw SafetensorsError("it became shorter while it was read");
    bytes += got;
    size -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
}

std::vector<std::uint8_t> read_file(const std::string& path) {
  const InputFile file(path);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
  file.read(bytes.data(), bytes.size(), 0);
  return bytes;
}

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  if (file.size() < kLengthBytes) throw SafetensorsError("shorter than a header length");
  std::uint8_t length[kLengthBytes];
  file.read(length, sizeof length, 0);
  std::string text(header_length(length, file.size()), '\0');
  file.read(text.data(), text.size(), kLengthBytes);
  return parse_header(text, file.size());
}

SafetensorsFile parse_safetensors(std::vector<std::uint8_t> bytes) {
  SafetensorsFile file;
  file.bytes = std::move(bytes);
  if (file.bytes.size() < kLengthBytes) throw SafetensorsError("shorter than a header length");
  const std::uint64_t length = header_length(file.bytes.data(), file.bytes.size());
  const char* text = reinterpret_cast<const char*>(file.bytes.data()) + kLengthBytes;
  SafetensorsHeader header = parse_header({text, length}, file.bytes.size());
  const auto data = std::span<const std::uint8_t>(file.bytes).subspan(header.data_begin);
  file.metadata = std::move(header.metadata);
  for (auto& [name, place] : header.tensors) {
    file.tensors[name] = {std::move(place.dtype), std::move(place.shape), data.subspan(place.begin, place.end - place.begin)};
  }
  return file;
}

WrittenFile write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                              std::span<const OutgoingTensor> tensors) {
  Json header;
  Json notes{Json::Object{}};
  for (const auto& [key, value] : metadata) notes.set(key, value);
  header.set("__metadata__", std::move(notes));
  std::uint64_t offset = 0;
  for (const OutgoingTensor& tensor : tensors) {
    Json::Array shape;
    for (const std::int64_t extent : tensor.shape) shape.emplace_back(extent);
    Json entry;
    entry.set("dtype", "F32");
    entry.set("shape", std::move(shape));
    const std::uint64_t end = offset + tensor.values.size_bytes();
    entry.set("data_offsets", Json::Array{Json(offset), Json(end)});
    header.set(tensor.name, std::move(entry));
    offset = end;
  }
  std::string text = write_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data on an 8-byte boundary, as the format's own writer does

  // The process id keeps two writers apart, and tells the node worker which leftovers nobody will rename any more.
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  WrittenFile written;
  Sha256 hash;
  try {
    const FileDescriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0) fail_io("cannot create", temporary);
    const auto put = [&](const void* data, std::size_t size) {
      hash.add(data, size);
      write_all(fd.get(), data, size, temporary);
      written.size += size;
    };
    const std::uint64_t header_bytes = text.size();
    put(&header_bytes, sizeof header_bytes);
    put(text.data(), text.size());
    for (const OutgoingTensor& tensor : tensors) put(tensor.values.data(), tensor.values.size_bytes());
    if (::fsync(fd.get()) != 0) fail_io("cannot sync", temporary);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail_io("cannot rename to", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path);
  written.sha256 = to_hex(hash.finish());
  return written;
}

}  // namespace longhaul
