// Ways for a test to end the process, or to make it stand still (docs/engine-protocol.md, `fault`).
// defines: raise_fault
#pragma once

#include <string>

namespace longhaul {

// `abort`, `segfault`, `hang` (all threads stop until they are continued) or `stall` (this thread waits for ever). Throws RequestError on
// another kind.
void raise_fault(const std::string& kind);

}  // namespace longhaul
