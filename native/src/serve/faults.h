// Ways for a test to end the process, or to make it stand still (docs/engine-protocol.md, `fault`).
// defines: raise_fault
#pragma once

#include <string>

namespace longhaul {

// Kinds: `abort`, `segfault`, `hang` (all threads stop until the process is continued) and `stall` (this thread waits for ever). Throws
// RequestError on any other kind.
void raise_fault(const std::string& kind);

}  // namespace longhaul
