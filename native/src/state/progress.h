// Progress of a long read or write.
// defines: Progress
#pragma once

#include <cstdint>
#include <functional>

namespace longhaul {

// Called with the bytes done and the bytes in all, by one thread at a time, but not always the caller's thread. If the
// function throws, the work ends and leaves nothing behind.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

}  // namespace longhaul
