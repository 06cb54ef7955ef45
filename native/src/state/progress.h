// How far a long read or write is.
// defines: Progress
#pragma once

#include <cstdint>
#include <functional>

namespace longhaul {

// Bytes done, of all bytes. Called by one thread at a time, not always the caller's. What it throws ends the work, which leaves
// nothing behind.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

}  // namespace longhaul
