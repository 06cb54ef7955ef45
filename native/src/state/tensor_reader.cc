#include "state/tensor_reader.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "state/digest/digest.h"

namespace longhaul {
namespace {

// The kernel is asked to prefetch a leaf when it is this many bytes ahead.
constexpr std::uint64_t read_ahead_bytes = std::uint64_t{16} << 20;

float value_at(std::span<const std::byte> bytes, std::size_t index) {
  float value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

[[noreturn]] void refuse_value(const TensorBytes<std::byte>& tensor, std::size_t index) {
  throw SafetensorsError("tensor " + tensor.name + " has " + std::to_string(value_at(tensor.bytes, index)) + " as value " +
                         std::to_string(index) + "; all must be finite");
}

// Checks that bytes [from, from + size) of an fp32 tensor are finite. Leaves never split a value: widths are multiples of 16, so the size
// of the 8-bit codes before this tensor is a multiple of 4.
void check_values(const TensorBytes<std::byte>& tensor, std::size_t from, std::size_t size) {
  if (const auto bad = first_not_finite(tensor.bytes.subspan(from, size))) refuse_value(tensor, from / sizeof(float) + *bad);
}

}  // namespace

void check_tensors(const SafetensorsHeader& header, std::span<const TensorBytes<const std::byte>> expected) {
  std::set<std::string> known;
  std::uint64_t at = 0;
  for (const auto& tensor : expected) {
    known.insert(tensor.name);
    const auto found = header.tensors.find(tensor.name);
    if (found == header.tensors.end()) {
      throw SafetensorsError("tensor " + tensor.name + " is missing; expected " + describe_tensor(tensor.dtype, tensor.shape));
    }
    const FileTensor& place = found->second;
    if (place.dtype != tensor.dtype || place.shape != tensor.shape) {
      throw SafetensorsError("tensor " + tensor.name + " is " + describe_tensor(place.dtype, place.shape) + "; expected " +
                             describe_tensor(tensor.dtype, tensor.shape));
    }
    // The digest covers data in the order of names, so a program that knows nothing about tensors can compute the digest from the file.
    if (place.begin < at) throw SafetensorsError("tensor " + tensor.name + " is out of order: tensor data must follow the order of the names");
    at = place.end;
  }
  for (const auto& [name, place] : header.tensors) {
    if (!known.contains(name)) {
      throw SafetensorsError("tensor " + name + " is not one of the " + std::to_string(known.size()) + " tensors that its metadata describe");
    }
  }
}

std::optional<std::size_t> first_not_finite(std::span<const std::byte> bytes) {
  constexpr std::uint32_t exponent = 0x7f800000;
  const auto bits_at = [&](std::size_t i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    return bits;
  };
  const std::size_t count = bytes.size() / sizeof(float);
  constexpr std::size_t piece = 4096;
  for (std::size_t from = 0; from < count; from += piece) {
    const std::size_t to = std::min(count, from + piece);
    // Without a branch, so that the compiler can use vectors.
    std::uint32_t found = 0;
    for (std::size_t i = from; i < to; ++i) found |= std::uint32_t((bits_at(i) & exponent) == exponent);
    if (found == 0) continue;
    for (std::size_t i = from; i < to; ++i) {
      if ((bits_at(i) & exponent) == exponent) return i;
    }
  }
  return std::nullopt;
}

std::vector<Blake3Digest> read_and_hash(const InputFile& file, const SafetensorsHeader& header,
                                        std::span<const TensorBytes<std::byte>> tensors, ThreadPool& pool,
                                        const Progress& progress) {
  std::vector<std::uint64_t> offsets;
  std::vector<TensorBytes<const std::byte>> hashed;
  for (const auto& tensor : tensors) {
    offsets.push_back(header.data_begin + header.tensors.at(tensor.name).begin);
    hashed.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  const StateLeaves leaves(hashed);
  std::mutex telling;
  std::uint64_t done = 0;
  file.will_need(header.data_begin, read_ahead_bytes);
  const auto digests = hash_leaves(hashed, leaves, pool, [&](std::size_t leaf) {
    file.will_need(header.data_begin + leaf * StateLeaves::leaf_bytes + read_ahead_bytes, StateLeaves::leaf_bytes);
    std::uint64_t bytes = 0;
    leaves.visit(leaf, [&](std::size_t tensor, std::size_t from, std::size_t size) {
      file.read(tensors[tensor].bytes.data() + from, size, offsets[tensor] + from);
      if (tensors[tensor].dtype == "F32") check_values(tensors[tensor], from, size);
      bytes += size;
    });
    if (!progress) return;
    std::lock_guard lock(telling);
    done += bytes;
    progress(done, leaves.total_bytes());
  });
  return digests;
}

}  // namespace longhaul
