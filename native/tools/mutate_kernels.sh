#!/usr/bin/env bash
# Shows that the kernels' tests notice what makes bits wrong: changes a copy of a kernel in one place (the order of a sum, a
# contraction, a mask), and runs its test under the emulated device, which must fail. Takes 3 minutes on 2 cores; `npm run test:nightly` runs it.
#   native/tools/mutate_kernels.sh BUILD     BUILD: a build folder of native/ with the target longhaul_cuda_emulated
set -uo pipefail
native=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: mutate_kernels.sh BUILD}" && pwd)
libraries=("$build/liblonghaul_cuda_emulated.a" "$build/liblonghaul_engine_core.a")
ls "${libraries[@]}" >/dev/null || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 -O2 -march=x86-64-v3 -fno-strict-aliasing -ffp-contract=off -fno-fast-math -w)
total=0 unnoticed=0

# mutation TEST FILE OLD NEW: FILE is in src/cuda; OLD is text that stands there at least once, and all of it is replaced.
mutation() {
  local test=$1 file=$2 old=$3 new=$4 verdict
  total=$((total + 1))
  rm -rf "$work/src" "$work/mutated"
  cp -r "$native/src" "$work/src"
  if ! OLD=$old NEW=$new perl -0pi -e 'BEGIN { $n = 0 } $n += s/\Q$ENV{OLD}\E/$ENV{NEW}/g; END { exit !$n }' "$work/src/cuda/$file"; then
    echo "mutate_kernels.sh: $file has no \"$old\" any more" >&2
    exit 2
  fi
  # All files of kernels that see the change; their objects stand before the library's.
  local sources
  case $file in
    *.cu) sources=("$work/src/cuda/$file") ;;
    *tile_products.cuh) sources=("$work"/src/cuda/kernels/attention/attention*.cu) ;;
    *) sources=("$work"/src/cuda/kernels/{head,norms,optimizer,rows}.cu "$work"/src/cuda/kernels/attention/attention*.cu) ;;
  esac
  mkdir "$work/mutated"
  printf '%s\n' "${sources[@]}" | xargs -P 2 -I{} sh -c 'g++ "$@" -I"$0/src" -x c++ -c {} -o "$0/mutated/$(basename {}).o"' "$work" "${flags[@]}" || exit 2
  test_object "$test" || exit 2
  g++ "$work/$test.o" "$work"/mutated/*.o "${libraries[@]}" -lpthread -o "$work/mutant" || exit 2
  timeout 300 "$work/mutant" >"$work/log" 2>&1
  # 1 is the test's own verdict; a crash would show nothing.
  [ $? = 1 ] && verdict=noticed || verdict='NOT NOTICED'
  [ "$verdict" = noticed ] || unnoticed=$((unnoticed + 1))
  printf '%-12s %s: %s  ->  %s\n' "$verdict" "$file" "${old//$'\n'*/ …}" "$new"
}
# Compiles a test, once; without a mutation it must pass.
test_object() {
  [ ! -f "$work/$1.o" ] || return 0
  g++ "${flags[@]}" -I"$native/src" -I"$native/tests" -c "$native/tests/cuda/$1.cc" -o "$work/$1.o" &&
    g++ "$work/$1.o" "${libraries[@]}" -lpthread -o "$work/right" && timeout 300 "$work/right" >"$work/log" 2>&1 && return 0
  echo "mutate_kernels.sh: $1 fails without a mutation" >&2
  return 1
}

# Order of sums.
mutation products_test kernels/products.cu 'for (int k = 0; k < T::depth; ++k)' 'for (int k = T::depth - 1; k >= 0; --k)'
mutation tensor_core_products_test kernels/tensor_core_products.cu 'b[j / 2][j % 2 + 2]' 'b[j / 2][j % 2]'
mutation tensor_core_products_test kernels/tensor_core_products.cu 'for (int k = 0; k < depth; k += 16)' 'for (int k = depth - 16; k >= 0; k -= 16)'
mutation tensor_core_products_test kernels/tensor_core_products.cu 'if (g.bias) sum = __fadd_rn(sum, value_of(g.bias[column]));
    if (store == Store::residual) sum = __fadd_rn(value_of(y), sum);' 'if (store == Store::residual) sum = __fadd_rn(value_of(y), sum);
    if (g.bias) sum = __fadd_rn(sum, value_of(g.bias[column]));'
mutation norms_test kernels/norms.cu 'for (size_t row = first; row < size_t(last); ++row)' 'for (size_t row = size_t(last); row-- > size_t(first);)'
mutation norms_test kernels/norms.cu 'a.x[at + i] * inverse * a.weight[i]' 'a.x[at + i] * (inverse * a.weight[i])'
mutation norms_test device/exact.h 'full_warp, v, 8)' 'full_warp, v, 1 + 0)'
mutation rows_test kernels/rows.cu 'for (int block = count - 1; block >= 0; --block)' 'for (int block = 0; block < count; ++block)'
mutation rows_test kernels/rows.cu 'at[0] * sigmoid(at[0]) * at[f]' 'at[0] * (sigmoid(at[0]) * at[f])'
mutation optimizer_test kernels/optimizer.cu 'step.one_minus_beta2 * (g * g)' '(step.one_minus_beta2 * g) * g'
mutation attention_test kernels/attention/attention.cu '(score[g] - top[g]) * scale' '(score[g] * scale - top[g] * scale)'
mutation attention_test kernels/attention/attention.cu 'lane_sum[g] += p;
      lane_sum[g] += other;' 'lane_sum[g] += p + other;'
mutation attention_test kernels/attention/tile_products.cuh '__fmaf_rn(q.x, k.x, products[g])' '__fmaf_rn(q.w, k.w, products[g]) - q.w * k.w + q.x * k.x'
mutation attention_backward_test kernels/attention/attention_backward.cu 'p * scale * (d_probability[g] - memory.pulls[row])' 'p * (scale * (d_probability[g] - memory.pulls[row]))'
mutation attention_backward_test kernels/attention/attention_backward.cu 'b.readers[tile.first_reader + r]' 'b.readers[tile.first_reader + tile.readers - 1 - r]'

# Contractions, and their absence.
mutation products_test kernels/products.cu '__fmaf_rn(x[i], y[j], sum[i][j])' 'sum[i][j] + x[i] * y[j]'
mutation norms_test kernels/norms.cu '__fmaf_rn(x[i], x[i], squares)' 'squares + x[i] * x[i]'
mutation norms_test kernels/norms.cu 'a * c - b * s' '__fmaf_rn(a, c, 0.0f - b * s)'
mutation head_test kernels/head.cu 'factor * p - scale' '__fmaf_rn(factor, p, 0.0f - scale)'
mutation head_test device/exact.h '__fmaf_rn(p, r * r, r + 1.0f)' '(__fmaf_rn(p, r * r, r) + 1.0f)'
mutation optimizer_test kernels/optimizer.cu '__fmaf_rn(x[i], x[i], total)' 'total + x[i] * x[i]'
mutation attention_test kernels/attention/tile_products.cuh '__fmaf_rn(p.x, a, sums[slot][e])' 'sums[slot][e] + p.x * a'

# Masks and ends.
mutation products_test kernels/products.cu 'if (rest >= T::depth)' 'if (true)'
mutation products_test kernels/products.cu 'g.accumulate && row < g.m' 'row < g.m'
mutation rows_test kernels/rows.cu 'Accumulate ? *target : next()' 'Accumulate ? *target : 0.0f'
mutation optimizer_test kernels/optimizer.cu 'a.decayed[i / lanes]' 'a.decayed[i / (2 * lanes)]'
mutation attention_test kernels/attention/attention.cu 'first + lane <= places[row] ?' 'first + lane < places[row] ?'
mutation attention_backward_test kernels/attention/attention_backward.cu 'if (e < seen)' 'if (e < seen - 1)'
mutation attention_backward_test kernels/attention/tile_products.cuh 'if (first_place + j <= places' 'if (first_place + j < places'
mutation attention_backward_test kernels/attention/attention_backward.cu 'smaller(tile.rows, last_place + 1 - tile.first_place)' 'tile.rows'

echo "$((total - unnoticed)) of $total mutations are noticed"
[ "$unnoticed" = 0 ]
