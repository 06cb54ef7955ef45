#include "train/update.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>

#include "base/exact_math.h"
#include "train/forest_pass.h"

namespace longhaul {

namespace {

/// Unit of work of the elementwise loops; also the order in which the gradient norm is summed.
constexpr size_t parameter_block = 16384;

struct ShardSums {
  double loss = 0, ratio = 0, max_difference = 0;
  size_t clipped = 0;

  void add(const ShardSums& other) {
    loss += other.loss;
    ratio += other.ratio;
    max_difference = std::max(max_difference, other.max_difference);
    clipped += other.clipped;
  }
};

void check(const UpdateSettings& settings) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(std::string("update: ") + what);
  };
  require(!settings.learning_rates.empty(), "learning_rates is empty; it has one rate for each mini-batch");
  for (const double rate : settings.learning_rates)
    require(std::isfinite(rate) && rate >= 0, "learning_rates must be finite and not negative");
  require(settings.beta1 >= 0 && settings.beta1 < 1 && settings.beta2 >= 0 && settings.beta2 < 1,
          "adam_betas must be in [0, 1)");
  require(settings.adam_eps > 0, "adam_eps must be above 0");
  require(settings.weight_decay >= 0, "weight_decay must not be negative");
  require(settings.max_grad_norm > 0, "max_grad_norm must be above 0");
  require(settings.temperature > 0, "temperature must be above 0");
  require(settings.loss.eps_clip_low >= 0 && settings.loss.eps_clip_low <= 1 && settings.loss.eps_clip_high >= 0,
          "eps_clip_low must be in [0, 1] and eps_clip_high not negative");
}

/// Pairs of mini-batch and shard that have targets; the targets of a valid batch are sorted by them.
int count_shards(const Batch& batch) {
  int count = 0;
  for (size_t t = 0; t < batch.target_rows.size(); ++t) {
    const int32_t* place = &batch.target_shards[2 * t];
    count += t == 0 || place[0] != place[-2] || place[1] != place[-1];
  }
  return count;
}

class Update {
 public:
  Update(const Policy& policy, const UpdateSettings& settings, ThreadPool& pool)
      : policy_(std::make_unique<Policy>(policy)), settings_(settings), pool_(pool), op_(ops::table()) {
    // Moments and weights step range by range, because only matrices decay.
    for (const ParameterRange& range : policy.layout().ranges())
      for (size_t offset = 0; offset < range.size(); offset += parameter_block)
        blocks_.push_back({range.offset + offset, std::min(parameter_block, range.size() - offset), range.decayed});
  }

  /// Once.
  UpdateReport run(const Batch& batch) {
    const int mini_batches = int(settings_.learning_rates.size());
    shards_ = count_shards(batch);
    const auto give_up = [](const char* reason) { return UpdateReport{false, nullptr, reason, {}}; };
    if (settings_.reset_moments) {
      std::fill(policy_->first_moments().begin(), policy_->first_moments().end(), 0.0f);
      std::fill(policy_->second_moments().begin(), policy_->second_moments().end(), 0.0f);
      policy_->optimizer_steps = 0;
    }
    double loss = 0, norm_sum = 0, clip_ratio = 0, ratio = 0, max_difference = 0, rows = 0, targets = 0;
    for (int k = 0; k < mini_batches; ++k) {
      const std::vector<Shard> shards = shards_of(batch, k);
      size_t count = 0;
      for (const Shard& shard : shards) {
        count += shard.target_rows.size();
        rows += shard.forest.rows();
      }
      policy_->pack_backward(backward_panels_, &pool_);
      const ShardSums sums = accumulate(shards, count);
      if (cancelled()) return give_up("cancelled");
      const double norm = gradient_norm();
      if (!std::isfinite(norm) || !std::isfinite(sums.loss)) return give_up("non_finite");
      step(settings_.learning_rates[k], norm);
      loss += sums.loss / double(count);
      norm_sum += norm;
      clip_ratio += double(sums.clipped) / double(count);
      ratio += sums.ratio / double(count);
      if (k == 0) max_difference = sums.max_difference;
      targets += double(count);
    }
    const double n = mini_batches;
    return {true,
            std::move(policy_),
            "",
            {{"loss", loss / n},
             {"grad_norm", norm_sum / n},
             {"clip_ratio", clip_ratio / n},
             {"mean_ratio", ratio / n},
             {"max_logprob_difference", max_difference},
             {"targets", targets},
             {"rows", rows}}};
  }

 private:
  struct Block {
    size_t offset, size;
    bool decayed;
  };

  bool cancelled() const { return settings_.cancelled && settings_.cancelled->load(std::memory_order_relaxed); }

  void tell_progress() {
    if (!settings_.progress) return;
    std::lock_guard lock(telling_);
    settings_.progress(++shards_done_, shards_);
  }

  /// Sums of all shards, in shard order, and the gradient in gradients_[0].
  ShardSums accumulate(const std::vector<Shard>& shards, size_t targets) {
    if (gradients_.size() < shards.size()) gradients_.resize(shards.size());
    std::vector<ShardSums> sums(shards.size());
    pool_.parallel_for(shards.size(), [&](size_t s) {
      if (cancelled()) return;
      sums[s] = shard_gradient(shards[s], targets, gradients_[s]);
      tell_progress();
    });
    if (cancelled()) return {};
    pool_.parallel_for(blocks_.size(), [&](size_t b) {
      const Block& block = blocks_[b];
      for (size_t s = 1; s < shards.size(); ++s)
        op_.add(gradients_[0].data() + block.offset, gradients_[s].data() + block.offset, block.size);
    });
    ShardSums total;
    for (const ShardSums& shard : sums) total.add(shard);
    return total;
  }

  ShardSums shard_gradient(const Shard& shard, size_t targets, AlignedBuffer& gradient) {
    gradient.resize(policy_->layout().total);
    ShardSums sums;
    static thread_local ForestPass pass;
    pass.forward(*policy_, shard.forest, shard.target_rows, settings_.advanced);
    pass.backward(
        backward_panels_, shard.target_tokens, float(settings_.temperature),
        [&](size_t target, float logprob) {
          const float old = shard.old_logprobs[target];
          const TargetLoss loss = target_loss(settings_.loss, logprob, old, shard.advantages[target]);
          sums.loss += loss.loss;
          sums.ratio += loss.ratio;
          sums.clipped += loss.clipped;
          if (settings_.loss.kind == LossKind::clipped_policy)
            sums.max_difference = std::max(sums.max_difference, std::abs(double(logprob) - double(old)));
          return loss.derivative / double(targets);
        },
        gradient.data(), settings_.advanced);
    return sums;
  }

  double gradient_norm() {
    std::vector<double> squares(blocks_.size());
    pool_.parallel_for(blocks_.size(), [&](size_t b) {
      squares[b] = op_.sum_of_squares(gradients_[0].data() + blocks_[b].offset, blocks_[b].size);
    });
    double total = 0;
    for (const double square : squares) total += square;
    return std::sqrt(total);
  }

  void step(double learning_rate, double norm) {
    const int64_t t = ++policy_->optimizer_steps;
    ops::AdamStep adam{};
    adam.learning_rate = float(learning_rate);
    adam.eps = float(settings_.adam_eps);
    adam.beta1 = float(settings_.beta1);
    adam.one_minus_beta1 = float(1 - settings_.beta1);
    adam.beta2 = float(settings_.beta2);
    adam.one_minus_beta2 = float(1 - settings_.beta2);
    adam.correction1 = float(1 - exact::integer_power(settings_.beta1, t));
    adam.correction2 = float(1 - exact::integer_power(settings_.beta2, t));
    adam.gradient_scale = norm > settings_.max_grad_norm ? float(settings_.max_grad_norm / norm) : 1.0f;
    pool_.parallel_for(blocks_.size(), [&](size_t b) {
      const Block& block = blocks_[b];
      ops::AdamStep mine = adam;
      mine.weight_decay = block.decayed ? float(settings_.weight_decay) : 0.0f;
      op_.adamw(mine, policy_->weights().data() + block.offset, policy_->first_moments().data() + block.offset,
                policy_->second_moments().data() + block.offset, gradients_[0].data() + block.offset, block.size);
    });
    policy_->weights_changed(&pool_);
  }

  // The next policy, while it comes into being.
  std::unique_ptr<Policy> policy_;
  const UpdateSettings& settings_;
  ThreadPool& pool_;
  const ops::Table& op_;
  /// Of the weights that the mini-batch starts from.
  PolicyPanels backward_panels_;
  std::vector<Block> blocks_;
  std::vector<AlignedBuffer> gradients_;
  int shards_ = 0;
  std::mutex telling_;
  int shards_done_ = 0;
};

}  // namespace

UpdateReport compute_update(const Policy& policy, const Batch& batch, const UpdateSettings& settings, ThreadPool& pool) {
  check(settings);
  validate(batch, policy.architecture(), int(settings.learning_rates.size()));
  return Update(policy, settings, pool).run(batch);
}

}  // namespace longhaul
