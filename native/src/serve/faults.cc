#include "serve/faults.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "serve/protocol/request.h"

namespace longhaul {

void raise_fault(const std::string& kind) {
  if (kind == "abort") std::abort();
  if (kind == "segfault") {
    std::signal(SIGSEGV, SIG_DFL);  // the default handler, since a sanitizer would catch the signal
    std::raise(SIGSEGV);
  }
  if (kind == "stall") {
    while (true) pause();
  }
  if (kind != "hang") throw RequestError("BadInput", "unknown fault " + kind);
  std::raise(SIGSTOP);
}

}  // namespace longhaul
