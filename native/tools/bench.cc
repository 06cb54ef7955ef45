// longhaul-bench train|generate|gemm|sharing [--option value …]: measures the engine on this machine, on the device that LONGHAUL_DEVICE
// chooses; one JSON object per line. Every subcommand takes --set scalar|avx2|avx512; its other options are listed in its header.
#include "bench/gemm.h"
#include "bench/generate.h"
#include "bench/sharing.h"
#include "bench/train.h"

namespace {

void choose_instruction_set(const std::string& wanted) {
  using longhaul::ops::InstructionSet;
  if (wanted.empty()) return;
  for (const InstructionSet set : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512})
    if (wanted == longhaul::ops::name(set)) return longhaul::ops::set_instruction_set(set);
  throw std::invalid_argument("--set is \"" + wanted + "\"; it must be scalar, avx2 or avx512");
}

}  // namespace

int main(int argc, char** argv) {
  using namespace longhaul::bench;
  constexpr std::pair<const char*, void (*)(Options)> benchmarks[] = {
      {"train", bench_train}, {"generate", bench_generate}, {"gemm", bench_gemm}, {"sharing", bench_sharing}};
  try {
    const std::string wanted = argc > 1 ? argv[1] : "";
    for (const auto& [name, benchmark] : benchmarks) {
      if (wanted != name) continue;
      Options options(argc - 2, argv + 2);
      choose_instruction_set(options.text("set", ""));
      benchmark(std::move(options));
      return 0;
    }
    throw std::invalid_argument("usage: longhaul-bench train|generate|gemm|sharing [--option value ...]");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "longhaul-bench: %s\n", error.what());
    return 1;
  }
}
