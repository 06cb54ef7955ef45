#include "serve/saver.h"

#include <new>

#include "state/state_file.h"

namespace longhaul {

void Saver::start(std::shared_ptr<const HeldState> state, std::string path, std::uint32_t id) {
  join();
  busy_ = true;
  try {
    thread_ = std::thread([this, state = std::move(state), path = std::move(path), id] {
      save(*state, path, id);
      busy_ = false;
      ended_();
    });
  } catch (...) {
    busy_ = false;
    throw;
  }
}

void Saver::join() {
  if (thread_.joinable()) thread_.join();
}

void Saver::save(const HeldState& state, const std::string& path, std::uint32_t id) {
  try {
    const WrittenFile written = save_state(*state.policy, path);
    Json entry;
    entry.set("path", path);
    entry.set("size", written.size);
    entry.set("sha256", written.sha256);
    Json fields;
    fields.set("files", Json::Array{std::move(entry)});
    replies_.reply(id, std::move(fields));
  } catch (const std::bad_alloc&) {
    replies_.refuse(id, "OutOfMemory", "not enough memory to save the state");
  } catch (const std::exception& error) {
    replies_.refuse(id, "BadInput", error.what());
  }
}

}  // namespace longhaul
