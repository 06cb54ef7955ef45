#include "cpu/kernel_table.h"

namespace longhaul::ops {

extern const Table scalar_table;
constinit const Table scalar_table = make_table("scalar");
extern const Table scalar_bf16_table;
constinit const Table scalar_bf16_table = make_bf16_table("scalar");

}  // namespace longhaul::ops
