// From the start of a process to a loaded model: this program starts itself and waits for the word that the weights are there.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "options.h"
#include "report.h"
#include "sizes.h"
#include "state/digest.h"
#include "state/hf_export.h"
#include "state/hf_folder.h"

namespace longhaul::bench {

/// The child: loads as the engine does, says so on stdout, and ends without tidying up.
[[noreturn]] inline void load_and_tell(const std::string& folder, int threads) {
  ThreadPool pool(threads);
  const Policy policy(load_hf(folder, pool).weights);
  // The engine answers with it.
  const std::string digest = state_digest(policy, pool);
  const bool told = ::write(STDOUT_FILENO, "loaded\n", 7) == 7;
  ::_exit(told && !digest.empty() ? 0 : 1);
}

/// Seconds from fork to the child's word.
inline double one_load(const std::string& folder, int threads) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
  const double start = now();
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    const std::string count = std::to_string(threads);
    ::execl("/proc/self/exe", "longhaul-bench", "load", "--tell", folder.c_str(), "--threads", count.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  char byte = 0;
  const bool told = ::read(ends[0], &byte, 1) == 1;
  const double seconds = now() - start;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!told || status != 0) throw std::runtime_error("the process that loads " + folder + " failed");
  return seconds;
}

/// [--folder DIR of a Hugging Face model; else one of --size 60M is written and removed] [--rounds 5] [--threads 2]
inline void bench_load(Options options) {
  const std::string tell = options.text("tell", ""), given = options.text("folder", ""), size = options.text("size", "60M");
  const int rounds = options.whole("rounds", 5), threads = options.whole("threads", 2);
  options.done();
  if (!tell.empty()) load_and_tell(tell, threads);

  std::string folder = given;
  if (given.empty()) {
    folder = (std::filesystem::temp_directory_path() / ("longhaul-bench-load-" + std::to_string(::getpid()))).string();
    ThreadPool pool(threads);
    export_hf(policy_of(architecture_of(size), pool), folder, {});
  }
  std::vector<double> times;
  std::string failure;
  try {
    for (int i = 0; i < rounds; ++i) times.push_back(one_load(folder, threads));
  } catch (const std::exception& error) {
    failure = error.what();
  }
  std::uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) bytes += file.file_size();
  if (given.empty()) std::filesystem::remove_all(folder);
  if (!failure.empty()) throw std::runtime_error(failure);
  print({{"bench", "load"},
         {"engine", "longhaul"},
         {"size", given.empty() ? size : given},
         {"threads", threads},
         {"bytes", std::uint64_t(bytes)},
         {"seconds", median(times)},
         {"best_seconds", *std::min_element(times.begin(), times.end())}});
}

}  // namespace longhaul::bench
