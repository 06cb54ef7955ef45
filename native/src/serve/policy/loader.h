// The verbs that load a model: `load`, `load_hf`, `load_weights`, `load_state`, and the loading of a reference's weights. Each reads the
// header of a file, has the memory planned, and only then reads the rest. The returned model is not held yet.
// defines: LoadedModel, Loader
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "serve/policy/held_state.h"
#include "serve/policy/memory_guard.h"
#include "serve/protocol/request.h"
#include "serve/protocol/request_settings.h"
#include "state/progress.h"

namespace longhaul {

struct LoadedModel {
  std::unique_ptr<Policy> policy;
  std::string digest;
  std::string weights_digest;
  // Members of the reply.
  Json fields;
};

class Loader {
 public:
  // `held` may be null. A LoRA state may use its weights, or the reference's, as the base that the state was trained on.
  Loader(const MemoryGuard& memory, ThreadPool& pool, std::shared_ptr<const HeldState> held, Reference reference,
         Progress progress)
      : memory_(memory), pool_(pool), held_(std::move(held)), reference_(std::move(reference)), progress_(std::move(progress)) {}

  // All throw RequestError, WrongBaseError and the errors of the file's reader; each says what is wrong.
  LoadedModel random(const Request& request) const;
  LoadedModel folder(const Request& request) const;
  LoadedModel weights_file(const Request& request) const;
  LoadedModel state_file(const Request& request) const;

  // Weights of the held architecture from a Hugging Face folder or a weights file.
  Reference reference_at(const std::string& path) const;

 private:
  struct Base {
    std::shared_ptr<const Weights> weights;
    std::string digest;
  };

  Json plan(const Architecture& architecture, const std::optional<LoraSettings>& lora, MomentFormat moments,
            bool shared = false) const;
  LoadedModel finish(std::shared_ptr<Weights> weights, std::string digest, const TrainedAs& trained, Json memory) const;
  // The weights with this digest, if the engine holds them; otherwise a null pointer.
  Base held_base(const std::string& digest) const;
  Base read_base(const std::string& path) const;

  const MemoryGuard& memory_;
  ThreadPool& pool_;
  std::shared_ptr<const HeldState> held_;
  Reference reference_;
  Progress progress_;
};

}  // namespace longhaul
