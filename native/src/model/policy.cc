#include "model/policy.h"

#include <stdexcept>
#include <utility>

namespace longhaul {

namespace {

std::shared_ptr<Weights> copy_of(const Weights& weights) { return std::make_shared<Weights>(weights); }

template <class T>
T needed(T pointer) {
  if (!pointer) throw std::invalid_argument("policy: there are no weights");
  return pointer;
}

/// For a policy that shares weights. The cast is safe: all code that writes weights first checks that they are not
/// shared.
std::shared_ptr<Weights> shared(std::shared_ptr<const Weights> weights) {
  return std::const_pointer_cast<Weights>(needed(std::move(weights)));
}

}  // namespace

Policy::Policy(std::shared_ptr<Weights> weights, MomentFormat moments) : weights_(needed(std::move(weights))) {
  if (weights_.use_count() > 1) weights_ = copy_of(*weights_);
  moments_ = Moments(moments, weights_->layout().total);
}

Policy::Policy(std::shared_ptr<const Weights> base, const LoraSettings& lora, uint64_t seed, MomentFormat moments)
    : weights_(shared(std::move(base))) {
  adapters_.emplace(weights_->architecture(), lora);
  adapters_->initialize(seed);
  moments_ = Moments(moments, adapters_->layout().total);
}

Policy Policy::frozen(std::shared_ptr<const Weights> weights) {
  Policy policy;
  policy.weights_ = shared(std::move(weights));
  policy.frozen_ = true;
  return policy;
}

Policy::Policy(const Policy& other)
    : optimizer_steps(other.optimizer_steps),
      weights_(other.shares_weights() ? other.weights_ : copy_of(*other.weights_)),
      frozen_(other.frozen_),
      adapters_(other.adapters_),
      moments_(other.moments_) {}

Policy& Policy::operator=(const Policy& other) {
  if (this == &other) return *this;
  if (other.shares_weights()) {
    weights_ = other.weights_;
  } else if (weights_ && !shares_weights() && weights_.use_count() == 1) {
    *weights_ = *other.weights_;
  } else {
    weights_ = copy_of(*other.weights_);
  }
  frozen_ = other.frozen_;
  adapters_ = other.adapters_;
  moments_ = other.moments_;
  optimizer_steps = other.optimizer_steps;
  return *this;
}

Weights& Policy::own_weights() {
  if (shares_weights()) throw std::logic_error("policy: its weights are frozen");
  if (weights_.use_count() > 1) weights_ = copy_of(*weights_);
  return *weights_;
}

std::span<float> Policy::trained() {
  if (frozen_) return {};
  return adapters_ ? adapters_->values() : own_weights().values();
}

std::span<const float> Policy::trained() const {
  if (frozen_) return {};
  return adapters_ ? adapters_->values() : std::as_const(*weights_).values();
}

std::vector<TrainedRange> Policy::trained_ranges() const {
  std::vector<TrainedRange> trained;
  if (frozen_) return trained;
  for (const ParameterRange& range : adapters_ ? adapters_->layout().ranges() : layout().ranges())
    trained.push_back({range.offset, range.size(), range.decayed});
  return trained;
}

std::vector<TensorPlace> Policy::trained_places() const {
  if (frozen_) return {};
  return adapters_ ? tensor_places(adapters_->settings(), adapters_->layout()) : tensor_places(architecture(), layout());
}

void Policy::changed() {
  if (frozen_) return;
  if (adapters_) {
    adapters_->changed();
  } else {
    own_weights().changed();
  }
}

void Policy::pack_forward(ThreadPool* pool, ops::Arithmetic arithmetic) const {
  weights_->pack_forward(pool, arithmetic);
  if (adapters_) adapters_->pack_forward(pool, arithmetic);
}

}  // namespace longhaul
