// longhaul-engine: holds a policy and serves frames on a socket (docs/engine-protocol.md).
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string_view>

#include "backend/backend.h"
#include "device_choice.h"
#include "serve/log.h"
#include "serve/selftest.h"
#include "serve/server.h"
#include "serve/version.h"

namespace {

/// The engine uses all cores that are otherwise idle. A process that detects a death or answers a server must get a core at once: a worker
/// that starts beside an engine of the same priority takes twice as long to start.
constexpr int niceness = 10;

constexpr const char* usage_text =
    "usage: longhaul-engine --fd N [--test-faults] | --version | --selftest\n"
    "  --fd N         serve frames on this socket, which the parent process opened\n"
    "  --version      print version, protocol and numerics\n"
    "  --selftest     check that every instruction set of this machine, and the GPU if there is one, gives the same bits\n"
    "  --test-faults  allow the verb `fault`; for tests\n";

bool parse_fd(std::string_view text, int& fd) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), fd);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && fcntl(fd, F_GETFD) >= 0;
}

int serve(const longhaul::ServerOptions& options) {
  // A parent that was killed runs no clean-up, so the kernel must end this process. The parent may have died before this call.
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) return 0;
  signal(SIGPIPE, SIG_IGN);
  // Ctrl-C reaches the whole process group; the parent decides when the engine ends.
  signal(SIGINT, SIG_IGN);
  fcntl(options.fd, F_SETFD, FD_CLOEXEC);
  // Threads inherit the priority. If it cannot be set, the engine only runs at the usual one.
  setpriority(PRIO_PROCESS, 0, niceness);
  longhaul::Server server(options);
  const int code = server.run();
  _exit(code);  // _exit, since the reader's thread still waits in read()
}

int selftest() {
  try {
    return longhaul::run_selftest(longhaul::make_chosen_backend, longhaul::chosen_numerics());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "longhaul-engine: %s\n", error.what());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  longhaul::ServerOptions options;
  options.make_backend = longhaul::make_chosen_backend;
  bool has_fd = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--version") {
      std::printf("longhaul-engine %s (protocol %d, numerics %s/%d and %s/%d, g++ %s)\n", longhaul::engine_version, longhaul::protocol_version,
                  longhaul::cpu_numerics.name, longhaul::cpu_numerics.version, longhaul::bf16_numerics.name, longhaul::bf16_numerics.version,
                  __VERSION__);
      return 0;
    }
    if (argument == "--selftest") return selftest();
    if (argument == "--test-faults") {
      options.test_faults = true;
    } else if (argument == "--fd" && i + 1 < argc && parse_fd(argv[i + 1], options.fd)) {
      has_fd = true;
      ++i;
    } else {
      std::fprintf(stderr, "longhaul-engine: cannot use argument %s\n%s", argv[i], usage_text);
      return 2;
    }
  }
  if (!has_fd) {
    std::fputs(usage_text, stderr);
    return 2;
  }
  try {
    return serve(options);
  } catch (const std::exception& error) {
    longhaul::log_line("error", error.what());
    return 1;
  }
}
