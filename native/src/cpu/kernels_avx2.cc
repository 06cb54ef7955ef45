#include "cpu/kernel_table.h"

namespace longhaul::ops {

extern const Table avx2_table;
constinit const Table avx2_table = make_table("avx2");
extern const Table avx2_bf16_table;
constinit const Table avx2_bf16_table = make_bf16_table("avx2");

}  // namespace longhaul::ops
