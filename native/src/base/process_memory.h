// How much memory there is, as the system says.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul {

/// Memory in bytes: what is taken, and what may still be taken.
struct MemoryUse {
  std::size_t taken = 0, available = 0;

  /// All that may be used.
  std::size_t most() const { return available > SIZE_MAX - taken ? SIZE_MAX : available + taken; }
};

/// Resident memory of this process, without pages that belong to files.
std::size_t resident_bytes();

/// Bytes that this process may still allocate: the smallest of what the machine, the cgroups and RLIMIT_AS leave.
std::size_t available_memory();

}  // namespace longhaul
