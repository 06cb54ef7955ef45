#include "base/process_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/check.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

/// The limit of this process.
size_t address_space() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * size_t(::sysconf(_SC_PAGESIZE));
}

void available_memory_respects_the_limit_of_the_address_space() {
  check(available_memory() > 0, "some memory is free");
  rlimit before{};
  check_equal(::getrlimit(RLIMIT_AS, &before), 0, "getrlimit");
  const size_t rest = size_t{64} << 20;
  rlimit tight = before;
  tight.rlim_cur = address_space() + rest;
  check_equal(::setrlimit(RLIMIT_AS, &tight), 0, "setrlimit");
  const size_t limited = available_memory();
  ::setrlimit(RLIMIT_AS, &before);
  check(limited <= rest && limited >= rest / 2, "64 MiB are left: " + std::to_string(limited));
}

void resident_bytes_count_what_was_written() {
  const size_t before = resident_bytes();
  const std::vector<char> written(size_t{32} << 20, 1);
  const size_t more = resident_bytes() - before;
  check(more > written.size() * 9 / 10 && more < written.size() * 2, std::to_string(more) + " bytes more");
}

}  // namespace

int main() {
  return run({{"available memory respects the limit of the address space", available_memory_respects_the_limit_of_the_address_space},
              {"resident bytes count what was written", resident_bytes_count_what_was_written}});
}
