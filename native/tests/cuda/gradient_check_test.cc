// The check of a gradient while a device trains: it notices a flipped value in the part that it checks, and only there; correct gradients pass,
// for every matrix, kind of policy and number of passes.
#include <set>

#include "backend/device_error.h"
#include "cuda/cuda_backend.h"
#ifndef LONGHAUL_GPU
#include "cuda/device/emulated/allocations.h"
#endif
#include "cuda/host/training/gradient_check.h"
#include "support/device_checks.h"
#include "support/updates.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int rows = 37;

struct Products {
  Products(const Policy& policy, const cuda::GradientMatrix& matrix)
      : model(policy, nullptr, stream()), dy(random_values(size_t(rows) * size_t(matrix.outputs), 1)),
        x(random_values(size_t(rows) * size_t(matrix.inputs), 2)), gradients(std::vector<float>(policy.trained().size(), 0.0f)),
        product{matrix.offset, matrix.outputs, matrix.inputs, {dy.data(), size_t(matrix.outputs)}, {x.data(), size_t(matrix.inputs)}} {}

  /// The text of the check's error; empty if it notices nothing. Flips the last bit of element `flipped`, unless that is negative.
  std::string noticed(std::uint64_t choice, long flipped) {
    cuda::GradientCheck check;
    check.choose(model, cpu_numerics.oracle, choice, stream());
    cuda::device_zero(gradients.data(), size_t(product.outputs) * size_t(product.inputs) + product.offset, stream());
    for (int piece = 0; piece < 2; ++piece) {
      cuda::add_gradient(product, gradients.data(), rows, stream());
      check.add(product, rows);
    }
    std::vector<float> values = gradients.values();
    if (flipped >= 0) {
      float& value = values[product.offset + size_t(flipped)];
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1u);
    }
    const DeviceArray<float> read(values);
    try {
      check.finish(read.data());
      return "";
    } catch (const WrongValue& error) {
      return error.what();
    }
  }

  cuda::DeviceModel model;
  DeviceArray<float> dy, x, gradients;
  cuda::GradientProduct product;
};

void a_flipped_value_is_noticed() {
  for (const auto& [kind, policy] : policies_to_train()) {
    const std::vector<cuda::GradientMatrix> all = cuda::gradient_matrices(cuda::DeviceModel(policy, nullptr, stream()));
    for (size_t m = 0; m < all.size(); ++m) {
      const std::string what = kind + ", " + all[m].name;
      Products products(policy, all[m]);
      check(products.noticed(m, -1).empty(), what + ": nothing is wrong");
      // With this choice the part starts at the matrix's first element.
      const std::string text = products.noticed(m, 0);
      check(text.starts_with("element [0, 0] of the gradient of " + all[m].name + " ["), what + ": " + text);
      const long past_inputs = 64;
      if (all[m].inputs > past_inputs) check(products.noticed(m, past_inputs).empty(), what + ": not in the part that is computed again");
    }
  }
}

/// For each element there is a choice whose part contains it.
void every_element_is_chosen_at_times() {
  const Policy policy = tiny_policy(7, tiny_architecture());
  const std::vector<cuda::GradientMatrix> all = cuda::gradient_matrices(cuda::DeviceModel(policy, nullptr, stream()));
  Products products(policy, all[2]);
  const long last = long(all[2].outputs) * all[2].inputs - 1;
  bool noticed = false;
  const std::uint64_t places = std::uint64_t(std::max(0, all[2].outputs - 48) + 1) * std::uint64_t(std::max(0, all[2].inputs - 64) + 1);
  noticed = !products.noticed(2 + all.size() * (places - 1), last).empty();
  check(noticed, "the last element");
}

void right_updates_pass() {
  for (const auto& [name, policy] : policies_to_train()) {
    const auto held = std::make_shared<const Policy>(policy);
    cuda::CudaBackend device;
    device.hold(held);
    const OwnedBatch batch = group_batch(policy.architecture().vocab_size, 1, 3, 90, 3, 90);
    for (std::uint64_t choice = 0; choice < 4; ++choice) {
      UpdateSettings settings = policy_settings({1e-2});
      settings.checked_gradient = choice * 0x9e3779b97f4a7c15u;
      settings.passes = {choice % 2 ? 512 : 1 << 30, choice % 3 == 0};
      check(compute_update(*held, batch.view(), settings, device).applied, name);
      device.hold(held);
    }
  }
}

#ifndef LONGHAUL_GPU
/// End to end: a value of the gradient on the device differs from its products, and the update throws.
void a_wrong_gradient_ends_the_update() {
  const auto held = std::make_shared<const Policy>(tiny_policy());
  const OwnedBatch batch = group_batch(held->architecture().vocab_size, 1, 2, 9, 3, 10);
  const std::vector<cuda::GradientMatrix> all = cuda::gradient_matrices(cuda::DeviceModel(*held, nullptr, stream()));
  for (std::uint64_t m = 0; m < all.size(); ++m) {
    cuda::CudaBackend device;
    device.hold(held);
    UpdateSettings settings = policy_settings({1e-2});
    settings.checked_gradient = m;
    settings.first_logprobs = [&](const MiniBatch&, std::span<const float>) {
      // The gradient is all zeros now; its memory was allocated last.
      static_cast<float*>(cuda::emulated::newest_of(held->trained().size() * sizeof(float)))[all[m].offset] = 1;
    };
    bool noticed = false;
    try {
      compute_update(*held, batch.view(), settings, device);
    } catch (const WrongValue&) {
      noticed = true;
    }
    check(noticed, all[m].name);
  }
}
#endif

}  // namespace

int main() {
  return run({{"a flipped value is noticed", a_flipped_value_is_noticed},
              {"every element is chosen at times", every_element_is_chosen_at_times},
#ifndef LONGHAUL_GPU
              {"a wrong gradient ends the update", a_wrong_gradient_ends_the_update},
#endif
              {"right updates pass", right_updates_pass}});
}
