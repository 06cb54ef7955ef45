// Norms, rotary embedding and their gradients have the CPU's bits on the device, in any order of threads.
#include "cuda/kernels/norms.h"

#include <algorithm>

#include "support/device_checks.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

using Values = std::vector<float>;

constexpr float eps = 1e-6f;

Values joined(std::initializer_list<Values> parts) {
  Values all;
  for (const Values& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Sums over blocks of 64 rows, the last block first: block(first row, rows, sums) fills `sums`, which are zero before.
template <class Block>
void add_by_blocks(const ops::Table& op, int rows, Values& target, Block&& block) {
  for (int b = cuda::sum_blocks(rows) - 1; b >= 0; --b) {
    Values sums(target.size(), 0.0f);
    block(b * 64, std::min(64, rows - b * 64), sums.data());
    op.add(target.data(), sums.data(), target.size());
  }
}

void check_rows(const std::string& what, const Values& x, const Values& dy, int rows, int width) {
  const size_t n = size_t(rows) * width;
  const Values weight = with_zeros(random_values(width, 2)), before = with_zeros(random_values(n, 4)),
               weight_before = with_zeros(random_values(width, 5));
  const Values expected = reference(what, [&](const ops::Table& op) {
    Values y(n), inverse(rows), dx(before), d_weight(weight_before);
    op.rms_norm(x.data(), weight.data(), eps, y.data(), inverse.data(), rows, width);
    add_by_blocks(op, rows, d_weight, [&](int first, int count, float* sums) {
      const size_t at = size_t(first) * width;
      op.rms_norm_backward(&x[at], weight.data(), &inverse[first], &dy[at], &dx[at], sums, count, width);
    });
    return joined({y, inverse, dx, d_weight});
  });
  const auto on_device = [&](int) {
    const DeviceArray<float> device_x(x), w(weight), d(dy), y(n), inverse(rows), dx(before), d_weight(weight_before),
        blocks(size_t(cuda::sum_blocks(rows)) * width);
    cuda::rms_norm({device_x.data(), w.data(), eps, y.data(), inverse.data(), rows, width}, stream());
    cuda::rms_norm_backward({device_x.data(), w.data(), inverse.data(), d.data(), dx.data(), d_weight.data(), blocks.data(), rows, width},
                            stream());
    return joined({y.values(), inverse.values(), dx.values(), d_weight.values()});
  };
  check_same_values(on_device(0), expected, what);
  check_schedules<float>(on_device, expected, 0, what);
}

void norms_of_rows() {
  check_rows("one row", random_values(16, 1), random_values(16, 3), 1, 16);
  check_rows("19 rows", with_zeros(random_values(19 * 80, 1)), with_zeros(random_values(19 * 80, 3)), 19, 80);
  check_rows("extremes", with_extremes(random_values(19 * 80, 1)), with_zeros(random_values(19 * 80, 3)), 19, 80);
  // More than one piece of 512 rows, and a last block of fewer than 64.
  check_rows("several pieces", random_values(605 * 32, 1), random_values(605 * 32, 3), 605, 32);
}

/// Gradients that are not requested are left out; the others do not change.
void a_frozen_norm_has_no_weight_gradient() {
  constexpr int rows = 21, width = 48;
  const Values x = random_values(rows * width, 1), dy = random_values(rows * width, 2), weight = random_values(width, 3),
               inverse = random_values(rows, 4);
  const Values expected = reference("frozen", [&](const ops::Table& op) {
    Values dx(rows * width, 0.0f);
    op.rms_norm_backward(x.data(), weight.data(), inverse.data(), dy.data(), dx.data(), nullptr, rows, width);
    return dx;
  });
  const DeviceArray<float> device_x(x), w(weight), i(inverse), d(dy), dx(Values(rows * width, 0.0f));
  cuda::rms_norm_backward({device_x.data(), w.data(), i.data(), d.data(), dx.data(), nullptr, nullptr, rows, width}, stream());
  check_same_values(dx.values(), expected, "frozen");
}

struct HeadCase {
  const char* name;
  int rows, heads, head_dim;
  bool normed, extremes;
};

/// Queries with a gap after each row, where keys and values are.
void check_heads(const HeadCase& c) {
  constexpr int positions = 40;
  const int half = c.head_dim / 2, width = c.heads * c.head_dim;
  const size_t ld = size_t(width) + 16, ld_saved = size_t(width) + 8, ld_inverse = size_t(c.heads) + 1, rows = size_t(c.rows);
  const Values weight = with_zeros(random_values(c.head_dim, 1)), cos = random_values(size_t(positions) * half, 2),
               sin = with_zeros(random_values(size_t(positions) * half, 3)), dy = with_zeros(random_values(rows * ld, 5)),
               d_weight_before = with_zeros(random_values(c.head_dim, 6)), empty(rows * ld_saved, 0.5f),
               no_inverse(rows * ld_inverse, 0.5f);
  Values x = with_zeros(random_values(rows * ld, 4));
  if (c.extremes) x = with_extremes(x);
  std::vector<int32_t> places;
  for (int i = 0; i < c.rows; ++i) places.push_back(i * 7 % positions);

  const Values expected = reference(c.name, [&](const ops::Table& op) {
    Values y(x), saved(empty), inverse(no_inverse), dx(dy), d_weight(d_weight_before);
    const float* w = c.normed ? weight.data() : nullptr;
    op.head_norm_rope(y.data(), ld, w, eps, places.data(), cos.data(), sin.data(), c.normed ? saved.data() : nullptr, ld_saved,
                      c.normed ? inverse.data() : nullptr, ld_inverse, c.rows, c.heads, c.head_dim);
    add_by_blocks(op, c.rows, d_weight, [&](int first, int count, float* sums) {
      op.head_norm_rope_backward(&dx[first * ld], ld, w, &places[first], cos.data(), sin.data(), &saved[first * ld_saved], ld_saved,
                                 &inverse[first * ld_inverse], ld_inverse, sums, count, c.heads, c.head_dim);
    });
    return joined({y, saved, inverse, dx, c.normed ? d_weight : d_weight_before});
  });
  const auto on_device = [&](int fault) {
    const DeviceArray<float> y(x), saved(empty), inverse(no_inverse), dx(dy), d_weight(d_weight_before), w(weight), device_cos(cos),
        device_sin(sin), blocks(size_t(cuda::sum_blocks(c.rows)) * c.head_dim);
    const DeviceArray<int32_t> device_places(places);
    cuda::Heads heads{y.data(), ld, c.normed ? w.data() : nullptr, device_places.data(), device_cos.data(), device_sin.data(), c.rows,
                      c.heads, c.head_dim};
    cuda::testing::head_norm_rope(
        {heads, eps, c.normed ? saved.data() : nullptr, ld_saved, c.normed ? inverse.data() : nullptr, ld_inverse}, stream(), fault);
    heads.x = dx.data();
    cuda::head_norm_rope_backward({heads, c.normed ? saved.data() : nullptr, ld_saved, c.normed ? inverse.data() : nullptr, ld_inverse,
                                   c.normed ? d_weight.data() : nullptr, c.normed ? blocks.data() : nullptr},
                                  stream());
    return joined({y.values(), saved.values(), inverse.values(), dx.values(), d_weight.values()});
  };
  check_same_values(on_device(0), expected, c.name);
  // Only with half a head that is not a multiple of 16 does a lane read what another wrote.
  check_schedules<float>(on_device, expected, c.normed && half % 16 != 0 ? 1 : 0, c.name);
}

void heads_are_normed_and_rotated() {
  check_heads({"heads of 32", 5, 3, 32, true, false});
  check_heads({"heads of 48", 7, 2, 48, true, false});
  check_heads({"heads of 16", 9, 1, 16, true, false});
  check_heads({"without a norm", 5, 3, 48, false, false});
  check_heads({"extremes", 5, 3, 128, true, true});
  check_heads({"several pieces", 550, 2, 16, true, false});
}

}  // namespace

int main() {
  return run({
      {"norms of rows", norms_of_rows},
      {"a frozen norm has no weight gradient", a_frozen_norm_has_no_weight_gradient},
      {"heads are normed and rotated", heads_are_normed_and_rotated},
  });
}
