// The safetensors reader trusts no header; the writer's bytes are canonical and appear whole or not at all.
#include "state/safetensors.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "checks.h"
#include "state/sha256.h"

using namespace longhaul;

namespace {

std::vector<std::uint8_t> file_of(const std::string& header, std::size_t data_bytes) {
  std::vector<std::uint8_t> bytes(8 + header.size() + data_bytes);
  const std::uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

void refuses_bad_headers() {
  const auto refuse = [](const std::string& header, std::size_t data, const std::string& part) {
    CHECK_THROWS(SafetensorsError, parse_safetensors(file_of(header, data)), part);
  };
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}})";
  CHECK(parse_safetensors(file_of(good, 12)).tensors.at("b").elements() == 1);
  refuse(good, 11, "lies outside the file");
  refuse(good, 16, "4 bytes belong to no tensor");
  refuse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
         "overlap");
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "gap");
  refuse(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "do not fit its shape");
  refuse(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows");
  refuse(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "no whole number");
  refuse(R"({"a":{"dtype":"F32","shape":[0.5],"data_offsets":[0,4]}})", 4, "no whole number");
  refuse(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "dtype F64");
  refuse(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "needs dtype");
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "lies outside");
  refuse(R"({"__metadata__":{"x":1}})", 0, "no string");
  refuse(R"([])", 0, "no object");
  refuse(R"({"a":1})", 0, "needs dtype");
  refuse(R"({)", 0, "broken header");
  CHECK_THROWS(SafetensorsError, parse_safetensors({1, 2, 3}), "header length");
  std::vector<std::uint8_t> huge(16, 0xFF);
  CHECK_THROWS(SafetensorsError, parse_safetensors(huge), "does not fit the file");
}

void writes_what_it_reads() {
  const auto folder = std::filesystem::temp_directory_path() / ("longhaul-safetensors-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "x.safetensors").string();
  const std::vector<float> a{1, -2.5f}, b{3, 4, 5, 6};
  const OutgoingTensor tensors[] = {{"a", {2}, a}, {"b", {2, 2}, b}};
  const WrittenFile first = write_safetensors(path, {{"k", "v"}}, tensors);
  const auto bytes = read_file(path);
  CHECK(bytes.size() == first.size);
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  CHECK(to_hex(hash.finish()) == first.sha256);
  const SafetensorsFile file = parse_safetensors(bytes);
  CHECK(file.metadata.at("k") == "v");
  CHECK(std::memcmp(file.tensors.at("b").bytes.data(), b.data(), 16) == 0);
  CHECK(write_safetensors(path, {{"k", "v"}}, tensors).sha256 == first.sha256);
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);

  // A folder that is not there, and a target that cannot be replaced: an error, and nothing is left behind.
  CHECK_THROWS(std::system_error, write_safetensors((folder / "none" / "x").string(), {}, tensors), "cannot create");
  std::filesystem::create_directories(folder / "taken" / "inside");
  CHECK_THROWS(std::system_error, write_safetensors((folder / "taken").string(), {}, tensors), "cannot rename");
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 2);
  CHECK_THROWS(std::system_error, read_file(folder.string()), "no regular file");
  std::filesystem::remove_all(folder);
}

}  // namespace

int main() {
  refuses_bad_headers();
  writes_what_it_reads();
  return test::finish();
}
