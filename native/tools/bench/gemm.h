// Matrix products at the shapes of the measured models, in turns with the machine's peak rate of multiply-adds. Each round divides a
// product's rate by the peak measured just before and just after it, since the clock of a shared machine changes from second to second;
// `of_peak` is the median of these quotients.
#pragma once

#include "base/thread_pool.h"
#include "fma_peak.h"
#include "options.h"
#include "report.h"
#include "sizes.h"

namespace longhaul::bench {

struct Product {
  int m;  // rows of tokens
  int outputs, inputs;

  double flops() const { return 2.0 * m * outputs * inputs; }
};

/// Part t when n items are cut into equal parts, each a multiple of `unit`.
inline std::pair<int, int> part_of(int n, int parts, int t, int unit) {
  const int size = (n + parts * unit - 1) / (parts * unit) * unit;
  return {std::min(n, t * size), std::min(n, (t + 1) * size)};
}

/// Y[m, outputs] = X[m, inputs] · Wᵀ; threads share the columns.
class ForwardProduct {
 public:
  ForwardProduct(Product p, ThreadPool& pool)
      : p_(p), pool_(pool), x_(size_t(p.m) * p.inputs), y_(size_t(p.m) * p.outputs) {
    AlignedBuffer w(size_t(p.outputs) * p.inputs);
    for (size_t i = 0; i < w.size(); ++i) w.data()[i] = float(i % 13) * 0.1f;
    for (size_t i = 0; i < x_.size(); ++i) x_.data()[i] = float(i % 17) * 0.1f;
    ops::pack_transposed(w.data(), p.outputs, p.inputs, panels_);
  }

  void run() {
    pool_.parallel_for(size_t(pool_.threads()), [&](size_t t) {
      const auto [first, last] = part_of(ops::panel_count(p_.outputs), pool_.threads(), int(t), 1);
      ops::table().matmul_panels(x_.data(), size_t(p_.inputs), panels_, first, last, y_.data(), size_t(p_.outputs), p_.m, false);
    });
  }

 private:
  Product p_;
  ThreadPool& pool_;
  AlignedBuffer x_, y_;
  ops::Panels panels_;
};

/// dW[outputs, inputs] += dY[m, outputs]ᵀ · X[m, inputs]; X is packed each time, and threads share the rows of dW.
class GradientProduct {
 public:
  GradientProduct(Product p, ThreadPool& pool)
      : p_(p), pool_(pool), x_(size_t(p.m) * p.inputs), dy_(size_t(p.m) * p.outputs), dw_(size_t(p.outputs) * p.inputs) {
    for (size_t i = 0; i < x_.size(); ++i) x_.data()[i] = float(i % 17) * 1e-3f;
    for (size_t i = 0; i < dy_.size(); ++i) dy_.data()[i] = float(i % 13) * 1e-3f;
  }

  void run() {
    constexpr int piece = 512;  // rows, as in a training pass
    for (int row = 0; row < p_.m; row += piece) {
      const int rows = std::min(piece, p_.m - row);
      ops::size_panels(panels_, rows, p_.inputs);
      pool_.parallel_for(size_t(pool_.threads()), [&](size_t t) {
        const auto [first, last] = part_of(ops::panel_count(p_.inputs), pool_.threads(), int(t), 1);
        ops::table().pack(x_.data() + size_t(row) * p_.inputs, size_t(p_.inputs), panels_, first, last);
      });
      pool_.parallel_for(size_t(pool_.threads()), [&](size_t t) {
        // Equal parts. A training pass may cut unequally, but it then has other work for a thread that finishes early.
        const auto [first, last] = part_of(p_.outputs, pool_.threads(), int(t), 4);
        ops::table().matmul_transposed(dy_.data() + size_t(row) * p_.outputs + first, size_t(p_.outputs), panels_,
                                       dw_.data() + size_t(first) * p_.inputs, size_t(p_.inputs), last - first);
      });
    }
  }

 private:
  Product p_;
  ThreadPool& pool_;
  AlignedBuffer x_, dy_, dw_;
  ops::Panels panels_;
};

/// [--rows 64|256|512|2048; default: all of them] [--rounds 20] [--threads 2] [--clock wall|processor]
inline void bench_gemm(Options options) {
  const int only_rows = options.whole("rows", 0, 0), rounds = options.whole("rounds", 20), threads = options.whole("threads", 2);
  const std::string clock = options.text("clock", "wall");
  options.done();
  ThreadPool pool(threads);
  constexpr double burst = 2e8;  // operations per thread: a few milliseconds

  if (clock != "wall" && clock != "processor") throw std::invalid_argument("--clock is \"" + clock + "\"; it must be wall or processor");
  const auto time = [&] { return clock == "wall" ? now() : processor_time() / threads; };

  const auto burst_rate = [&] {
    std::vector<double> flops(static_cast<size_t>(threads));
    const double start = time();
    pool.parallel_for(size_t(threads), [&](size_t t) { flops[t] = fma_burst(burst); });
    double done = 0;
    for (const double f : flops) done += f;
    return done / (time() - start) / 1e9;
  };

  double machine_peak = 0;
  const auto measure = [&](const char* kind, Product p, auto& product) {
    const int repeats = std::max(1, int(burst * threads / p.flops()));
    double best = 0, peak = 0, peak_before = burst_rate();
    std::vector<double> ratios;
    product.run();
    for (int r = 0; r < rounds; ++r) {
      const double start = time();
      for (int i = 0; i < repeats; ++i) product.run();
      const double rate = p.flops() * repeats / (time() - start) / 1e9, peak_behind = burst_rate();
      if (peak_behind > 0) ratios.push_back(2 * rate / (peak_before + peak_behind));
      best = std::max(best, rate);
      peak = std::max(peak, peak_behind);
      peak_before = peak_behind;
    }
    machine_peak = std::max(machine_peak, peak);
    print({{"bench", "gemm"},
           {"kind", kind},
           {"instruction_set", ops::name(ops::instruction_set())},
           {"threads", threads},
           {"clock", clock},
           {"m", p.m},
           {"outputs", p.outputs},
           {"inputs", p.inputs},
           {"gflops", best},
           {"peak_gflops", peak},
           {"of_peak", ratios.empty() ? 0.0 : median(ratios)}});
  };
  constexpr int layers[][2] = {{768, 128}, {128, 384}, {2048, 256}, {256, 1024}, {1280, 768}, {4480, 768}, {768, 2240}};
  for (const int m : {64, 256, 512, 2048})
    for (const auto& [outputs, inputs] : layers) {
      if (only_rows != 0 && m != only_rows) continue;
      const Product p{m, outputs, inputs};
      ForwardProduct forward(p, pool);
      measure("matmul", p, forward);
      GradientProduct gradient(p, pool);
      measure("weight_gradient", p, gradient);
    }
  print({{"bench", "gemm"}, {"kind", "peak"}, {"threads", threads}, {"gflops", machine_peak}});
}

}  // namespace longhaul::bench
