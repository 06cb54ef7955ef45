#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/exact_math.h"
#include "base/philox.h"

namespace longhaul {

namespace {

/// Runs fn(i) for i in [0, n), on the pool if there is one.
template <class Fn>
void for_each_index(ThreadPool* pool, size_t n, Fn&& fn) {
  if (pool) {
    pool->parallel_for(n, fn);
  } else {
    for (size_t i = 0; i < n; ++i) fn(i);
  }
}

template <class T>
std::vector<NamedTensor<T>> list_tensors(const std::vector<TensorPlace>& places, std::span<T> values) {
  std::vector<NamedTensor<T>> tensors;
  for (const TensorPlace& place : places)
    tensors.push_back({place.name, place.shape, values.subspan(place.offset, place.size)});
  return tensors;
}

/// Four standard normals by Box–Muller.
void draw_normals(uint64_t seed, uint32_t tensor, uint64_t block, double normals[4]) {
  const PhiloxBlock bits = philox4x32_10({uint32_t(block), uint32_t(block >> 32), tensor, 0},
                                         philox_key(seed, PhiloxDomain::initial_weights));
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2 * exact::log((bits[2 * pair] + 0.5) * 0x1p-32));
    const exact::SineCosine angle = exact::sine_cosine((bits[2 * pair + 1] + 0.5) * 0x1p-32 * 6.283185307179586477);
    normals[2 * pair] = radius * angle.cosine;
    normals[2 * pair + 1] = radius * angle.sine;
  }
}

/// Panels [first, last) of one matrix, about 1 MiB: a thread packs one task at a time.
struct PackTask {
  const float* from;
  size_t ld;
  ops::Panels* to;
  int first, last;
};

using PackKernel = void (*)(const float*, size_t, ops::Panels&, int, int);

void add_tasks(std::vector<PackTask>& tasks, const float* from, size_t ld, int depth, int columns, ops::Panels& to) {
  // Sets the size only once: the columns past the end of the last panel are then zero and are never written.
  const int panels = ops::panel_count(columns);
  if (to.depth != depth || to.columns != columns || to.values.size() == 0) {
    to.depth = depth;
    to.columns = columns;
    // The packing threads zero these pages: a fill by this thread would take longer than the packing.
    if (to.values.size() == 0) to.values = AlignedBuffer(BufferMemory::mapped);
    to.values.resize(size_t(panels) * depth * ops::panel_columns);
  }
  const int step = std::max(1, (1 << 18) / (depth * ops::panel_columns));
  for (int first = 0; first < panels; first += step) tasks.push_back({from, ld, &to, first, std::min(first + step, panels)});
}

/// Packs every matrix. `transposed`: W[N,K] as B[K,N] = Wᵀ; otherwise as B[N,K] = W.
void pack_all(const Weights& weights, WeightPanels& panels, bool transposed, ThreadPool* pool) {
  const ParameterLayout& layout = weights.layout();
  panels.layers.resize(layout.layers.size());
  std::vector<PackTask> tasks;
  const auto add = [&](const ParameterRange& from, ops::Panels& to) {
    add_tasks(tasks, weights.at(from), size_t(from.columns), transposed ? from.columns : from.rows,
              transposed ? from.rows : from.columns, to);
  };
  add(layout.head, panels.head);
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerParameters& from = layout.layers[i];
    LayerPanels& to = panels.layers[i];
    add(from.qkv, to.qkv);
    add(from.output, to.output);
    add(from.gate_up, to.gate_up);
    add(from.down, to.down);
  }
  const PackKernel kernel = transposed ? ops::table().pack_transposed : ops::table().pack;
  for_each_index(pool, tasks.size(), [&](size_t i) {
    const PackTask& task = tasks[i];
    kernel(task.from, task.ld, *task.to, task.first, task.last);
  });
}

const Architecture& validated(const Architecture& architecture) {
  validate(architecture);
  return architecture;
}

}  // namespace

Weights::Weights(const Architecture& architecture, ThreadPool* pool)
    : architecture_(validated(architecture)),
      layout_(architecture),
      rope_(std::make_shared<const RopeTable>(architecture, pool)) {
  values_.resize(layout_.total);
}

void Weights::initialize(double initializer_range, uint64_t seed, ThreadPool* pool) {
  if (!(initializer_range > 0 && initializer_range < 10))
    throw std::invalid_argument("initializer_range is " + std::to_string(initializer_range) +
                                "; it must be between 0 and 10");
  const std::vector<TensorPlace> places = tensor_places(architecture_, layout_);
  constexpr size_t chunk = 1 << 16;  // a multiple of 4, the normals of a block
  for (size_t t = 0; t < places.size(); ++t) {
    const TensorPlace& place = places[t];
    float* values = values_.data() + place.offset;
    if (place.shape.size() == 1) {
      std::fill_n(values, place.size, place.name.ends_with(".bias") ? 0.0f : 1.0f);
      continue;
    }
    const double deviation = place.residual_output ? initializer_range / std::sqrt(2.0 * architecture_.num_hidden_layers)
                                                   : initializer_range;
    for_each_index(pool, (place.size + chunk - 1) / chunk, [&](size_t index) {
      double normals[4];
      for (size_t i = index * chunk; i < std::min((index + 1) * chunk, place.size); ++i) {
        if (i % 4 == 0) draw_normals(seed, uint32_t(t), i / 4, normals);
        values[i] = float(normals[i % 4] * deviation);
      }
    });
  }
  changed();
}

std::vector<NamedTensor<float>> Weights::tensors() {
  return list_tensors<float>(tensor_places(architecture_, layout_), values());
}

std::vector<NamedTensor<const float>> Weights::tensors() const {
  return list_tensors<const float>(tensor_places(architecture_, layout_), values());
}

void Weights::pack_forward(ThreadPool* pool, ops::Arithmetic arithmetic) const {
  if (arithmetic == ops::Arithmetic::bf16) return rounded_.make(*this, pool);
  if (packed_) return;
  pack_all(*this, forward_, true, pool);
  packed_ = true;
}

const WeightPanels& Weights::forward_panels() const {
  if (!packed_) throw std::logic_error("weights: their panels are not packed");
  return forward_;
}

void Weights::pack_backward(WeightPanels& out, ThreadPool* pool) const { pack_all(*this, out, false, pool); }

}  // namespace longhaul
