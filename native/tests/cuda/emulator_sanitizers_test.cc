// The sanitizers find errors in emulated kernels: the thread sanitizer a missing barrier, the address sanitizer an access past the end. Each
// faulty kernel runs in its own process, which must end with the sanitizer's report.
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/device/device.h"
#include "cuda/emulator_kernels.h"
#include "support/check.h"

using namespace longhaul::cuda;
using namespace longhaul::test;

namespace {

struct Ended {
  bool failed;
  std::string output;
};

Ended in_process_of_its_own(const std::function<void(Stream)>& action) {
  int ends[2];
  check(pipe(ends) == 0, "pipe");
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    action(OwnedStream());
    _exit(0);
  }
  close(ends[1]);
  Ended ended{};
  char part[4096];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) ended.output.append(part, size_t(n));
  close(ends[0]);
  int status = 0;
  check(waitpid(child, &status, 0) == child, "waitpid");
  ended.failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  return ended;
}

/// `parts`: texts that the report must contain, such as the lines.
void check_report(const std::string& what, const std::vector<std::string>& parts, const std::function<void(Stream)>& action) {
  const Ended ended = in_process_of_its_own(action);
  check(ended.failed, what + ": the process must fail");
  for (const std::string& part : parts)
    check(ended.output.find(part) != std::string::npos, what + ": the report lacks \"" + part + "\": " + ended.output.substr(0, 2000));
}

bool skipped(bool can_run, const char* flag) {
  if (!can_run) std::printf("skipped: needs a build with -DLONGHAUL_SANITIZE=%s\n", flag);
  return !can_run;
}

void correct_kernels_are_clean() {
  const OwnedStream stream;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    set_schedule(seed);
    check_same_bits(run_row_sums<0>(stream), expected_row_sums(), "row sums");
    check_same_bits(run_reversed_lanes<0>(stream), expected_reversed_lanes(), "reversed lanes");
    check_same_bits(run_transposed<0>(stream), expected_transposed(), "transposed");
  }
  set_schedule(0);
}

__global__ void two_blocks_write(float* out) {
  if (threadIdx.x == 0) out[0] = 1.0f;
}

__global__ void read_after_shuffle(float* out) {
  if (threadIdx.x == 0) out[0] = 1.0f;
  const float zero = __shfl_sync(full_warp, 0.0f, 0);
  out[1 + threadIdx.x] = out[0] + zero;
}

void missing_barriers_are_races() {
  if (skipped(race_check_builds, "thread")) return;
  const std::vector<std::string> race = {"data race", "emulator_kernels.h:"};
  check_report("row sums, before the partial sums", race, run_row_sums<1>);
  check_report("row sums, before the sum", race, run_row_sums<2>);
  check_report("row sums, added up by the last warp", race, run_row_sums<3>);
  check_report("reversed lanes, no __syncwarp", race, run_reversed_lanes<1>);
  check_report("transposed", race, run_transposed<1>);
}

void blocks_share_nothing() {
  if (skipped(race_check_builds, "thread")) return;
  check_report("two blocks write one value", {"data race", "emulator_sanitizers_test.cc:"}, [](Stream stream) {
    DeviceArray<float> out(1);
    launch(two_blocks_write, dim3(2), dim3(32), 0, stream, out.data());
  });
}

void a_shuffle_orders_no_memory() {
  if (skipped(race_check_builds, "thread")) return;
  check_report("read after a shuffle", {"data race", "emulator_sanitizers_test.cc:"}, [](Stream stream) {
    DeviceArray<float> out(33);
    launch(read_after_shuffle, dim3(1), dim3(32), 0, stream, out.data());
  });
}

__global__ void write_past(float* global, int n, int past_static, int past_dynamic) {
  SHARED(float, fixed, [40]);
  SHARED(float, neighbour, [40]);
  DYNAMIC_SHARED(bytes);
  float* dynamic = reinterpret_cast<float*>(bytes);
  if (threadIdx.x == 7) {
    fixed[0] = neighbour[0] = dynamic[0] = 0.0f;
    global[n] = 0.0f;
    volatile float* end = fixed + 40;
    if (past_static) *end = 1.0f;
    if (past_dynamic) dynamic[40] = 1.0f;
  }
}

void accesses_past_the_end_are_seen() {
  if (skipped(address_check_builds, "address,undefined")) return;
  const std::vector<std::string> report = {"AddressSanitizer", "write_past", "emulator_sanitizers_test.cc:"};
  const auto run = [](int n, int past_static, int past_dynamic) {
    return [=](Stream stream) {
      DeviceArray<float> global(40);
      launch(write_past, dim3(2), dim3(32), 40 * sizeof(float), stream, global.data(), n, past_static, past_dynamic);
    };
  };
  check(!in_process_of_its_own(run(39, 0, 0)).failed, "the last value is inside");
  check_report("device memory", report, run(40, 0, 0));
  check_report("static shared memory", report, run(39, 1, 0));
  check_report("dynamic shared memory", report, run(39, 0, 1));
}

}  // namespace

int main() {
  return run({{"correct kernels are clean", correct_kernels_are_clean},
              {"missing barriers are races", missing_barriers_are_races},
              {"blocks share nothing", blocks_share_nothing},
              {"a shuffle orders no memory", a_shuffle_orders_no_memory},
              {"accesses past the end are seen", accesses_past_the_end_are_seen}});
}
