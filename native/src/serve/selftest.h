// What `longhaul-engine --selftest` does: on every instruction set of this machine, tiny policies of every kind are drawn,
// sampled from, scored and trained by one step; all must agree with each other to the bit.
// defines: run_selftest
#pragma once

namespace longhaul {

// Prints one line a check; returns the exit code.
int run_selftest();

}  // namespace longhaul
