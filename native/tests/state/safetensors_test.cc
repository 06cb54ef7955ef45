// The safetensors reader checks every header; the writer's bytes are canonical, and a file appears whole or not at all.
#include "state/safetensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "support/checks.h"
#include "support/folders.h"
#include "state/digest/sha256.h"

using namespace longhaul;
using namespace longhaul::test;

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
  refuse(good, 11, "tensor b is outside the file: data_offsets [8, 12], but 11 bytes follow the header");
  refuse(good, 16, "4 bytes do not belong to any tensor");
  refuse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
         "overlap at byte 8: tensor b begins at 4");
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "gap at byte 0: tensor a begins at 4");
  refuse(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "do not fit its shape: 8 bytes, and F32 [3] takes 12");
  refuse(R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,8]}})", 8, "8 bytes, and BF16 [3] takes 6");
  refuse(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows");
  refuse(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "not a whole number");
  refuse(R"({"a":{"dtype":"F32","shape":[0.5],"data_offsets":[0,4]}})", 4, "not a whole number");
  refuse(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8,
         "tensor a has dtype F64; F32, F16, BF16, I32, I8 and U8 are known");
  refuse(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "needs dtype");
  refuse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "is outside");
  refuse(R"({"__metadata__":{"x":1}})", 0, "not a string");
  refuse(R"([])", 0, "not an object");
  refuse(R"({"a":1})", 0, "needs dtype");
  refuse(R"({)", 0, "broken header");
  CHECK_THROWS(SafetensorsError, parse_safetensors({1, 2, 3}), "header length: 3 bytes");
  std::vector<std::uint8_t> huge(16, 0xFF);
  CHECK_THROWS(SafetensorsError, parse_safetensors(huge), "does not fit the file of 16 bytes");
}

void knows_every_dtype() {
  const auto file = parse_safetensors(file_of(
      R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]},)"
      R"("c":{"dtype":"I8","shape":[3],"data_offsets":[6,9]},"d":{"dtype":"U8","shape":[],"data_offsets":[9,10]}})",
      10));
  CHECK(file.tensors.at("a").elements() == 2);
  CHECK(file.tensors.at("b").elements() == 1);
  CHECK(file.tensors.at("c").elements() == 3);
  CHECK(file.tensors.at("d").elements() == 1);
  CHECK(dtype_bytes("F64") == 0);
}

OutgoingTensor outgoing(const char* name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
  return {name, "F32", std::move(shape), std::as_bytes(std::span(values))};
}

void writes_what_it_reads() {
  const TemporaryFolder folder("safetensors");
  const std::string path = folder / "x.safetensors";
  const std::vector<float> a{1, -2.5f}, b{3, 4, 5, 6};
  const std::vector<std::byte> c{std::byte{1}, std::byte{255}, std::byte{7}};
  OutgoingTensor made{"c", "I8", {3}, {}, [&] { return c; }};
  const OutgoingTensor tensors[] = {outgoing("a", {2}, a), outgoing("b", {2, 2}, b), made};
  const WrittenFile first = write_safetensors(path, {{"k", "v"}}, tensors);
  CHECK(first.path == path);
  const auto bytes = read_file(path);
  CHECK(bytes.size() == first.size);
  const SafetensorsFile file = parse_safetensors(bytes);
  CHECK(file.metadata.at("k") == "v");
  CHECK(std::memcmp(file.tensors.at("b").bytes.data(), b.data(), 16) == 0);
  CHECK(file.tensors.at("c").dtype == "I8" && std::memcmp(file.tensors.at("c").bytes.data(), c.data(), 3) == 0);
  write_safetensors(path, {{"k", "v"}}, tensors);
  CHECK(read_file(path) == bytes);
  CHECK(folder.names().size() == 1);

  // Read in pieces or mapped, the file has the same header. A truncated file gives an error in both cases.
  const SafetensorsHeader header = read_safetensors_header(InputFile(path));
  const MappedFile map(path);
  const SafetensorsHeader mapped = parse_safetensors_header(map.bytes(), map.bytes().size());
  CHECK(header.data_begin == mapped.data_begin && header.tensors.at("b").begin == mapped.tensors.at("b").begin);
  CHECK(map.bytes().size() == bytes.size() && std::memcmp(map.bytes().data(), bytes.data(), bytes.size()) == 0);
  std::filesystem::resize_file(path, bytes.size() - 1);
  CHECK_THROWS(SafetensorsError, read_safetensors_header(InputFile(path)), "tensor c is outside the file");
  CHECK_THROWS(SafetensorsError, parse_safetensors_header(std::span(bytes).first(20), bytes.size()), "are present");
  std::filesystem::resize_file(path, 0);
  CHECK_THROWS(SafetensorsError, read_safetensors_header(InputFile(path)), "header length");
  CHECK(MappedFile(path).bytes().empty());
  std::filesystem::remove(path);

  // If the folder is missing or the target cannot be replaced, there is an error and nothing is left behind.
  CHECK_THROWS(std::system_error, write_safetensors(folder / "none/x", {}, tensors), "cannot create");
  std::filesystem::create_directories(folder / "taken/inside");
  CHECK_THROWS(std::system_error, write_safetensors(folder / "taken", {}, tensors), "cannot rename");
  CHECK(folder.names() == std::vector<std::string>{"taken"});
  CHECK_THROWS(std::system_error, read_file(folder.path()), "not a regular file");
  CHECK_THROWS(std::system_error, MappedFile(folder / "none"), "cannot open");

  // The progress callback may end the work.
  std::uint64_t told = 0;
  write_safetensors(path, {}, tensors, [&](std::uint64_t done, std::uint64_t total) {
    CHECK(done > told && total == 27);
    told = done;
  });
  CHECK(told == 27);
  std::filesystem::remove(path);
  const Progress ends = [](std::uint64_t, std::uint64_t) { throw std::runtime_error("enough"); };
  CHECK_THROWS(std::runtime_error, write_safetensors(path, {}, tensors, ends), "enough");
  CHECK(folder.names() == std::vector<std::string>{"taken"});
}

void halves_become_exact_floats() {
  std::vector<std::uint16_t> words(1 << 16);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::uint16_t(i);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(words.data());
  std::vector<float> halves(words.size()), brains(words.size());
  from_f16(bytes, words.size(), halves.data());
  from_bf16(bytes, words.size(), brains.data());
  bool exact = true, there_and_back = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    // Computed from the definition: 1 sign bit, 5 exponent bits and 10 fraction bits.
    const int exponent = int(i >> 10 & 31), fraction = int(i & 0x3ff);
    const double sign = i >> 15 ? -1 : 1;
    if (exponent == 31) {
      exact = exact && (fraction == 0 ? halves[i] == sign * HUGE_VAL : halves[i] != halves[i]);
    } else {
      const double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      exact = exact && double(halves[i]) == sign * value && std::signbit(halves[i]) == (sign < 0);
    }
    if (brains[i] == brains[i]) there_and_back = there_and_back && to_bf16(brains[i]) == words[i];
  }
  CHECK(exact);
  CHECK(there_and_back);
  // Ties to even, and a carry into the exponent.
  CHECK(to_bf16(std::bit_cast<float>(0x3f808000u)) == 0x3f80);
  CHECK(to_bf16(std::bit_cast<float>(0x3f818000u)) == 0x3f82);
  CHECK(to_bf16(std::bit_cast<float>(0x3f808001u)) == 0x3f81);
  CHECK(to_bf16(std::bit_cast<float>(0x3fffffffu)) == 0x4000);
  CHECK(to_bf16(std::bit_cast<float>(0x7f7fffffu)) == 0x7f80);
  CHECK((to_bf16(std::bit_cast<float>(0x7f800001u)) & 0x7fff) > 0x7f80);
}

}  // namespace

int main() {
  refuses_bad_headers();
  knows_every_dtype();
  writes_what_it_reads();
  halves_become_exact_floats();
  return test::finish();
}
