// `longhaul-engine --selftest`: on every instruction set of this machine, makes tiny policies of every kind, samples
// from them, scores the samples, and trains one step. All results must agree to the bit.
// defines: run_selftest
#pragma once

namespace longhaul {

// Prints one line per check; returns the exit code.
int run_selftest();

}  // namespace longhaul
