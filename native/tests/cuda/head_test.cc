// Normalisers, draws, entropies and gradients of rows of logits have the CPU's bits on the device, in any order of threads.
#include "cuda/kernels/head.h"

#include <algorithm>

#include "support/device_checks.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

using Values = std::vector<float>;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

/// Vocabularies around the borders of lanes (16) and blocks (64), and one with more blocks than half-warps.
constexpr int vocabs[] = {1, 15, 16, 17, 64, 100, 257, 1100};

/// Rows of logits: random; with zeros of both signs; all equal; steep; with ties for the maximum.
struct Batch {
  explicit Batch(int vocab) : vocab(vocab) {
    const Values random = random_values(size_t(vocab), 1);
    add(scaled(random, 8.0f));
    add(with_zeros(scaled(random, 0.1f, -0.2f)));
    add(Values(size_t(vocab), -2.5f));
    add(scaled(random, 400.0f));
    Values ties = with_zeros(scaled(random, 6.0f));
    for (int i = 0; i < vocab; i += 5) ties[size_t(i)] = 3.25f;
    add(ties);
  }

  void add(const Values& row) {
    logits.insert(logits.end(), row.begin(), row.end());
    tokens.push_back(int32_t(tokens.size() * 37 % size_t(vocab)));
  }
  int rows() const { return int(tokens.size()); }
  const float* row(int i) const { return logits.data() + size_t(i) * vocab; }

  int vocab;
  Values logits;
  std::vector<int32_t> tokens;
};

/// Rows whose logits are not all finite. The CPU's maximum depends on the order of NaN and other values.
Batch extreme_batch(int vocab) {
  Batch batch(vocab);
  for (const float extreme : {nan, infinity, -infinity})
    for (const int place : {0, vocab / 3, vocab - 1}) {
      Values row = scaled(random_values(size_t(vocab), 2), 5.0f);
      row[size_t(place)] = extreme;
      batch.add(row);
    }
  Values row = random_values(size_t(vocab), 3);
  for (int i = 0; i < vocab; i += 2) row[size_t(i)] = nan;
  batch.add(row);
  // The maximum comes before a NaN of the same lane, which makes the CPU forget it.
  row = random_values(size_t(vocab), 3);
  row[0] = 50.0f;
  row[size_t(vocab / 32 * 16)] = nan;
  batch.add(row);
  batch.add(Values(size_t(vocab), -infinity));
  return batch;
}

Values flat(const std::vector<ops::RowNormalizer>& normalizers) {
  Values values;
  for (const ops::RowNormalizer& normalizer : normalizers) {
    values.push_back(normalizer.max);
    values.push_back(normalizer.log_sum);
  }
  return values;
}

Values joined(Values a, const Values& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<ops::RowNormalizer> normalizers_of(const Batch& batch, float inverse_temperature, const ops::Table& op) {
  std::vector<ops::RowNormalizer> all;
  for (int i = 0; i < batch.rows(); ++i) all.push_back(op.normalize_row(batch.row(i), batch.vocab, inverse_temperature));
  return all;
}

Values normalized_on_device(const Batch& batch, float inverse_temperature, int fault) {
  const DeviceArray<float> logits(batch.logits), logprobs(size_t(batch.rows()));
  const DeviceArray<int32_t> tokens(batch.tokens);
  const DeviceArray<ops::RowNormalizer> normalizers(size_t(batch.rows()));
  cuda::testing::normalize_rows(
      {logits.data(), batch.rows(), batch.vocab, inverse_temperature, normalizers.data(), tokens.data(), logprobs.data()}, stream(), fault);
  return joined(flat(normalizers.values()), logprobs.values());
}

void check_normalizers(const Batch& batch, float inverse_temperature, const std::string& what) {
  const Values expected = reference(what, [&](const ops::Table& op) {
    const std::vector<ops::RowNormalizer> all = normalizers_of(batch, inverse_temperature, op);
    Values logprobs;
    for (int i = 0; i < batch.rows(); ++i)
      logprobs.push_back(ops::row_logprob(batch.row(i)[batch.tokens[size_t(i)]], all[size_t(i)], inverse_temperature));
    return joined(flat(all), logprobs);
  });
  check_same_values(normalized_on_device(batch, inverse_temperature, 0), expected, what);
  check_schedules<float>([&](int fault) { return normalized_on_device(batch, inverse_temperature, fault); }, expected,
                         batch.vocab > 1000 ? 2 : 0, what);
}

void rows_are_normalized() {
  for (const int vocab : vocabs)
    for (const float inverse_temperature : {1.0f, 0.7f, 40.0f}) check_normalizers(Batch(vocab), inverse_temperature, std::to_string(vocab));
}

void rows_that_are_not_finite_have_the_same_normalizers() {
  for (const int vocab : vocabs) check_normalizers(extreme_batch(vocab), 1.0f, "extremes, " + std::to_string(vocab));
}

void entropies_have_the_same_bits() {
  for (const int vocab : vocabs) {
    const float inverse_temperature = 0.8f;
    const std::string what = std::to_string(vocab);
    const Batch batch = extreme_batch(vocab);
    const std::vector<ops::RowNormalizer> by = normalizers_of(batch, inverse_temperature, ops::table());
    const Values expected = reference(what, [&](const ops::Table& op) {
      Values all;
      for (int i = 0; i < batch.rows(); ++i) all.push_back(op.row_entropy(batch.row(i), vocab, by[size_t(i)], inverse_temperature));
      return all;
    });
    const auto on_device = [&](int fault) {
      const DeviceArray<float> logits(batch.logits), entropies(size_t(batch.rows()));
      const DeviceArray<ops::RowNormalizer> normalizers(by);
      cuda::testing::row_entropies({logits.data(), batch.rows(), vocab, inverse_temperature, normalizers.data(), entropies.data()},
                                   stream(), fault);
      return entropies.values();
    };
    check_same_values(on_device(0), expected, what);
    check_schedules<float>(on_device, expected, vocab > 1000 ? 1 : 0, what);
  }
}

/// Draws each row of the batch with many numbers, the least and the greatest among them.
void tokens_are_drawn_as_on_the_cpu() {
  const Values uniforms = joined({0.0f, 0x1p-24f, 0.5f, 1.0f - 0x1p-24f}, scaled(random_values(30, 4), 1.0f, 0.5f));
  for (const int vocab : vocabs) {
    const Batch rows = extreme_batch(vocab);
    Batch batch = rows;
    batch.logits.clear();
    std::vector<cuda::RowDraw> draws;
    for (int i = 0; i < rows.rows(); ++i)
      for (size_t u = 0; u < uniforms.size(); ++u) {
        batch.logits.insert(batch.logits.end(), rows.row(i), rows.row(i) + vocab);
        draws.push_back({u % 2 == 0 ? 1.0f : 1.0f / 0.6f, uniforms[u]});
      }
    // Tokens are compared as the integers they are; as floats they are exact.
    const auto listed = [](Values& all, int32_t token, float logprob) {
      all.push_back(float(token));
      all.push_back(logprob);
    };
    const Values expected = reference(std::to_string(vocab), [&](const ops::Table&) {
      Values all;
      for (size_t i = 0; i < draws.size(); ++i) {
        ops::RowNormalizer normalizer;
        const float* row = batch.row(int(i));
        const int32_t token = ops::table().draw_row(row, vocab, draws[i].inverse_temperature, draws[i].uniform, &normalizer);
        listed(all, token, token < 0 ? nan : ops::row_logprob(row[token], normalizer, draws[i].inverse_temperature));
      }
      return all;
    });
    const auto on_device = [&](int fault) {
      const DeviceArray<float> logits(batch.logits);
      const DeviceArray<cuda::RowDraw> device_draws(draws);
      const DeviceArray<cuda::DrawnToken> drawn(draws.size());
      cuda::testing::draw_rows({logits.data(), int(draws.size()), vocab, device_draws.data(), drawn.data()}, stream(), fault);
      Values all;
      for (const cuda::DrawnToken& token : drawn.values()) listed(all, token.token, token.logprob);
      return all;
    };
    check_same_values(on_device(0), expected, std::to_string(vocab));
    if (vocab == 100 || vocab > 1000) check_schedules<float>(on_device, expected, vocab > 1000 ? 2 : 0, std::to_string(vocab));
  }
}

void gradients_have_the_same_bits() {
  for (const int vocab : vocabs)
    for (const bool with_entropy : {false, true}) {
      const float inverse_temperature = 1.25f;
      const std::string what = std::to_string(vocab) + (with_entropy ? " with entropy" : "");
      const Batch batch = extreme_batch(vocab);
      const size_t rows = size_t(batch.rows());
      const std::vector<ops::RowNormalizer> by = normalizers_of(batch, inverse_temperature, ops::table());
      const Values scales = with_zeros(random_values(rows, 5)), entropies = scaled(random_values(rows, 6), 2.0f, 1.5f),
                   entropy_scales = random_values(rows, 7);
      const Values expected = reference(what, [&](const ops::Table& op) {
        Values d(batch.logits);
        for (size_t i = 0; i < rows; ++i) {
          float* row = d.data() + i * size_t(vocab);
          if (with_entropy)
            op.softmax_entropy_gradient(row, vocab, by[i], inverse_temperature, batch.tokens[i], scales[i], entropies[i],
                                        entropy_scales[i]);
          else
            op.softmax_gradient(row, vocab, by[i], inverse_temperature, batch.tokens[i], scales[i]);
        }
        return d;
      });
      const auto on_device = [&](int) {
        const DeviceArray<float> d(batch.logits), s(scales), e(entropies), es(entropy_scales);
        const DeviceArray<ops::RowNormalizer> normalizers(by);
        const DeviceArray<int32_t> tokens(batch.tokens);
        cuda::softmax_gradient({d.data(), int(rows), vocab, inverse_temperature, normalizers.data(), tokens.data(), s.data(),
                                with_entropy ? e.data() : nullptr, with_entropy ? es.data() : nullptr},
                               stream());
        return d.values();
      };
      check_same_values(on_device(0), expected, what);
      if (vocab == 257) check_schedules<float>(on_device, expected, 0, what);
    }
}

}  // namespace

int main() {
  return run({
      {"rows are normalised", rows_are_normalized},
      {"rows that are not finite have the same normalisers", rows_that_are_not_finite_have_the_same_normalizers},
      {"entropies have the same bits", entropies_have_the_same_bits},
      {"tokens are drawn as on the CPU", tokens_are_drawn_as_on_the_cpu},
      {"gradients have the same bits", gradients_have_the_same_bits},
  });
}
