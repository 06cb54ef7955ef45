// Compares each operation on rows with its formula in double precision; the bits are the same on every instruction set.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "support/every_set.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

std::vector<double> in_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }

std::string of_size(const char* what, int size) { return std::string(what) + " of " + std::to_string(size); }

void rms_norm_and_its_gradient() {
  constexpr float eps = 1e-6f;
  for (const int width : {16, 48, 80, 128, 256}) {
    const int rows = 5;
    const size_t n = size_t(rows) * width;
    const std::vector<float> x = random_values(n, 1), weight = scaled(random_values(size_t(width), 2), 1, 1),
                             dy = random_values(n, 3), dx_before = random_values(n, 4), dw_before = random_values(size_t(width), 5);
    std::vector<double> y(n), dx = in_double(dx_before), dw = in_double(dw_before);
    for (int r = 0; r < rows; ++r) {
      double squares = 0, projection = 0;
      const size_t row = size_t(r) * width;
      for (int i = 0; i < width; ++i) squares += double(x[row + i]) * x[row + i];
      const double inverse = 1 / std::sqrt(squares / width + eps);
      for (int i = 0; i < width; ++i) {
        y[row + i] = x[row + i] * inverse * weight[i];
        projection += double(dy[row + i]) * weight[i] * x[row + i];
      }
      for (int i = 0; i < width; ++i) {
        dx[row + i] += dy[row + i] * weight[i] * inverse - x[row + i] * projection * inverse * inverse * inverse / width;
        dw[i] += dy[row + i] * x[row + i] * inverse;
      }
    }
    std::vector<float> actual_y, actual_dx, actual_dw;
    on_every_set(of_size("RMSNorm", width), [&](const ops::Table& op) {
      std::vector<float> inverse(rows), frozen_dx = dx_before;
      actual_y.assign(n, 0);
      actual_dx = dx_before;
      actual_dw = dw_before;
      op.rms_norm(x.data(), weight.data(), eps, actual_y.data(), inverse.data(), rows, width);
      op.rms_norm_backward(x.data(), weight.data(), inverse.data(), dy.data(), actual_dx.data(), actual_dw.data(), rows, width);
      op.rms_norm_backward(x.data(), weight.data(), inverse.data(), dy.data(), frozen_dx.data(), nullptr, rows, width);
      check_same_bits(frozen_dx, actual_dx, "without the weight's gradient");
      std::vector<float> all = actual_y;
      all.insert(all.end(), actual_dx.begin(), actual_dx.end());
      all.insert(all.end(), actual_dw.begin(), actual_dw.end());
      return all;
    });
    check_close(actual_y, y, 2e-6, of_size("RMSNorm", width));
    check_close(actual_dx, dx, 2e-6, of_size("RMSNorm's dx", width));
    check_close(actual_dw, dw, 2e-6, of_size("RMSNorm's dw", width));
  }
}

void biases_sums_and_scales() {
  for (const int columns : {1, 8, 16, 31, 64, 150}) {
    const int rows = 7;
    const size_t ld = size_t(columns) + 9, n = rows * ld;
    const std::vector<float> x = random_values(n, 1), bias = random_values(size_t(columns), 2);
    // The fp32 results must be exact: values are added one after another.
    std::vector<float> biased(x), scaled_rows(x), sums(bias);
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < columns; ++j) {
        biased[r * ld + j] += bias[j];
        scaled_rows[r * ld + j] *= 1.7f;
        sums[j] += x[r * ld + j];
      }
    for_each_instruction_set([&](const ops::Table& op) {
      std::vector<float> actual(x), total(bias);
      op.add_bias(actual.data(), ld, bias.data(), rows, columns);
      check_same_bits(actual, biased, of_size("bias", columns));
      actual = x;
      op.scale_rows(actual.data(), ld, 1.7f, rows, columns);
      check_same_bits(actual, scaled_rows, of_size("scaled rows", columns));
      op.column_sums(x.data(), ld, rows, columns, total.data());
      check_same_bits(total, sums, of_size("column sums", columns));
    });
  }
}

void head_norms_and_rotation() {
  constexpr float eps = 1e-6f;
  for (const int head_dim : {16, 32, 48, 64, 80, 96, 112, 128})
    for (const bool normed : {true, false}) {
      const int rows = 3, heads = 3, half = head_dim / 2, positions_known = 11;
      const size_t ldx = size_t(heads) * head_dim + 24, ld_saved = size_t(heads) * head_dim, ld_inverse = heads + 1;
      const std::vector<int32_t> positions{4, 0, 10};
      const std::vector<float> x = random_values(rows * ldx, 1), dy = random_values(rows * ldx, 2),
                               weight = scaled(random_values(size_t(head_dim), 3), 1, 1),
                               dw_before = random_values(size_t(head_dim), 4);
      std::vector<float> cos, sin;
      for (int p = 0; p < positions_known; ++p)
        for (int i = 0; i < half; ++i) {
          cos.push_back(float(1.07 * std::cos(p * std::pow(1e4, -double(i) / half))));
          sin.push_back(float(1.07 * std::sin(p * std::pow(1e4, -double(i) / half))));
        }

      std::vector<double> y = in_double(x), dx = in_double(dy), dw = in_double(dw_before);
      for (int r = 0; r < rows; ++r)
        for (int h = 0; h < heads; ++h) {
          const size_t head = r * ldx + size_t(h) * head_dim, angle = size_t(positions[r]) * half;
          double squares = 0;
          for (int i = 0; i < head_dim; ++i) squares += double(x[head + i]) * x[head + i];
          const double inverse = normed ? 1 / std::sqrt(squares / head_dim + eps) : 1;
          std::vector<double> d_normed(static_cast<size_t>(head_dim));
          for (int i = 0; i < half; ++i) {
            const double c = cos[angle + i], s = sin[angle + i];
            const double a = x[head + i] * inverse * (normed ? weight[i] : 1),
                         b = x[head + half + i] * inverse * (normed ? weight[half + i] : 1);
            y[head + i] = a * c - b * s;
            y[head + half + i] = b * c + a * s;
            d_normed[i] = double(dy[head + i]) * c + double(dy[head + half + i]) * s;
            d_normed[half + i] = double(dy[head + half + i]) * c - double(dy[head + i]) * s;
          }
          double projection = 0;
          for (int i = 0; i < head_dim; ++i) projection += d_normed[i] * weight[i] * x[head + i];
          for (int i = 0; i < head_dim; ++i) {
            if (!normed) {
              dx[head + i] = d_normed[i];
              continue;
            }
            dx[head + i] = d_normed[i] * weight[i] * inverse - x[head + i] * projection * inverse * inverse * inverse / head_dim;
            dw[i] += d_normed[i] * x[head + i] * inverse;
          }
        }

      const float* norm = normed ? weight.data() : nullptr;
      const std::string what = of_size(normed ? "norm and rotation" : "rotation", head_dim);
      std::vector<float> actual_y, actual_dx, actual_dw;
      on_every_set(what, [&](const ops::Table& op) {
        std::vector<float> saved(rows * ld_saved), inverse(rows * ld_inverse, 1.0f), unsaved(x);
        actual_y = x;
        actual_dx = dy;
        actual_dw = dw_before;
        op.head_norm_rope(actual_y.data(), ldx, norm, eps, positions.data(), cos.data(), sin.data(), saved.data(), ld_saved,
                          inverse.data(), ld_inverse, rows, heads, head_dim);
        op.head_norm_rope(unsaved.data(), ldx, norm, eps, positions.data(), cos.data(), sin.data(), nullptr, 0, nullptr, 0, rows,
                          heads, head_dim);
        check_same_bits(unsaved, actual_y, what + ", nothing saved");
        op.head_norm_rope_backward(actual_dx.data(), ldx, norm, positions.data(), cos.data(), sin.data(),
                                   normed ? saved.data() : nullptr, ld_saved, normed ? inverse.data() : nullptr, ld_inverse,
                                   normed ? actual_dw.data() : nullptr, rows, heads, head_dim);
        std::vector<float> all = actual_y;
        all.insert(all.end(), actual_dx.begin(), actual_dx.end());
        all.insert(all.end(), actual_dw.begin(), actual_dw.end());
        return all;
      });
      check_close(actual_y, y, 2e-6, what);
      check_close(actual_dx, dx, 3e-6, what + ", dx");
      check_close(actual_dw, dw, 3e-6, what + ", dw");
    }
}

void swiglu_and_its_gradient() {
  const int rows = 3, f = 80;
  const std::vector<float> gate_up = scaled(random_values(size_t(rows) * 2 * f, 1), 12), dy = random_values(size_t(rows) * f, 2);
  std::vector<double> y(dy.size()), d_gate_up(gate_up.size());
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < f; ++i) {
      const size_t gate = size_t(r) * 2 * f + i, up = gate + f, out = size_t(r) * f + i;
      const double g = gate_up[gate], u = gate_up[up], sigmoid = 1 / (1 + std::exp(-g));
      y[out] = g * sigmoid * u;
      d_gate_up[gate] = dy[out] * u * sigmoid * (1 + g * (1 - sigmoid));
      d_gate_up[up] = dy[out] * g * sigmoid;
    }
  std::vector<float> actual(y.size()), d_actual(gate_up.size());
  on_every_set("SwiGLU", [&](const ops::Table& op) {
    op.swiglu(gate_up.data(), actual.data(), rows, f);
    op.swiglu_backward(gate_up.data(), dy.data(), d_actual.data(), rows, f);
    std::vector<float> all = actual;
    all.insert(all.end(), d_actual.begin(), d_actual.end());
    return all;
  });
  check_close(actual, y, 1e-6, "SwiGLU");
  check_close(d_actual, d_gate_up, 1e-6, "SwiGLU's gradient");
}

void sums_over_arrays() {
  for (const size_t n : {size_t{1}, size_t{16}, size_t{4097}, size_t{9000}}) {
    const std::vector<float> a = random_values(n, 1), b = random_values(n, 2);
    std::vector<float> expected(a);
    double squares = 0;
    for (size_t i = 0; i < n; ++i) {
      expected[i] += b[i];
      squares += double(b[i]) * b[i];
    }
    double first = -1;
    for_each_instruction_set([&](const ops::Table& op) {
      std::vector<float> sum(a);
      op.add(sum.data(), b.data(), n);
      check_same_bits(sum, expected, "a + b");
      const double actual = op.sum_of_squares(b.data(), n);
      if (first < 0) first = actual;
      check(actual == first, std::string(op.name) + ": the sum of squares has other bits");
      check_near(actual / squares, 1, 1e-6, "sum of squares");
    });
  }
}

struct Softmax {
  std::vector<double> p;
  double entropy = 0;

  Softmax(const std::vector<float>& logits, double inverse_temperature) {
    const double greatest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float z : logits) p.push_back(std::exp((z - greatest) * inverse_temperature));
    for (const double x : p) sum += x;
    for (double& x : p) x /= sum;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
  }
};

void entropies_and_gradients_of_logits() {
  for (const int n : {1, 15, 16, 64, 71, 1000})
    for (const float inverse_temperature : {0.5f, 1.0f, 3.0f}) {
      const std::vector<float> logits = scaled(random_values(size_t(n), uint32_t(n)), 12, 40);
      const Softmax softmax(logits, inverse_temperature);
      const int token = n / 3;
      const float scale = -0.7f, entropy_scale = 0.31f;
      std::vector<double> plain, with_entropy;
      for (int j = 0; j < n; ++j) {
        const double p = softmax.p[j], one_hot = j == token ? 1 : 0;
        plain.push_back(scale * (p - one_hot));
        with_entropy.push_back(scale * (p - one_hot) + entropy_scale * p * ((p > 0 ? std::log(p) : 0) + softmax.entropy));
      }
      const std::string what = of_size("row", n) + " at " + std::to_string(inverse_temperature);
      std::vector<float> gradient, entropy_gradient;
      float entropy = 0;
      on_every_set(what, [&](const ops::Table& op) {
        const ops::RowNormalizer normalizer = op.normalize_row(logits.data(), n, inverse_temperature);
        entropy = op.row_entropy(logits.data(), n, normalizer, inverse_temperature);
        gradient = entropy_gradient = logits;
        op.softmax_gradient(gradient.data(), n, normalizer, inverse_temperature, token, scale);
        op.softmax_entropy_gradient(entropy_gradient.data(), n, normalizer, inverse_temperature, token, scale, entropy, entropy_scale);
        // Without an entropy bonus the gradient equals that of softmax_gradient.
        std::vector<float> without = logits;
        op.softmax_entropy_gradient(without.data(), n, normalizer, inverse_temperature, token, scale, entropy, 0.0f);
        check_same_bits(without, gradient, what + ", no bonus");
        std::vector<float> all = gradient;
        all.insert(all.end(), entropy_gradient.begin(), entropy_gradient.end());
        all.push_back(entropy);
        return all;
      });
      check_near(entropy, softmax.entropy, 5e-6, "entropy of " + what);
      check_close(gradient, plain, 5e-6, "gradient of " + what);
      check_close(entropy_gradient, with_entropy, 1e-5, "gradient with entropy of " + what);
    }
}

/// Writes past a row would change the marked floats on both sides; the address sanitizer finds reads past it.
void odd_widths_stay_inside_their_rows() {
  for (const int n : {1, 5, 17, 63}) {
    const auto logits = std::make_unique<float[]>(size_t(n));
    for (int i = 0; i < n; ++i) logits[size_t(i)] = float(i % 3);
    std::vector<float> guarded(size_t(n) + 64, 123.0f);
    for_each_instruction_set([&](const ops::Table& op) {
      std::copy_n(logits.get(), n, guarded.begin() + 32);
      float* row = guarded.data() + 32;
      const ops::RowNormalizer normalizer = op.normalize_row(row, n, 1);
      op.softmax_entropy_gradient(row, n, normalizer, 1, 0, 1, op.row_entropy(row, n, normalizer, 1), 1);
      op.scale_rows(row, size_t(n), 2, 1, n);
      op.add_bias(row, size_t(n), logits.get(), 1, n);
      op.column_sums(logits.get(), size_t(n), 1, n, row);
      for (int i = 0; i < 32; ++i)
        check(guarded[size_t(i)] == 123.0f && guarded[size_t(32 + n + i)] == 123.0f,
              std::string(op.name) + ": something wrote past a row of " + std::to_string(n));
    });
  }
}

void non_finite_logits_give_a_non_finite_normaliser() {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for_each_instruction_set([&](const ops::Table& op) {
      std::vector<float> logits = random_values(100, 3);
      logits[70] = bad;
      const ops::RowNormalizer normalizer = op.normalize_row(logits.data(), 100, 1);
      check(!std::isfinite(normalizer.max) || !std::isfinite(normalizer.log_sum), std::string(op.name) + ": normaliser is finite");
    });
}

}  // namespace

int main() {
  return run({{"RMSNorm and its gradient", rms_norm_and_its_gradient},
              {"biases, sums and scales", biases_sums_and_scales},
              {"head norms and rotation", head_norms_and_rotation},
              {"SwiGLU and its gradient", swiglu_and_its_gradient},
              {"sums over arrays", sums_over_arrays},
              {"entropies and gradients of logits", entropies_and_gradients_of_logits},
              {"odd widths stay inside their rows", odd_widths_stay_inside_their_rows},
              {"non finite logits give a non finite normaliser", non_finite_logits_give_a_non_finite_normaliser}});
}
