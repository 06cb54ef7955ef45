// Writes scattered rows as the columns of a panel: products read weights and keys in this form.
#pragma once

#include "cpu/vec16.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

constexpr int transpose_step = 8;

// panel[d, j] = rows[j][d] for eight rows and eight d
#if defined(__AVX2__)
inline void transpose_eight(const float* const* rows, int offset, float* panel) {
  __m256 row[8], pairs[8], fours[8];
  for (int j = 0; j < 8; ++j) row[j] = _mm256_loadu_ps(rows[j] + offset);
  for (int j = 0; j < 8; j += 2) {
    pairs[j] = _mm256_unpacklo_ps(row[j], row[j + 1]);
    pairs[j + 1] = _mm256_unpackhi_ps(row[j], row[j + 1]);
  }
  for (int j = 0; j < 8; j += 4) {
    fours[j] = _mm256_shuffle_ps(pairs[j], pairs[j + 2], 0x44);
    fours[j + 1] = _mm256_shuffle_ps(pairs[j], pairs[j + 2], 0xEE);
    fours[j + 2] = _mm256_shuffle_ps(pairs[j + 1], pairs[j + 3], 0x44);
    fours[j + 3] = _mm256_shuffle_ps(pairs[j + 1], pairs[j + 3], 0xEE);
  }
  for (int d = 0; d < 4; ++d) {
    _mm256_storeu_ps(panel + d * panel_columns, _mm256_permute2f128_ps(fours[d], fours[d + 4], 0x20));
    _mm256_storeu_ps(panel + (d + 4) * panel_columns, _mm256_permute2f128_ps(fours[d], fours[d + 4], 0x31));
  }
}
#else
inline void transpose_eight(const float* const* rows, int offset, float* panel) {
  for (int d = 0; d < transpose_step; ++d)
    for (int j = 0; j < transpose_step; ++j) panel[d * panel_columns + j] = rows[j][offset + d];
}
#endif

// panel[d, j] = rows[j][d] for j in [0, count), count ≤ 32, and d in [0, width); other columns stay as they are.
inline void rows_to_panel(const float* const* rows, int count, int width, float* panel) {
  int d = 0;
  for (; d + transpose_step <= width; d += transpose_step) {
    float* part = panel + size_t(d) * panel_columns;
    int j = 0;
    for (; j + transpose_step <= count; j += transpose_step) transpose_eight(rows + j, d, part + j);
    for (; j < count; ++j)
      for (int e = 0; e < transpose_step; ++e) part[e * panel_columns + j] = rows[j][d + e];
  }
  for (; d < width; ++d)
    for (int j = 0; j < count; ++j) panel[size_t(d) * panel_columns + j] = rows[j][d];
}

}  // namespace
}  // namespace longhaul::ops
