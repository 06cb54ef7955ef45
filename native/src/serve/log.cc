#include "serve/log.h"

#include <unistd.h>

namespace longhaul {

void log_line(const char* level, const std::string& message, const Json::Object& facts) {
  Json line;
  line.set("level", level);
  // A path in an error message may be in any encoding, but the line must stay valid JSON.
  line.set("message", is_utf8(message) ? message : std::string("(a message that is not UTF-8)"));
  for (const JsonMember& fact : facts) line.set(fact.name, fact.value);
  const std::string text = write_json(line) + "\n";
  // A single write, so that lines of two threads do not mix. A closed standard error must not end the engine.
  [[maybe_unused]] const ssize_t wrote = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace longhaul
