// longhaul-gpu-rates: what a GPU can do at most (multiply-adds in fp32, bytes of its memory), and how much of it the products of a 0.6 B model
// reach. One JSON object per line. Peak and product are measured in turns, since a GPU's clock changes.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>

#include "bench/report.h"
#include "cuda/device/device.h"
#include "cuda/device/properties.h"
#include "cuda/kernels/products.h"

namespace longhaul::cuda {
namespace {

using bench::median;
using bench::now;
using bench::print;

// Enough chains to fill the units; the sums tend to 1 and neither grow nor vanish.
constexpr int chains = 16, burst_threads = 256, burst_blocks = 4096, burst_rounds = 4096;

__global__ void __launch_bounds__(burst_threads) burst_kernel(float* out, int rounds) {
  float sums[chains];
  UNROLL
  for (int i = 0; i < chains; ++i) sums[i] = float(int(threadIdx.x) + i);
  for (int r = 0; r < rounds; ++r) {
    UNROLL
    for (int i = 0; i < chains; ++i) sums[i] = __fmaf_rn(sums[i], 0.875f, 0.125f);
  }
  float total = 0;
  UNROLL
  for (int i = 0; i < chains; ++i) total += sums[i];
  out[size_t(blockIdx.x) * burst_threads + threadIdx.x] = total;
}

double seconds_of(const std::function<void()>& work) {
  device_sync();
  const double start = now();
  work();
  device_sync();
  return now() - start;
}

class Rates {
 public:
  /// Floating-point operations a second.
  double peak() {
    const double flops = 2.0 * chains * burst_threads * burst_blocks * burst_rounds;
    return flops / seconds_of([&] { launch(burst_kernel, dim3(burst_blocks), dim3(burst_threads), 0, stream_, out_.data(), burst_rounds); });
  }

  /// Bytes a second, read and written.
  double bandwidth() {
    constexpr size_t values = size_t{1} << 28;
    const DeviceArray<float> from(values);
    DeviceArray<float> to(values);
    std::vector<double> rates;
    for (int round = 0; round < 6; ++round)
      rates.push_back(2.0 * values * sizeof(float) / seconds_of([&] { device_copy(to.data(), from.data(), values, stream_); }));
    return median({rates.begin() + 1, rates.end()});
  }

  void products() {
    // Of a layer: queries, keys and values; attention's output; gate and up; down. Of the head: logits.
    constexpr int matrices[][2] = {{4096, 1024}, {1024, 2048}, {6144, 1024}, {1024, 3072}, {151'936, 1024}};
    double flops = 0, seconds = 0, lowest = 1e9;
    for (const int rows : {1024, 4096}) {
      for (const auto& [outputs, inputs] : matrices) {
        if (outputs > 100'000 && rows > 1024) continue;
        const size_t m = size_t(rows), o = size_t(outputs), i = size_t(inputs);
        DeviceArray<float> x(m * i), w(o * i), y(m * o);
        // Zeros would take less power, and so run at a higher clock.
        for (DeviceArray<float>* array : {&x, &w, &y}) fill(*array);
        const std::pair<const char*, Product> kinds[] = {
            {"forward", {ProductLayout::forward, x.data(), i, w.data(), i, y.data(), o, rows, outputs, inputs, false}},
            {"backward", {ProductLayout::backward, y.data(), o, w.data(), i, x.data(), i, rows, inputs, outputs, false}},
            {"gradient", {ProductLayout::gradient, y.data(), o, x.data(), i, w.data(), i, outputs, inputs, rows, true}}};
        for (const auto& [kind, args] : kinds) {
          const Measured one = measure(args);
          flops += one.flops;
          seconds += one.seconds;
          lowest = std::min(lowest, one.of_peak);
          print({{"bench", "gpu_rates"}, {"kind", kind}, {"m", rows}, {"outputs", outputs}, {"inputs", inputs},
                 {"tflops", one.flops / one.seconds / 1e12}, {"of_peak", one.of_peak}});
        }
      }
    }
    print({{"bench", "gpu_rates"}, {"kind", "all products"}, {"tflops", flops / seconds / 1e12}, {"lowest_of_peak", lowest}});
  }

 private:
  struct Measured {
    double flops, seconds, of_peak;
  };

  void fill(DeviceArray<float>& array) {
    std::vector<float> values(array.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i % 1013) * 1e-3f - 0.5f;
    device_copy(array.data(), values.data(), values.size(), stream_);
  }

  Measured measure(const Product& args) {
    const double flops = 2.0 * args.m * args.n * args.k;
    const int repeats = std::max(1, int(2e11 / flops));
    std::vector<double> seconds, ratios;
    product(args, stream_);
    double before = peak();
    for (int round = 0; round < 5; ++round) {
      seconds.push_back(seconds_of([&] {
        for (int i = 0; i < repeats; ++i) product(args, stream_);
      }) / repeats);
      const double behind = peak();
      ratios.push_back(2 * flops / seconds.back() / (before + behind));
      before = behind;
    }
    return {flops, median(seconds), median(ratios)};
  }

  OwnedStream stream_;
  DeviceArray<float> out_{size_t(burst_blocks) * burst_threads};
};

void run() {
  require_usable_device();
  Rates rates;
  rates.peak();
  std::vector<double> peaks;
  for (int i = 0; i < 10; ++i) peaks.push_back(rates.peak());
  print({{"bench", "gpu_rates"}, {"kind", "peak"}, {"tflops", median(peaks) / 1e12}, {"gigabytes_per_second", rates.bandwidth() / 1e9}});
  rates.products();
}

}  // namespace
}  // namespace longhaul::cuda

int main() {
  try {
    longhaul::cuda::run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "longhaul-gpu-rates: %s\n", error.what());
    return 1;
  }
}
