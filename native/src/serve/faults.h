// Ways in which a test lets the process end, or stand still (docs/engine-protocol.md, `fault`).
// defines: raise_fault
#pragma once

#include <string>

namespace longhaul {

// `abort`, `segfault`, `hang` (all threads stop, until somebody continues them) or `stall` (this thread waits for ever).
// Throws RequestError on another kind.
void raise_fault(const std::string& kind);

}  // namespace longhaul
