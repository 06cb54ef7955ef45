#include "cpu/kernel_table.h"

namespace longhaul::ops {

extern const Table avx512_table;
constinit const Table avx512_table = make_table("avx512");
extern const Table avx512_bf16_table;
constinit const Table avx512_bf16_table = make_bf16_table("avx512");

}  // namespace longhaul::ops
