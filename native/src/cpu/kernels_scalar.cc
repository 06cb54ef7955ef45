#include "cpu/kernel_table.h"

namespace longhaul::ops {

extern const Table scalar_table;
constinit const Table scalar_table = make_table("scalar");

}  // namespace longhaul::ops
