#!/usr/bin/env bash
# Checks the kernels that compile_cuda.sh compiled to FOLDER:
#  - Each floating-point instruction of the PTX rounds as IEEE 754 says or is exact. So the kernels can have the CPU's bits. (A sum without
#    `.rn` may be contracted with a product by ptxas: the file was compiled without -fmad=false.)
#  - ptxas keeps every value in registers: no stack, no spills.
# Usage: check_ptx.sh [--table] FOLDER       --table prints each kernel's registers, stack and spills
set -euo pipefail
table=0
if [ "${1:-}" = --table ]; then
  table=1
  shift
fi
folder=$1
shopt -s nullglob
logs=("$folder"/*.log) ptx=("$folder"/*.ptx)
if [ ${#logs[@]} = 0 ] || [ ${#ptx[@]} = 0 ]; then
  echo "check_ptx.sh: no kernels in $folder" >&2
  exit 1
fi

# Entries and wrong instructions of the PTX; one line for each kind of wrong instruction in a kernel.
instructions=$(awk '
  { sub(/\/\/.*/, "") }
  /\.entry/ { kernel = $0; sub(/.*\.entry +/, "", kernel); sub(/\(.*/, "", kernel); ++entries }
  {
    op = $1 ~ /^@/ ? $2 : $1
    sub(/;.*/, "", op)
    if (op !~ /^[a-z]/) next
    if (op ~ /\.(ftz|approx|full)(\.|$)/) { ++wrong[kernel " has " op]; next }
    if (op !~ /\.(f16|f16x2|bf16|bf16x2|tf32|f32|f32x2|f64|e4m3|e5m2|e4m3x2|e5m2x2)(\.|$)/) next
    if (op ~ /^(add|sub|mul|fma|div|sqrt)\.rn\.(f32|f64)$/) next
    if (op ~ /^cvt\.rn\.f(32|64)\.[su](8|16|32|64)$/ || op == "cvt.f64.f32" || op == "cvt.rn.f32.f64") next
    if (op ~ /^(mov|ld|st|setp|selp|neg|abs)\./) next
    # The tensor core sums as base/tensor_core.h says.
    if (op == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" || op == "cvt.rn.bf16x2.f32") next
    ++wrong[kernel " has " op]
  }
  END {
    print "entries", entries + 0
    for (line in wrong) print line, "(" wrong[line] " times)"
  }' "${ptx[@]}")

# Kernels, and those that spill, by the reports of ptxas.
registers=$(awk -v table=$table '
  /Compiling entry function/ { split($0, parts, "\047"); kernel = parts[2] " for " parts[4]; ++kernels }
  /bytes stack frame/ { stack = $1; stores = $5; loads = $9 }
  /Used [0-9]+ registers/ {
    used = $0; sub(/.*Used /, "", used); sub(/ registers.*/, "", used)
    numbers = used " registers, " stack " bytes of stack, " stores " bytes of spill stores, " loads " bytes of spill loads"
    if (table) print "table " kernel ": " numbers
    if (stack > 0 || stores > 0 || loads > 0) print kernel ": " numbers
  }
  END { print "kernels", kernels + 0 }' "${logs[@]}")

readable() { c++filt | sed -E 's/longhaul::cuda::(\(anonymous namespace\)::)?//g'; }
if [ $table = 1 ]; then sed -n 's/^table //p' <<<"$registers" | readable | sort; fi
entries=$(sed -n 's/^entries //p' <<<"$instructions") kernels=$(sed -n 's/^kernels //p' <<<"$registers")
wrong=$(printf '%s\n%s\n' "$instructions" "$registers" | grep -vE '^(entries|kernels|table) |^$' || true)
if [ "$entries" = 0 ] || [ "$entries" != "$kernels" ]; then
  wrong+=$'\n'"The PTX has $entries kernels, ptxas reported $kernels."
fi
if [ -n "$wrong" ]; then
  echo "check_ptx.sh: kernels that must not be used:" >&2
  readable <<<"$wrong" | sort | sed 's/^/  /' >&2
  exit 1
fi
echo "check_ptx.sh: $kernels kernels, IEEE arithmetic only, values in registers"
