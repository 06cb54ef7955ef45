#!/usr/bin/env bash
# Compiles a file of kernels with nvcc, and writes beside the object what check_ptx.sh reads: OBJECT.compute_*.ptx, and the report of ptxas
# in OBJECT.log. OBJECT.d lists the files that SOURCE includes.
# Usage: compile_cuda.sh OBJECT SOURCE NVCC [FLAG...]
set -euo pipefail
object=$1 source=$2
shift 2

keep=$object.keep
rm -rf "$keep" "$object".*.ptx
mkdir -p "$keep"
trap 'rm -rf "$keep"' EXIT
if ! "$@" -Xptxas -v --keep --keep-dir "$keep" -MD -MF "$object.d" -c "$source" -o "$object" >"$object.log" 2>&1; then
  cat "$object.log" >&2
  exit 1
fi
grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame' "$object.log" >&2 || true
for ptx in "$keep"/*.ptx; do
  name=${ptx##*/}
  mv "$ptx" "$object.${name#*.}"
done
