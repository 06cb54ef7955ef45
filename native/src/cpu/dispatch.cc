// The only file that knows which instruction sets exist.
#include <atomic>
#include <stdexcept>
#include <string>

#include "cpu/scratch.h"
#include "ops/ops.h"

namespace longhaul::ops {

extern const Table scalar_table;
extern const Table avx2_table;
extern const Table avx512_table;
extern const Table scalar_bf16_table;
extern const Table avx2_bf16_table;
extern const Table avx512_bf16_table;

namespace {

const Table& table_of(InstructionSet set, Arithmetic arithmetic) {
  const bool bf16 = arithmetic == Arithmetic::bf16;
  switch (set) {
    case InstructionSet::avx512:
      return bf16 ? avx512_bf16_table : avx512_table;
    case InstructionSet::avx2:
      return bf16 ? avx2_bf16_table : avx2_table;
    case InstructionSet::scalar:
      break;
  }
  return bf16 ? scalar_bf16_table : scalar_table;
}

std::atomic<InstructionSet>& current() {
  static std::atomic<InstructionSet> set{best_instruction_set()};
  return set;
}

}  // namespace

bool supported(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && supported(InstructionSet::avx2);
    case InstructionSet::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case InstructionSet::scalar:
      break;
  }
  return true;
}

InstructionSet best_instruction_set() {
  if (supported(InstructionSet::avx512)) return InstructionSet::avx512;
  return supported(InstructionSet::avx2) ? InstructionSet::avx2 : InstructionSet::scalar;
}

void set_instruction_set(InstructionSet set) {
  if (!supported(set))
    throw std::invalid_argument(std::string("instruction_set: this machine has no ") + name(set) + "; use " +
                                name(best_instruction_set()));
  current().store(set);
}

InstructionSet instruction_set() { return current().load(std::memory_order_relaxed); }

const char* name(InstructionSet set) { return table_of(set, Arithmetic::fp32).name; }

const Table& table(Arithmetic arithmetic) { return table_of(instruction_set(), arithmetic); }

void size_panels(Panels& out, int depth, int columns) {
  out.depth = depth;
  out.columns = columns;
  const size_t size = size_t(panel_count(columns)) * depth * panel_columns;
  // Columns past the end of the last panel must be zero.
  if (out.values.size() < size || columns % panel_columns != 0) out.values.resize(size);
}

void pack_transposed(const float* w, int n, int k, Panels& out) {
  size_panels(out, k, n);
  table().pack_transposed(w, size_t(k), out, 0, panel_count(n));
}

void pack(const float* x, size_t ldx, int k, int n, Panels& out) {
  size_panels(out, k, n);
  table().pack(x, ldx, out, 0, panel_count(n));
}

float* scratch(Scratch purpose, size_t size) {
  static thread_local AlignedBuffer buffers[size_t(Scratch::count)];
  return buffers[size_t(purpose)].scratch(size);
}

}  // namespace longhaul::ops
