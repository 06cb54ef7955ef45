// Reads the tensors of our own files: all that are expected and no others, hashed and checked on the way.
// defines: check_tensors, read_and_hash, first_not_finite, naming_file
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "state/digest/blake3.h"
#include "state/progress.h"
#include "state/safetensors.h"
#include "state/state_tensors.h"

namespace longhaul {

// Throws SafetensorsError that names the tensor: missing, unknown, of another dtype or shape, or out of its order.
void check_tensors(const SafetensorsHeader& header, std::span<const TensorBytes<const std::byte>> expected);

// Index of the first fp32 value that is infinite or no number. `bytes` need not be aligned.
std::optional<std::size_t> first_not_finite(std::span<const std::byte> bytes);

// Fills the tensors, which are those of `check_tensors`, and gives the leaves of their digest: one pass on all threads. Throws
// SafetensorsError if a value is not finite, and std::system_error.
std::vector<Blake3Digest> read_and_hash(const InputFile& file, const SafetensorsHeader& header,
                                        std::span<const TensorBytes<std::byte>> tensors, ThreadPool& pool,
                                        const Progress& progress);

// What `read` gives; errors about what the file holds begin with the file then.
template <class Read>
auto naming_file(const std::string& file, Read&& read) {
  try {
    return read();
  } catch (const SafetensorsError& error) {
    throw SafetensorsError(file + ": " + error.what());
  } catch (const std::invalid_argument& error) {
    throw SafetensorsError(file + ": " + error.what());
  }
}

}  // namespace longhaul
