#!/usr/bin/env bash
# Fuzzes the readers of input from a peer, a file or a model folder: frames, safetensors, configurations. Needs clang 14 or later.
#   native/fuzz/run.sh [seconds per fuzzer, default 20]
# Prints the executions and crashes of each fuzzer, and fails if there is a crash. The build, the corpora and the crashing inputs lie in
# LONGHAUL_FUZZ_DIR (default: longhaul-fuzz in the temporary folder), so that the next run continues from there.
set -euo pipefail
seconds=${1:-20}
native=$(cd "$(dirname "$0")/.." && pwd)
work=${LONGHAUL_FUZZ_DIR:-${TMPDIR:-/tmp}/longhaul-fuzz}
compiler=${CXX:-$(command -v clang++ || command -v clang++-14 || true)}
if [ -z "$compiler" ]; then
  echo 'fuzz/run.sh: there is no clang++; install clang, or name it in CXX' >&2
  exit 2
fi
mkdir -p "$work/corpus" "$work/crashes"
cmake -S "$native" -B "$work/build" -DLONGHAUL_FUZZ=ON -DCMAKE_CXX_COMPILER="$compiler" > "$work/build.log"
cmake --build "$work/build" -j "$(nproc)" --target frame_fuzz safetensors_fuzz config_fuzz fuzz_seeds >> "$work/build.log" || { tail -50 "$work/build.log" >&2; exit 2; }
"$work/build/fuzz_seeds" "$work/corpus"
total=0
crashes=0
for fuzzer in frame_fuzz safetensors_fuzz config_fuzz; do
  log=$work/$fuzzer.log
  found=0
  "$work/build/$fuzzer" "$work/corpus/$fuzzer" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix="$work/crashes/$fuzzer-" > "$log" 2>&1 || found=1
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "$fuzzer: ${executed:-0} executions, $found crashes"
  if [ "$found" = 1 ]; then tail -40 "$log"; fi
  total=$((total + ${executed:-0}))
  crashes=$((crashes + found))
done
echo "in all: $total executions, $crashes crashes"
[ "$crashes" = 0 ]
