// A save writes the requested state, however long that takes; an update that arrives during the save waits.
#include <fcntl.h>
#include <sys/stat.h>

#include "support/checks.h"
#include "support/forked_engine.h"
#include "state/safetensors.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const auto folder = std::filesystem::temp_directory_path() / ("longhaul-save-" + std::to_string(getpid()));

std::vector<std::uint8_t> read_to_end(int fd) {
  std::vector<std::uint8_t> bytes;
  std::uint8_t piece[1 << 16];
  for (ssize_t got; (got = read(fd, piece, sizeof piece)) > 0;) bytes.insert(bytes.end(), piece, piece + got);
  return bytes;
}

void an_update_waits_for_a_slow_save() {
  ForkedEngine engine;
  const std::string state = engine.start();
  const std::string plain = (folder / "plain").string(), slow = (folder / "slow").string();
  CHECK(engine.call(save_request(state, plain)).ok());

  // The temporary file is a pipe, so the save stops when the pipe is full, until it is read.
  const std::string pipe = slow + ".tmp-" + std::to_string(engine.pid());
  CHECK(mkfifo(pipe.c_str(), 0600) == 0);
  const WrittenBatch batch =
      write_batch((folder / "batch").string(), group_batch(tiny_architecture().vocab_size, 2, 2, 9, 2, 6), state, 2);
  constexpr std::uint32_t save_id = 1000, update_id = 1001;
  engine.send(save_id, save_request(state, slow));
  engine.send(update_id, update_request(state, batch, 2, "first"));
  const int reader = open(pipe.c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(reader >= 0);
  // Long enough for an update that would not wait.
  for (int i = 0; i < 300; ++i) CHECK(engine.stat("updates") == 0);
  const std::vector<std::uint8_t> written = read_to_end(reader);
  close(reader);
  CHECK(written.size() > 128 << 10);  // far more than a pipe can hold
  CHECK(written == read_file(plain));

  const Answer saved = engine.receive();
  CHECK(saved.id == save_id && saved.state() == state);
  CHECK(saved.error().find("cannot sync") != std::string::npos);  // a pipe cannot be synced
  const Answer updated = engine.receive();
  CHECK(updated.id == update_id && updated.ok() && updated.state() != state);
}

}  // namespace

int main() {
  std::filesystem::create_directory(folder);
  an_update_waits_for_a_slow_save();
  std::filesystem::remove_all(folder);
  return test::finish();
}
