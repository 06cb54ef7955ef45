// The device's exponential, logarithm and sums over sixteen lanes have the bits of the CPU's.
#include "cuda/device/exact.h"

#include <algorithm>
#include <bit>

#include "cpu/vec16.h"
#include "support/every_set.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int threads = 64;

struct Functions {
  const float* inputs;
  float* exponentials;
  float* logarithms;
  int n;
};

__global__ void evaluate(Functions f) {
  for (int i = int(threadIdx.x); i < f.n; i += threads) {
    f.exponentials[i] = cuda::exponential(f.inputs[i]);
    f.logarithms[i] = cuda::logarithm(f.inputs[i]);
  }
}

// For value i of `rounds` × 64 values: sums[i] of its group of 16 values, maxima[i] of its group of 32 values.
__global__ void reduce(const float* values, float* sums, float* maxima, int rounds) {
  for (int r = 0; r < rounds; ++r) {
    const float v = values[r * threads + int(threadIdx.x)];
    sums[r * threads + int(threadIdx.x)] = cuda::sum16(v);
    maxima[r * threads + int(threadIdx.x)] = cuda::max32(v);
  }
}

/// Equal bits; all NaNs count as equal, because processors give different ones.
void check_bits(float actual, float expected, const std::string& what) {
  const bool nan = actual != actual;
  if (nan == (expected != expected) && (nan || std::memcmp(&actual, &expected, sizeof(float)) == 0)) return;
  std::ostringstream text;
  text.precision(9);
  text << what << ": " << actual << " instead of " << expected;
  throw Failure(text.str());
}

float cpu_exponential(float x) {
  float results[ops::lanes];
  ops::store(results, ops::exponential(ops::broadcast(x)));
  return results[0];
}

void check_functions(const std::vector<float>& inputs) {
  const cuda::OwnedStream stream;
  const cuda::DeviceArray<float> in(inputs, stream);
  cuda::DeviceArray<float> exponentials(inputs.size()), logarithms(inputs.size());
  cuda::launch(evaluate, dim3(1), dim3(threads), 0, stream,
               Functions{in.data(), exponentials.data(), logarithms.data(), int(inputs.size())});
  const std::vector<float> e = exponentials.host(stream), l = logarithms.host(stream);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::ostringstream input;
    input << std::hexfloat << inputs[i];
    check_bits(e[i], cpu_exponential(inputs[i]), "exponential of " + input.str());
    check_bits(l[i], ops::logarithm(inputs[i]), "logarithm of " + input.str());
  }
}

void functions_of_special_values() {
  std::vector<float> inputs;
  // Zeros, subnormals, infinities, quiet and signalling NaNs, the bounds of both functions, halves between integers: with neighbours.
  for (const float x : {0.0f, 0x1p-149f, 0x1p-126f, 0x1p127f, 3.40282347e38f, __builtin_inff(), __builtin_nanf(""), __builtin_nansf(""),
                        0.5f, 0.707106781f, 1.0f, 2.0f, 87.0f, 88.0f, 88.7228394f, 87.3365448f, 103.97f, 0.34657359f, 1.03972077f,
                        0.69314718f, 12582912.0f})
    for (int step = -2; step <= 2; ++step)
      for (const uint32_t sign : {0u, 0x80000000u}) {
        const uint32_t bits = std::bit_cast<uint32_t>(x) + uint32_t(step);
        inputs.push_back(std::bit_cast<float>(bits ^ sign));
      }
  check_functions(inputs);
}

void functions_over_all_floats() {
  std::vector<float> inputs;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 16381) inputs.push_back(std::bit_cast<float>(uint32_t(bits)));
  check_functions(inputs);
}

void functions_of_scores() {
  std::vector<float> inputs = scaled(random_values(100000, 1), 200.0f);
  const std::vector<float> small = random_values(100000, 2);
  inputs.insert(inputs.end(), small.begin(), small.end());
  check_functions(inputs);
}

void check_reductions(const std::vector<float>& values, bool maxima_too) {
  const cuda::OwnedStream stream;
  const cuda::DeviceArray<float> in(values, stream);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    cuda::set_schedule(seed);
    cuda::DeviceArray<float> sums(values.size()), maxima(values.size());
    cuda::launch(reduce, dim3(1), dim3(threads), 0, stream, in.data(), sums.data(), maxima.data(), int(values.size()) / threads);
    const std::vector<float> s = sums.host(stream), m = maxima.host(stream);
    for (size_t i = 0; i < values.size(); ++i) {
      check_bits(s[i], ops::sum(ops::load(values.data() + i / 16 * 16)), "sum of 16 values from " + std::to_string(i / 16 * 16));
      const float* warp = values.data() + i / 32 * 32;
      if (maxima_too) check_bits(m[i], *std::max_element(warp, warp + 32), "maximum of 32 values from " + std::to_string(i / 32 * 32));
    }
  }
  cuda::set_schedule(0);
}

void reductions_of_random_values() {
  std::vector<float> values = random_values(64 * 200, 3);
  // The values have very different sizes, so that another order gives other bits.
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], int(i * 7 % 23) - 11);
  check_reductions(values, true);
}

void reductions_of_special_values() {
  std::vector<float> values(64 * 8, -0.0f);  // whose sum is −0
  values[20] = 0.0f;
  values[64] = __builtin_inff();
  values[65 + 16] = -__builtin_inff();
  values[128] = __builtin_inff();
  values[129] = -__builtin_inff();
  values[200] = __builtin_nanf("");
  for (size_t i = 256; i < 320; ++i) values[i] = std::ldexp(float(int(i % 5) - 2), -149);
  for (size_t i = 320; i < 384; ++i) values[i] = i % 3 ? 3e38f : -3e38f;
  check_reductions(values, false);
}

}  // namespace

int main() {
  return run({{"functions of special values", functions_of_special_values},
              {"functions over all floats", functions_over_all_floats},
              {"functions of scores", functions_of_scores},
              {"reductions of random values", reductions_of_random_values},
              {"reductions of special values", reductions_of_special_values}});
}
