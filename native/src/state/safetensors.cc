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

struct Extent {
  std::uint64_t begin;
  std::uint64_t end;
};

Extent read_tensor(const std::string& name, const Json& entry, std::span<const std::uint8_t> data, TensorView& view) {
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  const Json* offsets = entry.find("data_offsets");
  if (dtype == nullptr || dtype->string() == nullptr || shape == nullptr || shape->array() == nullptr ||
      offsets == nullptr || offsets->array() == nullptr || offsets->array()->size() != 2) {
    throw SafetensorsError("tensor " + name + " needs dtype, shape and two data_offsets");
  }
  view.dtype = *dtype->string();
  if (view.dtype != "I32" && view.dtype != "F32") {
    throw SafetensorsError("tensor " + name + " has dtype " + view.dtype + "; I32 and F32 are known");
  }
  std::uint64_t bytes = 4;
  for (const Json& item : *shape->array()) {
    const std::uint64_t extent = whole_number(item, "shape of tensor " + name);
    if (extent != 0 && bytes > UINT64_MAX / extent) throw SafetensorsError("shape of tensor " + name + " overflows");
    bytes *= extent;
    view.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const Extent at{whole_number((*offsets->array())[0], "data_offsets of tensor " + name),
                  whole_number((*offsets->array())[1], "data_offsets of tensor " + name)};
  if (at.begin > at.end || at.end > data.size()) throw SafetensorsError("tensor " + name + " lies outside the file");
  if (at.end - at.begin != bytes) throw SafetensorsError("tensor " + name + ": data_offsets do not fit its shape");
  view.bytes = data.subspan(at.begin, bytes);
  return at;
}

}  // namespace

std::vector<std::uint8_t> read_file(const std::string& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail_io("cannot open", path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_io("cannot stat", path);
  if (!S_ISREG(status.st_mode)) throw std::system_error(EINVAL, std::generic_category(), "no regular file: " + path);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("cannot read", path);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

SafetensorsFile parse_safetensors(std::vector<std::uint8_t> bytes) {
  SafetensorsFile file;
  file.bytes = std::move(bytes);
  if (file.bytes.size() < 8) throw SafetensorsError("shorter than a header length");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.bytes.size() - 8) {
    throw SafetensorsError("header of " + std::to_string(header_bytes) + " bytes does not fit the file");
  }
  std::string error;
  const auto header = parse_json({reinterpret_cast<const char*>(file.bytes.data()) + 8, header_bytes}, error);
  if (!header) throw SafetensorsError("broken header: " + error);
  if (header->object() == nullptr) throw SafetensorsError("the header is no object");
  const auto data = std::span<const std::uint8_t>(file.bytes).subspan(8 + header_bytes);

  std::vector<Extent> extents;
  for (const auto& [name, entry] : *header->object()) {
    if (name == "__metadata__") {
      if (entry.object() == nullptr) throw SafetensorsError("__metadata__ is no object");
      for (const auto& [key, value] : *entry.object()) {
        if (value.string() == nullptr) throw SafetensorsError("__metadata__." + key + " is no string");
        file.metadata[key] = *value.string();
      }
      continue;
    }
    extents.push_back(read_tensor(name, entry, data, file.tensors[name]));
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t at = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != at) throw SafetensorsError("tensors overlap or leave a gap at byte " + std::to_string(at));
    at = extent.end;
  }
  if (at != data.size()) throw SafetensorsError(std::to_string(data.size() - at) + " bytes belong to no tensor");
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
