// A batch file is read back as it was written. It is refused if its digest, identity or tensors differ from those that the update names.
#include "state/batch_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "support/checks.h"
#include "support/folders.h"
#include "state/safetensors.h"
#include "state/digest/sha256.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const std::string state(64, 'a');

struct Parts {
  std::string identity = R"({"mini_batches":2,"previous_state":")" + state + R"(","schema":"longhaul.batch/2"})";
  std::vector<OutgoingTensor> tensors;
};

template <class T>
OutgoingTensor tensor(const char* name, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  return {name, std::is_same_v<T, float> ? "F32" : "I32", std::move(shape), std::as_bytes(std::span(values))};
}

const std::vector<std::int32_t> nodes{-1, 3, 0, 0, 2, 0, -1, 2, 1}, tokens{5, 6, 7, 8, 9, 5, 6}, rows{2, 3, 5},
    target_tokens{8, 9, 6}, samples{0, 0, 1};
const std::vector<float> advantages{1, -1, 0.5f}, old{-1, -2, -3}, rollout{-1.5f, -2.5f, -3.5f};

Parts good() {
  Parts parts;
  parts.tensors = {tensor("nodes", {3, 3}, nodes),
                   tensor("target_advantages", {3}, advantages),
                   tensor("target_old_logprobs", {3}, old),
                   tensor("target_rollout_logprobs", {3}, rollout),
                   tensor("target_rows", {3}, rows),
                   tensor("target_samples", {3}, samples),
                   tensor("target_tokens", {3}, target_tokens),
                   tensor("tokens", {7}, tokens)};
  return parts;
}

// Returns the file's sha256.
std::string write(const TemporaryFolder& folder, const Parts& parts) {
  const std::string path = folder / "batch.safetensors";
  write_safetensors(path, {{"longhaul", parts.identity}}, parts.tensors);
  return sha256_hex(read_text(path));
}

bool equal(std::span<const std::int32_t> a, const std::vector<std::int32_t>& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
bool equal(std::span<const float> a, const std::vector<float>& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

void reads_what_was_written() {
  const TemporaryFolder folder("batch-file");
  const std::string sha256 = write(folder, good());
  const BatchFile read = read_batch(folder / "batch.safetensors", sha256, state, 2);
  const Batch batch = read.view();
  CHECK(equal(batch.nodes, nodes) && equal(batch.tokens, tokens) && equal(batch.target_rows, rows));
  CHECK(equal(batch.target_tokens, target_tokens) && equal(batch.target_samples, samples));
  CHECK(equal(batch.target_advantages, advantages) && equal(batch.target_old_logprobs, old));
  CHECK(equal(batch.target_rollout_logprobs, rollout));
  CHECK(batch.node_count() == 3 && batch.target_count() == 3);
  // Either kind of log-probs may be left out.
  const auto read_without = [&](std::initializer_list<std::string_view> names) {
    Parts parts = good();
    std::erase_if(parts.tensors, [&](const OutgoingTensor& each) { return std::ranges::find(names, each.name) != names.end(); });
    const std::string shorter = write(folder, parts);
    return read_batch(folder / "batch.safetensors", shorter, state, 2);
  };
  CHECK(read_without({"target_rollout_logprobs"}).view().target_rollout_logprobs.empty());
  CHECK(read_without({"target_old_logprobs"}).view().target_old_logprobs.empty());
  CHECK_THROWS(BatchError, read_without({"target_old_logprobs", "target_rollout_logprobs"}), "tensor target_old_logprobs is missing");
}

void refuses_what_the_update_does_not_name() {
  const TemporaryFolder folder("batch-identity");
  const std::string path = folder / "batch.safetensors";
  const std::string sha256 = write(folder, good());
  CHECK_THROWS(BatchError, read_batch(path, std::string(64, '0'), state, 2), "its sha256 is " + sha256 + ", not 000");
  CHECK_THROWS(BatchError, read_batch(path, sha256, std::string(64, 'b'), 2), "was made for state " + state + ", but the update names bbb");
  CHECK_THROWS(BatchError, read_batch(path, sha256, state, 3), "mini_batches is 2; the update has 3 learning rates");
  CHECK_THROWS(std::system_error, read_batch(path + ".none", sha256, state, 2), "batch.safetensors.none");
  const auto refused = [&](const std::string& identity, const std::string& part) {
    Parts parts = good();
    parts.identity = identity;
    const std::string spoilt = write(folder, parts);
    CHECK_THROWS(BatchError, read_batch(path, spoilt, state, 2), part);
    CHECK_THROWS(BatchError, read_batch(path, spoilt, state, 2), "batch file " + path);
  };
  refused(R"({"mini_batches":2,"previous_state":")" + state + R"(","schema":"longhaul.batch/1"})",
          "schema longhaul.batch/1; this engine reads longhaul.batch/2");
  refused(R"({"mini_batches":2,"schema":"longhaul.batch/2"})", "previous_state is missing");
  refused(R"({"previous_state":")" + state + R"(","schema":"longhaul.batch/2"})", "mini_batches is missing");
  refused("{", "__metadata__.longhaul is broken");
  refused("3", "schema is missing");
}

void refuses_tensors_of_another_form() {
  const TemporaryFolder folder("batch-tensors");
  const std::string path = folder / "batch.safetensors";
  const auto refused = [&](std::size_t index, const OutgoingTensor* with, const std::string& part) {
    Parts parts = good();
    if (with != nullptr) {
      parts.tensors[index] = *with;
    } else {
      parts.tensors.erase(parts.tensors.begin() + static_cast<std::ptrdiff_t>(index));
    }
    const std::string spoilt = write(folder, parts);
    CHECK_THROWS(BatchError, read_batch(path, spoilt, state, 2), part);
  };
  refused(5, nullptr, "tensor target_samples is missing");
  const std::vector<float> seven(7);
  const OutgoingTensor two_columns = tensor("target_samples", {3, 1}, samples), floats = tensor("tokens", {3}, advantages),
                       flat = tensor("nodes", {9}, nodes), longer = tensor("target_rollout_logprobs", {7}, seven),
                       integers = tensor("target_old_logprobs", {9}, nodes);
  refused(5, &two_columns, "tensor target_samples is I32 [3, 1]; it must be I32 with one dimension");
  refused(7, &floats, "tensor tokens is F32 [3]; it must be I32 with one dimension");
  refused(0, &flat, "tensor nodes is I32 [9]; it must be I32 with 3 columns");
  refused(2, &integers, "tensor target_old_logprobs is I32 [9]; it must be F32 with one dimension");
  refused(3, &longer, "tensor target_rollout_logprobs has 7 values; target_rows has 3");
}

}  // namespace

int main() {
  reads_what_was_written();
  refuses_what_the_update_does_not_name();
  refuses_tensors_of_another_form();
  return finish();
}
