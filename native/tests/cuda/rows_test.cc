// Operations on rows have the CPU's bits on the device, also for −0, NaN and infinities, and in any order of threads.
#include "cuda/kernels/rows.h"

#include <algorithm>

#include "support/device_checks.h"
#include "pass/rows.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

static_assert(cuda::sum_block_rows == norm_block_rows);

using Values = std::vector<float>;

/// The device gives the CPU's result in every schedule.
void check_kernel(const std::string& what, const std::function<Values(const ops::Table&)>& on_cpu,
                  const std::function<Values()>& on_device) {
  const Values expected = reference(what, on_cpu);
  check_same_values(on_device(), expected, what);
  check_schedules<float>([&](int) { return on_device(); }, expected, 0, what);
}

/// Two kinds of values: with zeros of both signs, and with NaN and infinities as well.
template <class Fn>
void for_each_kind(Fn&& fn) {
  fn(std::string("zeros"), [](Values values) { return with_zeros(std::move(values)); });
  fn(std::string("extremes"), [](Values values) { return with_extremes(with_zeros(std::move(values))); });
}

void biases_scales_and_sums() {
  constexpr int rows = 5, width = 301;
  constexpr size_t ld = width + 3;
  for_each_kind([&](const std::string& kind, auto&& some) {
    const Values x = some(random_values(rows * ld, 1)), bias = some(random_values(width, 2)), y = some(random_values(rows * ld, 3));
    check_kernel(
        "bias, " + kind,
        [&](const ops::Table& op) {
          Values c(x);
          op.add_bias(c.data(), ld, bias.data(), rows, width);
          return c;
        },
        [&] {
          const DeviceArray<float> c(x), b(bias);
          cuda::add_bias({c.data(), ld}, b.data(), rows, width, stream());
          return c.values();
        });
    check_kernel(
        "scale, " + kind,
        [&](const ops::Table& op) {
          Values c(x);
          op.scale_rows(c.data(), ld, -0.3f, rows, width);
          return c;
        },
        [&] {
          const DeviceArray<float> c(x);
          cuda::scale_rows({c.data(), ld}, -0.3f, rows, width, stream());
          return c.values();
        });
  });
}

/// More than one piece of 512 rows, and a last block of fewer than 64 rows.
void column_sums_go_from_the_last_block_to_the_first() {
  constexpr int rows = 9 * 64 + 17, width = 70;
  constexpr size_t ld = width + 2;
  for_each_kind([&](const std::string& kind, auto&& some) {
    const Values dy = some(random_values(rows * ld, 4)), before = with_zeros(random_values(width, 5));
    check_kernel(
        "column sums, " + kind,
        [&](const ops::Table& op) {
          Values target(before);
          for (int block = cuda::sum_blocks(rows) - 1; block >= 0; --block) {
            Values sums(width, 0.0f);
            op.column_sums(dy.data() + size_t(block) * 64 * ld, ld, std::min(64, rows - block * 64), width, sums.data());
            op.add(target.data(), sums.data(), width);
          }
          return target;
        },
        [&] {
          const DeviceArray<float> d(dy), blocks(size_t(cuda::sum_blocks(rows)) * width), target(before);
          cuda::column_sums({d.data(), ld}, rows, blocks.data(), target.data(), width, stream());
          return target.values();
        });
  });
}

void swiglu_and_its_gradient() {
  constexpr int rows = 3, f = 272;
  for_each_kind([&](const std::string& kind, auto&& some) {
    const Values gate_up = some(scaled(random_values(rows * 2 * f, 6), 200.0f)), dy = some(random_values(rows * f, 7));
    check_kernel(
        "swiglu, " + kind,
        [&](const ops::Table& op) {
          Values y(size_t(rows) * f);
          op.swiglu(gate_up.data(), y.data(), rows, f);
          return y;
        },
        [&] {
          const DeviceArray<float> from(gate_up), y(size_t(rows) * f);
          cuda::swiglu(from.data(), y.data(), rows, f, stream());
          return y.values();
        });
    check_kernel(
        "gradient of swiglu, " + kind,
        [&](const ops::Table& op) {
          Values d(gate_up.size());
          op.swiglu_backward(gate_up.data(), dy.data(), d.data(), rows, f);
          return d;
        },
        [&] {
          const DeviceArray<float> from(gate_up), d_y(dy), d(gate_up.size());
          cuda::swiglu_backward(from.data(), d_y.data(), d.data(), rows, f, stream());
          return d.values();
        });
  });
}

void rows_are_gathered_and_scattered() {
  constexpr int count = 6, width = 260;
  constexpr size_t ld_from = width + 1, ld_to = width + 4;
  const std::vector<int32_t> indices{7, 0, 3, 3, 8, 1}, places{7, 0, 3, 2, 8, 1};
  const Values from = with_extremes(with_zeros(random_values(9 * ld_from, 8))), before = random_values(9 * ld_to, 9);
  const auto on_cpu = [&](auto&& source, auto&& target) {
    Values to(before);
    for (int i = 0; i < count; ++i) std::copy_n(&from[source(i) * ld_from], width, &to[target(i) * ld_to]);
    return to;
  };
  const auto same = [](int i) { return size_t(i); };
  const DeviceArray<float> x(from);
  const DeviceArray<int32_t> sources(indices), targets(places);
  const auto on_device = [&](auto&& move) {
    const DeviceArray<float> to(before);
    move(cuda::Rows{to.data(), ld_to});
    return to.values();
  };
  check_kernel(
      "gathered", [&](const ops::Table&) { return on_cpu([&](int i) { return size_t(indices[i]); }, same); },
      [&] {
        return on_device([&](cuda::Rows to) { cuda::gather_rows({x.data(), ld_from}, sources.data(), to, count, width, stream()); });
      });
  check_kernel(
      "copied", [&](const ops::Table&) { return on_cpu(same, same); },
      [&] { return on_device([&](cuda::Rows to) { cuda::gather_rows({x.data(), ld_from}, nullptr, to, count, width, stream()); }); });
  check_kernel(
      "scattered", [&](const ops::Table&) { return on_cpu(same, [&](int i) { return size_t(places[i]); }); },
      [&] {
        return on_device([&](cuda::Rows to) { cuda::scatter_rows({x.data(), ld_from}, targets.data(), to, count, width, stream()); });
      });
}

void listed_rows_are_added_in_order() {
  constexpr int width = 48, count = 4;
  const std::vector<int32_t> starts{0, 1, 5, 7, 12}, indices{4, 9, 2, 2, 0, 11, 7, 3, 1, 5, 6, 8}, places{5, 0, 2, 3};
  for_each_kind([&](const std::string& kind, auto&& some) {
    const Values from = some(random_values(12 * width, 10)), before = with_zeros(random_values(6 * width, 11));
    const DeviceArray<float> x(from);
    const DeviceArray<int32_t> device_starts(starts), device_indices(indices), device_places(places);
    // As a forest's backward pass does it: the first row is copied, or every row is added to the target.
    check_kernel(
        "sums of runs, " + kind,
        [&](const ops::Table& op) {
          Values to(before);
          for (int i = 0; i < count; ++i) {
            std::copy_n(&from[size_t(starts[i]) * width], width, &to[size_t(i) * width]);
            for (int row = starts[i] + 1; row < starts[i + 1]; ++row) op.add(&to[size_t(i) * width], &from[size_t(row) * width], width);
          }
          return to;
        },
        [&] {
          const DeviceArray<float> to(before);
          cuda::sum_rows({x.data(), width}, {device_starts.data(), nullptr, count}, {to.data(), width}, width, stream());
          return to.values();
        });
    check_kernel(
        "added lists, " + kind,
        [&](const ops::Table& op) {
          Values to(before);
          for (int i = 0; i < count; ++i)
            for (int at = starts[i]; at < starts[i + 1]; ++at)
              op.add(&to[size_t(places[i]) * width], &from[size_t(indices[at]) * width], width);
          return to;
        },
        [&] {
          const DeviceArray<float> to(before);
          cuda::add_rows({x.data(), width}, {device_starts.data(), device_indices.data(), count}, device_places.data(),
                         {to.data(), width}, width, stream());
          return to.values();
        });
  });
}

}  // namespace

int main() {
  return run({
      {"biases, scales and sums", biases_scales_and_sums},
      {"column sums go from the last block to the first", column_sums_go_from_the_last_block_to_the_first},
      {"SwiGLU and its gradient", swiglu_and_its_gradient},
      {"rows are gathered and scattered", rows_are_gathered_and_scattered},
      {"listed rows are added in order", listed_rows_are_added_in_order},
  });
}
