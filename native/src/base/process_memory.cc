#include "base/process_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace longhaul {

namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// A number of bytes; `unlimited` if the file is missing, is empty or says "max".
std::size_t read_bytes(const std::string& path) {
  const std::string line = read_line(path);
  if (line.empty() || line[0] < '0' || line[0] > '9') return unlimited;
  return std::size_t(std::strtoull(line.c_str(), nullptr, 10));
}

/// The value of "<key> <number>" or "<key>: <number>" in a file of such lines; 0 if the key is missing.
std::size_t read_field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  std::size_t value = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    if (words >> name >> value && (name == key || name == key + ":")) return value;
  }
  return 0;
}

/// Bytes that one cgroup may still use: its limit minus its usage, where reclaimable pages of files do not count as used.
std::size_t rest_of_group(const std::string& folder, const char* limit_file, const char* usage_file, const char* reclaimable) {
  const std::size_t limit = read_bytes(folder + limit_file), usage = read_bytes(folder + usage_file);
  if (limit == unlimited || usage == unlimited) return unlimited;
  const std::size_t files = std::min(usage, read_field(folder + "/memory.stat", reclaimable));
  return limit > usage - files ? limit - (usage - files) : 0;
}

/// The least number of bytes that this process's cgroup or one of its ancestors may still use.
std::size_t rest_of_groups(const std::string& root, std::string path, const char* limit_file, const char* usage_file,
                           const char* reclaimable) {
  std::size_t rest = unlimited;
  for (;; path.resize(path.find_last_of('/'))) {
    rest = std::min(rest, rest_of_group(root + path, limit_file, usage_file, reclaimable));
    if (path.empty() || path.find_last_of('/') == std::string::npos) return rest;
  }
}

std::size_t rest_of_cgroups() {
  std::size_t rest = unlimited;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = ",";
    controllers.append(line, first + 1, second - first - 1).append(",");
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == ",,")
      rest = std::min(rest, rest_of_groups("/sys/fs/cgroup", path, "/memory.max", "/memory.current", "inactive_file"));
    else if (controllers.find(",memory,") != std::string::npos)
      rest = std::min(rest, rest_of_groups("/sys/fs/cgroup/memory", path, "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                           "total_inactive_file"));
  }
  return rest;
}

std::size_t rest_of_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  const std::size_t pages = read_bytes("/proc/self/statm"), used = pages == unlimited ? 0 : pages * std::size_t(::sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > used ? std::size_t(limit.rlim_cur) - used : 0;
}

}  // namespace

std::size_t resident_bytes() {
  unsigned long long total = 0, resident = 0, shared = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  const int read = std::fscanf(file, "%llu %llu %llu", &total, &resident, &shared);
  std::fclose(file);
  if (read != 3 || shared > resident) return 0;
  return static_cast<std::size_t>(resident - shared) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::size_t available_memory() {
  const std::size_t machine = read_field("/proc/meminfo", "MemAvailable");
  return std::min({machine == 0 ? unlimited : machine * 1024, rest_of_cgroups(), rest_of_address_space()});
}

}  // namespace longhaul
