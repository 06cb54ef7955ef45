// Reads the tensors of our own files: exactly the expected ones, hashed and checked in the same pass.
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

// Throws SafetensorsError that names the tensor if one is missing, unknown, of another dtype or shape, or out of order.
void check_tensors(const SafetensorsHeader& header, std::span<const TensorBytes<const std::byte>> expected);

// Index of the first fp32 value that is infinite or NaN. `bytes` need not be aligned.
std::optional<std::size_t> first_not_finite(std::span<const std::byte> bytes);

// Fills the tensors, which `check_tensors` must have accepted, and returns the leaves of their digest: one pass on all
// threads. Throws SafetensorsError if a value is not finite, and std::system_error.
std::vector<Blake3Digest> read_and_hash(const InputFile& file, const SafetensorsHeader& header,
                                        std::span<const TensorBytes<std::byte>> tensors, ThreadPool& pool,
                                        const Progress& progress);

// Returns what `read` returns; adds the file's name to errors about its content.
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
