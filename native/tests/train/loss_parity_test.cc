// Compares every loss with PyTorch's autograd in double precision, from the fixture that native/tools/fixture_losses.py wrote: values,
// derivatives with respect to log-probs and entropies, and the reported sums.
#include "support/check.h"
#include "support/fixture_file.h"
#include "support/loss_settings.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

void check_all_near(const std::vector<double>& actual, const std::vector<double>& expected, const std::string& what) {
  check_equal(actual.size(), expected.size(), what + ": number of values");
  for (size_t i = 0; i < expected.size(); ++i) check_near(actual[i], expected[i], 1e-12, what + "[" + std::to_string(i) + "]");
}

void every_case() {
  const FixtureFile file("losses");
  const FlatJson cases = file.metadata("cases");
  const std::vector<float> logprobs = file.floats("logprobs"), old = file.floats("old_logprobs"),
                           rollout = file.floats("rollout_logprobs"), reference = file.floats("reference_logprobs"),
                           entropies = file.floats("entropies");
  const std::vector<int32_t> samples = file.integers("samples");
  int compared = 0;
  for (std::string path = "0"; cases.has_below(path); path = std::to_string(++compared)) {
    const LossSettings settings = loss_settings(cases, path + "/loss");
    validate(settings);
    const std::string advantage_name = cases.text(path + "/advantages"), prefix = "case." + path + ".";
    const std::vector<float> advantages = file.floats("advantages." + advantage_name);
    LossInputs inputs;
    inputs.logprobs = logprobs;
    inputs.old_logprobs = old;
    inputs.advantages = advantages;
    inputs.samples = samples;
    if (settings.tis_cap > 0) inputs.rollout_logprobs = rollout;
    if (settings.wants_reference()) inputs.reference_logprobs = reference;
    if (settings.entropy_weight != 0) inputs.entropies = entropies;
    std::vector<double> derivatives(logprobs.size()), entropy_derivatives(inputs.entropies.size());
    const LossReport report = compute_loss(settings, inputs, derivatives, entropy_derivatives);
    const std::string title = "case " + path + ", " + cases.text(path + "/loss/kind");
    check_all_near(derivatives, file.doubles(prefix + "derivatives"), title + ": derivatives");
    if (settings.entropy_weight != 0)
      check_all_near(entropy_derivatives, file.doubles(prefix + "entropy_derivatives"), title + ": entropy derivatives");
    check_all_near({report.loss, report.clipped, report.ratio, report.max_difference, report.kl, report.entropy, report.tis_weight},
                   file.doubles(prefix + "report"), title + ": report");
  }
  check(compared >= 60, "cases compared: " + std::to_string(compared));
}

}  // namespace

int main() { return run({{"every loss, reduction and term has PyTorch's value and derivatives", every_case}}); }
