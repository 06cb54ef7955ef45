#!/usr/bin/env bash
# For a machine with an NVIDIA GPU: shows that the GPU computes the CPU's bits, and measures it. Prints a table, and writes the same as JSON.
#   native/tools/gpu_check.sh [RESULT.json]
# Its bar is 8 minutes on 8 cores (never measured yet). Needs a C++ compiler, CMake, the driver, and an nvcc of CUDA 12 or newer (LONGHAUL_NVCC, the PATH, or
# what LONGHAUL_CUDA=1 npm run build:native installs). LONGHAUL_GPU_CHECK_DIR names the build folder. Fails if a bit differs.
set -uo pipefail
native=$(cd "$(dirname "$0")/.." && pwd)
result=${1:-gpu-check.json}
build=${LONGHAUL_GPU_CHECK_DIR:-${TMPDIR:-/tmp}/longhaul-gpu-check}
installed() { ls -d "${XDG_CACHE_HOME:-$HOME/.cache}"/longhaul/nvcc/*/nvidia/cu13/bin/nvcc 2>/dev/null | tail -1; }
nvcc=${LONGHAUL_NVCC:-$(command -v nvcc || installed)}
fail() { echo "gpu_check.sh: $1" >&2; exit 2; }
[ -n "$nvcc" ] || fail 'there is no nvcc: put one of CUDA 12 or newer on the PATH, or run LONGHAUL_CUDA=1 npm run build:native first'
command -v nvidia-smi >/dev/null || fail 'there is no nvidia-smi, and so no NVIDIA driver: this check needs a GPU'
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader,nounits | head -1)
[ -n "$gpu" ] || fail 'nvidia-smi shows no GPU'
IFS=, read -r name driver memory <<<"$gpu"

rows=()
failed=0
# row NAME VALUE UNIT BAR HOLDS; HOLDS is true, false or null (no bar, or not measured).
row() {
  rows+=("$1|$2|$3|$4|$5")
  [ "$5" != false ] || failed=1
}
seconds() { printf '%.1f' "$(($(date +%s%N) - $1))e-9"; }
# passes NAME COMMAND…: a row that says whether the command succeeded; its output is in the build folder.
passes() {
  local title=$1 log=$build/${1//[^a-z0-9]/-}.log start
  shift
  start=$(date +%s%N)
  timeout "${limit:-240}" "$@" >"$log" 2>&1
  local code=$?
  if [ "$code" = 0 ]; then row "$title" "passed in $(seconds "$start")" s passes true
  elif [ "$code" = 124 ]; then row "$title" "not ended within ${limit:-240} s" '' passes null
  else
    row "$title" "failed after $(seconds "$start")" s passes false
    tail -5 "$log" >&2
  fi
}
# A test that finds no device is skipped, which would be no check here.
kernel_tests() {
  ctest --test-dir "$build" --tests-regex '^gpu/.*_test$' --no-tests=error --output-on-failure | tee "$build/ctest.log"
  [ "${PIPESTATUS[0]}" = 0 ] && ! grep -q 'Skipped' "$build/ctest.log"
}
export -f kernel_tests
export build
# field LINE NAME: a member of one line of JSON.
field() { sed -n "s/.*\"$2\": *\"\{0,1\}\([^,\"}]*\).*/\1/p" <<<"$1"; }
# bench DEVICE ARGUMENTS…: the last line of longhaul-bench.
bench() {
  local device=$1
  shift
  LONGHAUL_DEVICE=$device timeout 120 "$build/longhaul-bench" "$@" 2>>"$build/bench.log" | tail -1
}

mkdir -p "$build"
start=$(date +%s%N)
{
  cmake -S "$native" -B "$build" -DCMAKE_BUILD_TYPE=Release -DLONGHAUL_CUDA=ON "-DLONGHAUL_NVCC=$nvcc" &&
    cmake --build "$build" --parallel "$(nproc)" --target longhaul-engine longhaul-bench gpu_tests
} >"$build/build.log" 2>&1 || { tail -20 "$build/build.log" >&2; fail "the build failed; its log: $build/build.log"; }
row 'build of the engine' "$(seconds "$start")" s '' null

export LONGHAUL_DEVICE=cuda
passes 'selftest: policies of each kind, bits of CPU and GPU' "$build/longhaul-engine" --selftest
passes 'kernels, and whole updates of six architectures, bits of CPU and GPU' bash -c kernel_tests

# The same updates, and the digest of the state behind them.
digests=()
for device in cpu cuda; do
  digests+=("$(field "$(bench "$device" train --size 6M --updates 20 --threads "$(nproc)")" state)")
done
if [ -n "${digests[0]}" ] && [ "${digests[0]}" = "${digests[1]}" ]; then holds=true; else holds=false; fi
row 'state after 20 updates, 6 M: CPU and GPU' "${digests[0]:0:16} ${digests[1]:0:16}" digest 'one digest' "$holds"

for device in cpu cuda; do
  row "training, 60 M, sequences of 128: $device" "$(field "$(bench "$device" train --size 60M --seconds 5 --threads "$(nproc)")" tokens_per_second)" tokens/s '' null
  row "sampling, 60 M, 64 at once: $device" "$(field "$(bench "$device" generate --size 60M --seconds 5 --threads "$(nproc)")" tokens_per_second)" tokens/s '' null
done
line=$(bench cuda train --size 0.6B --sequences 4 --length 1024 --seconds 20 --threads "$(nproc)")
row 'training, 0.6 B, sequences of 1,024' "$(field "$line" tokens_per_second)" tokens/s '' null
line=$(bench cuda generate --size 0.6B --prompt 512 --new 128 --seconds 20 --threads "$(nproc)")
row 'sampling, 0.6 B, 64 at once behind 512 tokens' "$(field "$line" tokens_per_second)" tokens/s '' null

sanitizer=$(command -v compute-sanitizer || ls "$(dirname "$nvcc")"/compute-sanitizer 2>/dev/null)
limit=60
for tool in memcheck racecheck initcheck synccheck; do
  if [ -z "$sanitizer" ]; then row "compute-sanitizer $tool" 'not measured: not installed' '' '0 findings' null
  else passes "compute-sanitizer $tool" "$sanitizer" --tool "$tool" --error-exitcode 9 "$build/longhaul-bench" generate --size 0.85M --batch 4 --new 16 --seconds 0; fi
done

echo "$name, driver $driver, $memory MiB, $(date -u +%F), commit $(git -C "$native" rev-parse --short HEAD 2>/dev/null || echo unknown)"
printf '%-72s %-36s %-9s %-10s %s\n' what value unit bar holds
for line in "${rows[@]}"; do
  IFS='|' read -r what value unit bar holds <<<"$line"
  printf '%-72s %-36s %-9s %-10s %s\n' "$what" "${value:-not measured}" "$unit" "$bar" "${holds/null/–}"
done
{
  printf '{"gpu":"%s","driver":"%s","memory_mib":"%s","date":"%s","commit":"%s","rows":[' "$name" "${driver# }" "${memory# }" "$(date -u +%F)" \
    "$(git -C "$native" rev-parse HEAD 2>/dev/null)"
  separator=''
  for line in "${rows[@]}"; do
    IFS='|' read -r what value unit bar holds <<<"$line"
    printf '%s{"name":"%s","value":"%s","unit":"%s","bar":"%s","holds":%s}' "$separator" "$what" "$value" "$unit" "$bar" "$holds"
    separator=,
  done
  printf ']}\n'
} >"$result"
echo "written: $result; please send it in, whatever it says"
exit "$failed"
