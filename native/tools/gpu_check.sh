#!/usr/bin/env bash
# For a machine with an NVIDIA GPU: shows that the GPU computes the CPU's bits, and measures it. Prints a table, and writes the same as JSON.
#   native/tools/gpu_check.sh [RESULT.json]
# Its bar is 8 minutes on 8 cores (never measured yet). Needs a C++ compiler, CMake, the driver, and an nvcc of CUDA 12 or newer (LONGHAUL_NVCC,
# the PATH, or what LONGHAUL_CUDA=1 npm run setup installs, which whole runs need too). Compares speeds with PyTorch if the Python
# that LONGHAUL_PYTHON names (default: python3) has it, with transformers. LONGHAUL_GPU_CHECK_DIR names the build folder. Fails if a bit differs or
# a bar is missed.
set -uo pipefail
native=$(cd "$(dirname "$0")/.." && pwd)
result=${1:-gpu-check.json}
case $result in -*) sed -n '2,8s/^# //p' "$0"; exit 2 ;; esac
build=${LONGHAUL_GPU_CHECK_DIR:-${TMPDIR:-/tmp}/longhaul-gpu-check}
installed() { ls -d "${LONGHAUL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longhaul}"/nvcc/*/nvidia/cu13/bin/nvcc 2>/dev/null | tail -1; }
nvcc=${LONGHAUL_NVCC:-$(command -v nvcc || installed)}
fail() { echo "gpu_check.sh: $1" >&2; exit 2; }
[ -n "$nvcc" ] || fail 'there is no nvcc: put one of CUDA 12 or newer on the PATH, or run LONGHAUL_CUDA=1 npm run setup first'
command -v nvidia-smi >/dev/null || fail 'there is no nvidia-smi, and so no NVIDIA driver: this check needs a GPU'
# The same first GPU for nvidia-smi and for the engine.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
gpu=$(nvidia-smi ${CUDA_VISIBLE_DEVICES:+-i "${CUDA_VISIBLE_DEVICES%%,*}"} --query-gpu=name,driver_version,memory.total --format=csv,noheader,nounits | head -1)
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
# passes NAME COMMAND…: a row that says whether the command succeeded; its output is in the build folder. `late`: what it is if it does not end in time.
passes() {
  local title=$1 log=$build/${1//[^a-z0-9]/-}.log start
  shift
  start=$(date +%s%N)
  timeout "${limit:-240}" "$@" >"$log" 2>&1
  local code=$?
  if [ "$code" = 0 ]; then row "$title" "passed in $(seconds "$start")" s passes true
  elif [ "$code" = 124 ]; then row "$title" "not ended within ${limit:-240} s" '' passes "${late:-null}"
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
# quotient EXPRESSION NAME=VALUE…: its value; nothing if a value is missing.
quotient() {
  local expression=$1 one
  local -a given=()
  shift
  for one in "$@"; do
    [ -n "${one#*=}" ] || return 0
    given+=(-v "$one")
  done
  awk "${given[@]}" "BEGIN { printf \"%.6g\", $expression }"
}
two_digits() { [ -z "$1" ] || printf '%.2f' "$1"; }
# measured NAME VALUE UNIT least|most BAR: a row whose value holds the bar or not.
measured() {
  local holds=null
  [ -z "$2" ] || if awk -v v="$2" -v b="$5" -v how="$4" 'BEGIN { exit !(how == "least" ? v >= b : v <= b) }'; then holds=true; else holds=false; fi
  row "$1" "$(two_digits "$2")" "$3" "at $4 $5" "$holds"
}
# tried PROGRAM ARGUMENTS…: its output. A failure becomes a row, unless the model does not fit into the GPU.
tried() {
  local code
  timeout 120 "$build/$1" "${@:2}" 2>"$build/errors.log"
  code=$?
  cat "$build/errors.log" >>"$build/bench.log"
  if [ "$code" != 0 ] && [ "$code" != 124 ] && ! grep -q 'bad_alloc' "$build/errors.log"; then
    echo "$1 ${*:2:3}: code $code, $(tail -1 "$build/errors.log" | tr -d '|"\\' | cut -c1-120)" >>"$build/failures"
  fi
}
# bench DEVICE ARGUMENTS…: the last line of longhaul-bench.
bench() {
  LONGHAUL_DEVICE=$1 tried longhaul-bench "${@:2}" | tail -1
}

mkdir -p "$build"
rm -f "$build/failures"
start=$(date +%s%N)
{
  cmake -S "$native" -B "$build" -DCMAKE_BUILD_TYPE=Release -DLONGHAUL_CUDA=ON "-DLONGHAUL_NVCC=$nvcc" &&
    cmake --build "$build" --parallel "$(nproc)" --target longhaul-engine longhaul-bench longhaul-gpu-rates gpu_tests
} >"$build/build.log" 2>&1 || { tail -20 "$build/build.log" >&2; fail "the build failed; its log: $build/build.log"; }
row 'build of the engine' "$(seconds "$start")" s '' null

export LONGHAUL_DEVICE=cuda
late=false passes 'selftest: policies of each kind, bits of CPU and GPU' "$build/longhaul-engine" --selftest
late=false passes 'kernels, and whole updates of six architectures, bits of CPU and GPU' bash -c kernel_tests

# The same updates, and the digest of the state behind them.
digests=()
for device in cpu cuda; do
  digests+=("$(field "$(bench "$device" train --size 6M --updates 20 --threads "$(nproc)")" state)")
done
if [ -n "${digests[0]}" ] && [ "${digests[0]}" = "${digests[1]}" ]; then holds=true; else holds=false; fi
row 'state after 20 updates, 6 M: CPU and GPU' "${digests[0]:0:16} ${digests[1]:0:16}" digest 'one digest' "$holds"

# Whole runs through the command line, with the engine that was built above.
title='states after 20 steps of a run: CPU, GPU, CPU → GPU → CPU'
line='' code=3 runs_within=240
if command -v node >/dev/null; then
  # It ends by itself, and then needs up to a minute to end its processes.
  line=$(timeout --foreground "$((runs_within + 60))" node "$native/../tools/gpu-runs.mjs" --engine "$build/longhaul-engine" --within "$runs_within" 2>"$build/runs.log" | tail -1)
  code=$?
fi
states=''
for where in cpu device moved; do
  state=$(field "$line" "$where")
  states+="${states:+ }${state:0:16}"
done
case $code in
  0) row "$title" "$states" digest 'one digest' true ;;
  3) row "$title" 'not measured: Node 20, dist/ or Temporal is missing: npm run setup' digest 'one digest' null ;;
  124) row "$title" "not ended within $runs_within s" digest 'one digest' null ;;
  *)
    [ -n "$line" ] || states='a run failed'
    row "$title" "$states" digest 'one digest' false
    tail -5 "$build/runs.log" >&2
    ;;
esac

for device in cpu cuda; do
  row "training, 60 M, sequences of 128: $device" "$(field "$(bench "$device" train --size 60M --seconds 5 --threads "$(nproc)")" tokens_per_second)" tokens/s '' null
  row "sampling, 60 M, 64 at once: $device" "$(field "$(bench "$device" generate --size 60M --seconds 5 --threads "$(nproc)")" tokens_per_second)" tokens/s '' null
done

# What the GPU can do at most, and what is made of it. Training takes 6 operations a token and parameter.
rates=$(tried longhaul-gpu-rates)
line=$(grep '"kind":"peak"' <<<"$rates")
peak=$(field "$line" tflops) bandwidth=$(field "$line" gigabytes_per_second)
row 'multiply-adds in fp32, at most' "$(two_digits "$peak")" Tflop/s '' null
row 'memory, read and written, at most' "$(two_digits "$bandwidth")" GB/s '' null
products=$(grep '"all products"' <<<"$rates")
measured 'products of 1,024 rows and more: the slowest, of the peak' "$(field "$products" lowest_of_peak)" '' least 0.65
line=$(bench cuda train --size 0.6B --sequences 16 --length 1024 --seconds 20 --threads "$(nproc)")
training=$(field "$line" tokens_per_second)
row 'training, 0.6 B, sequences of 1,024' "$(two_digits "$training")" tokens/s '' null
measured 'training, 0.6 B: of the peak' "$(quotient 't * 6 * n / p / 1e12' t="$training" n="$(field "$line" parameters)" p="$peak")" '' least 0.5
measured 'digest and copies of an update, 0.6 B: of its time' \
  "$(quotient '(d + c) / u' d="$(field "$line" digest_seconds)" c="$(field "$line" copy_seconds)" u="$(field "$line" update_seconds)")" '' most 0.1
of_plan=$(field "$line" bytes_of_plan)
measured 'memory of training, 0.6 B: of the plan, no less' "$of_plan" '' least 0.95
measured 'memory of training, 0.6 B: of the plan, no more' "$of_plan" '' most 1.05
line=$(tried longhaul-bench generate --size 0.6B --prompt 1920 --new 128 --seconds 5 --decode 1 --threads "$(nproc)" | grep '"bench":"decode"')
decoding=$(field "$line" tokens_per_second)
row 'decoding, 0.6 B, 64 sequences of 2 k' "$(two_digits "$decoding")" tokens/s '' null
measured 'decoding, 0.6 B: of the nearer limit' "$(quotient 't / (p * 1e12 / f < w * 1e9 / b ? p * 1e12 / f : w * 1e9 / b)' t="$decoding" p="$peak" \
  w="$bandwidth" f="$(field "$line" flops_per_token)" b="$(field "$line" bytes_per_token)")" '' least 0.6

# The same products and the same training in PyTorch, in fp32 without TF32.
python=${LONGHAUL_PYTHON:-python3}
peer() { timeout 120 "$python" "$native/../bench/engine/peers/peer.py" "$@" --device cuda 2>>"$build/bench.log" | tail -1; }
if "$python" -c 'import torch, transformers, sys; sys.exit(not torch.cuda.is_available())' 2>>"$build/bench.log"; then
  measured 'all products: speed, of cuBLAS' "$(quotient 'a / b' a="$(field "$products" tflops)" b="$(field "$(peer gpu_rates)" tflops)")" '' least 0.8
  # PyTorch keeps all logits, so more rows would not fit into 80 GB.
  training=$(field "$(bench cuda train --size 0.6B --sequences 4 --length 1024 --seconds 5 --threads "$(nproc)")" tokens_per_second)
  line=$(peer train --size 0.6B --sequences 4 --length 1024 --seconds 10)
  measured 'training, 0.6 B: speed, of PyTorch' "$(quotient 'a / b' a="$training" b="$(field "$line" tokens_per_second)")" '' least 0.8
else
  row 'speeds beside PyTorch' 'not measured: PyTorch or transformers is not there, or sees no GPU' '' 'at least 0.8' null
fi

sanitizer=$(command -v compute-sanitizer || ls "$(dirname "$nvcc")"/compute-sanitizer 2>/dev/null)
if [ -z "$sanitizer" ]; then
  timeout 60 python3 -m pip install --quiet --no-deps --require-hashes --only-binary :all: --target "$build/sanitizer" \
    --requirement "$native/tools/sanitizer-requirements.txt" >>"$build/bench.log" 2>&1 && sanitizer=$build/sanitizer/nvidia/cu13/bin/compute-sanitizer
fi
limit=90
for tool in memcheck racecheck initcheck synccheck; do
  if [ -z "$sanitizer" ]; then row "compute-sanitizer $tool" 'not measured: not installed' '' '0 findings' null
  else passes "compute-sanitizer $tool" "$sanitizer" --tool "$tool" --error-exitcode 9 "$build/longhaul-bench" generate --size 0.85M --batch 4 --new 16 --seconds 0; fi
done

if [ -s "$build/failures" ]; then
  while read -r failure; do row 'a program failed' "$failure" '' none false; done <"$build/failures"
fi
echo "$name, driver ${driver# }, ${memory# } MiB, $(date -u +%F), commit $(git -C "$native" rev-parse --short HEAD 2>/dev/null || echo unknown)"
printf '%-72s %-50s %-9s %-10s %s\n' what value unit bar holds
for line in "${rows[@]}"; do
  IFS='|' read -r what value unit bar holds <<<"$line"
  printf '%-72s %-50s %-9s %-10s %s\n' "$what" "${value:-not measured}" "$unit" "$bar" "${holds/null/–}"
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
