// The clocks, and the output: one JSON object per line on stdout.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "wire/json.h"

namespace longhaul::bench {

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline void print(Json::Object members) {
  std::printf("%s\n", write_json(Json(std::move(members))).c_str());
  std::fflush(stdout);
}

/// Processor time of the whole process. It excludes the time of other users on a shared machine, but also the time spent waiting, so wall
/// time remains the measure.
inline double processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace longhaul::bench
