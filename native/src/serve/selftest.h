// `longhaul-engine --selftest`: on every instruction set of this machine, makes tiny policies of every kind, samples
// from them, scores the samples, and trains one step. All results must agree to the bit.
// defines: run_selftest, require_oracle_bits
#pragma once

#include "backend/backend.h"

namespace longhaul {

// Prints one line per check; returns the exit code. `make_backend`: makes the process's backend, and throws if that has other bits than the
// oracle of `numerics`.
int run_selftest(MakeBackend make_backend, const Numerics& numerics);

// The same on a device, compared with the oracle of its numerics. Throws RequestError("DeviceDiffers") that names the first value with other bits. The
// device holds the selftest's last policy afterwards.
void require_oracle_bits(Backend& device, ThreadPool& pool);

}  // namespace longhaul
