// Rows of logits: normalisers, log-probs, draws, entropies and gradients, with the bits of cpu/head_kernels.h. Logits are [rows, vocab].
//
// There is no truncated draw (top_p, top_k): it sorts a part of the row and weighs tokens in double precision. The host does it with
// `draw_truncated` (model/inference/sample.h) on a copy of the row.
#pragma once

#include <cstdint>

#include "cuda/device/stream.h"
#include "ops/ops.h"

namespace longhaul::cuda {

/// The normaliser of each row and, unless `tokens` is null, the log-prob of one token of it.
struct NormalizeRows {
  const float* logits;
  int rows, vocab;
  float inverse_temperature;
  ops::RowNormalizer* normalizers;  // [rows]; not finite if a logit is not
  const int32_t* tokens;            // [rows], or null
  float* logprobs;                  // [rows], or null with `tokens`
};

void normalize_rows(const NormalizeRows& args, Stream stream);

/// Entropies of the rows' distributions, in nats.
struct RowEntropies {
  const float* logits;
  int rows, vocab;
  float inverse_temperature;
  const ops::RowNormalizer* normalizers;  // [rows]
  float* entropies;                       // [rows]
};

void row_entropies(const RowEntropies& args, Stream stream);

/// How a row's token is drawn; uniform in [0, 1).
struct RowDraw {
  float inverse_temperature, uniform;
};

/// Token −1 and log-prob NaN if a logit is not finite.
struct DrawnToken {
  int32_t token;
  float logprob;
};

/// Draws a token from each row's whole distribution, as draw_row does.
struct DrawRows {
  const float* logits;
  int rows, vocab;
  const RowDraw* draws;  // [rows]
  DrawnToken* drawn;     // [rows]
};

void draw_rows(const DrawRows& args, Stream stream);

/// In place: logits → scale · (softmax − onehot(token)) and, if `entropies` is not null,
/// + entropy_scale · p_j · (log p_j + entropy).
struct SoftmaxGradient {
  float* logits;
  int rows, vocab;
  float inverse_temperature;
  const ops::RowNormalizer* normalizers;  // [rows], as all that follow
  const int32_t* tokens;
  const float* scales;
  const float* entropies;
  const float* entropy_scales;  // null with `entropies`
};

void softmax_gradient(const SoftmaxGradient& args, Stream stream);

namespace testing {

/// These without barrier `fault` of their kernel: 1 or 2, for entropies only 1.
void normalize_rows(const NormalizeRows& args, Stream stream, int fault);
void row_entropies(const RowEntropies& args, Stream stream, int fault);
void draw_rows(const DrawRows& args, Stream stream, int fault);

}  // namespace testing

}  // namespace longhaul::cuda
