// A real Server in a child process, to which the tests send frames. So the tests see from outside what the server does to its state, and
// how its process ends.
// defines: Answer, ForkedEngine, Tokens, verb_request, generate_request, save_request, fault_request, WrittenBatch, write_batch,
//          update_request, lora_json_of
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#ifdef LONGHAUL_TEST_ON_DEVICE
#include "cuda/cuda_backend.h"
#endif
#include "support/checks.h"
#include "support/policies.h"
#include "serve/server.h"
#include "state/identity.h"
#include "state/digest/sha256.h"
#include "wire/frame.h"

namespace longhaul::test {

struct Answer {
  // False if there was no reply.
  bool alive = false;
  std::uint32_t id = 0;
  Json header;
  std::vector<Json> progress;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;

  bool ok() const { return alive && *header.find("ok")->boolean(); }
  // A string member of the header; empty if it is missing.
  std::string text(const char* name) const {
    const Json* value = alive ? header.find(name) : nullptr;
    return value == nullptr || value->string() == nullptr ? "" : *value->string();
  }
  std::string state() const { return text("state"); }
  std::string error() const {
    const Json* error = alive ? header.find("error") : nullptr;
    return error == nullptr ? "" : *error->find("code")->string() + ": " + *error->find("message")->string();
  }
};

inline Json verb_request(const char* verb) {
  Json request;
  request.set("verb", verb);
  return request;
}

// The backend of the engines that tests start: in a program of `serve_on_device_…` the emulated device's.
#ifdef LONGHAUL_TEST_ON_DEVICE
inline std::unique_ptr<Backend> make_test_backend(ThreadPool&) { return std::make_unique<cuda::CudaBackend>(); }
#else
inline constexpr MakeBackend make_test_backend = make_cpu_backend;
#endif

struct EngineOptions {
  // Runs in the child before the server starts.
  std::function<void()> prepare = [] {};
  bool test_faults = false;
  MakeBackend make_backend = make_test_backend;
};

class ForkedEngine {
 public:
  explicit ForkedEngine(const EngineOptions& options = {}) {
    int socket_ends[2], error_ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, socket_ends) != 0 || pipe(error_ends) != 0) std::abort();
    std::fflush(nullptr);
    child_ = fork();
    if (child_ < 0) std::abort();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      signal(SIGPIPE, SIG_IGN);
      dup2(error_ends[1], STDERR_FILENO);
      for (const int fd : {socket_ends[0], error_ends[0], error_ends[1]}) close(fd);
      options.prepare();
      try {
        Server server({.fd = socket_ends[1], .test_faults = options.test_faults, .make_backend = options.make_backend});
        _exit(server.run());
      } catch (const std::exception&) {
        _exit(1);
      }
    }
    close(socket_ends[1]);
    close(error_ends[1]);
    socket_ = socket_ends[0];
    errors_ = error_ends[0];
  }
  ~ForkedEngine() {
    kill(child_, SIGKILL);
    end();
    // A sanitizer's finding ends the child. Without this check it would only look like a missing answer.
    const std::string text = errors();
    CHECK(text.find("Sanitizer") == std::string::npos || (std::fputs(text.c_str(), stdout), false));
    close(socket_);
    close(errors_);
  }
  ForkedEngine(const ForkedEngine&) = delete;
  ForkedEngine& operator=(const ForkedEngine&) = delete;

  void send(std::uint32_t id, Json header, std::span<const OutgoingArray> arrays = {}) {
    const auto bytes = encode_frame(id, std::move(header), arrays);
    write_all({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void write_all(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t wrote = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (wrote <= 0) return;  // the engine has ended; `receive` reports that
      at += static_cast<std::size_t>(wrote);
    }
  }
  // Ends the sending side of the socket; replies can still be received.
  void hang_up() { shutdown(socket_, SHUT_WR); }

  // The next reply, for any request id, together with the progress frames of that request. `alive` is false if the engine ended, or sent
  // nothing for `patience_ms`.
  Answer receive(int patience_ms = 30'000) {
    patience_ms_ = patience_ms;
    Answer answer;
    while (auto frame = read_frame()) {
      if (const Json* progress = frame->header.find("progress")) {
        progress_[frame->id].push_back(*progress);
        continue;
      }
      answer.alive = true;
      answer.id = frame->id;
      answer.progress = std::move(progress_[frame->id]);
      progress_.erase(frame->id);
      take_array(*frame, "tokens", answer.tokens);
      take_array(*frame, "logprobs", answer.logprobs);
      answer.header = std::move(frame->header);
      return answer;
    }
    return answer;
  }

  Answer call(Json header, std::span<const OutgoingArray> arrays = {}) {
    send(++last_id_, std::move(header), arrays);
    return receive();
  }
  Answer call(const char* verb) { return call(verb_request(verb)); }

  // A counter from the engine's `stats`; −1 if another reply came first.
  double stat(const char* name) {
    const Answer answer = call("stats");
    const Json* stats = answer.alive ? answer.header.find("stats") : nullptr;
    return stats == nullptr ? -1 : *stats->find(name)->number();
  }

  // Sends `hello` with the smallest cache; `extra` has further fields.
  Answer greet(int threads = 1, const Json::Object& extra = {}) {
    Json hello = verb_request("hello");
    hello.set("protocol", 2);
    hello.set("threads", threads);
    hello.set("kv_cache_bytes", 0);
    for (const JsonMember& field : extra) hello.set(field.name, field.value);
    return call(std::move(hello));
  }

  // Sends `hello` and loads a random tiny model; `extra` has further fields of `load`. Returns the state's digest.
  std::string start(int threads = 1, const Json::Object& extra = {}) {
    greet(threads);
    return call(load_request(extra)).state();
  }

  static Json load_request(const Json::Object& extra = {}) {
    Json load = verb_request("load");
    load.set("architecture", architecture_json(tiny_architecture()));
    load.set("initializer_range", 0.2);
    load.set("seed", 7);
    for (const JsonMember& field : extra) load.set(field.name, field.value);
    return load;
  }

  // Waits for the process, which must be about to end; returns its wait status.
  int end() {
    if (!ended_) waitpid(child_, &status_, 0);
    ended_ = true;
    return status_;
  }

  // Everything that the process, which has ended, wrote to standard error.
  std::string errors() const {
    std::string text;
    char piece[4096];
    for (ssize_t got; (got = read(errors_, piece, sizeof piece)) > 0;) text.append(piece, static_cast<std::size_t>(got));
    return text;
  }

  pid_t pid() const { return child_; }

 private:
  template <class T>
  static void take_array(const Frame& frame, const char* name, std::vector<T>& out) {
    const ArrayView* view = frame.array(name);
    if (view == nullptr) return;
    out.resize(view->bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), view->bytes.data(), view->bytes.size());
  }
  std::optional<Frame> read_frame() {
    std::uint32_t length = 0;
    if (!read_all(&length, sizeof length)) return std::nullopt;
    std::vector<std::uint8_t> body(length);
    if (!read_all(body.data(), length)) return std::nullopt;
    std::string error;
    return decode_frame(std::move(body), error);
  }
  bool read_all(void* to, std::size_t size) const {
    auto* bytes = static_cast<char*>(to);
    while (size > 0) {
      pollfd waiting{socket_, POLLIN, 0};
      if (poll(&waiting, 1, patience_ms_) != 1) return false;
      const ssize_t got = read(socket_, bytes, size);
      if (got <= 0) return false;
      bytes += got;
      size -= static_cast<std::size_t>(got);
    }
    return true;
  }

  pid_t child_ = -1;
  int socket_ = -1;
  int errors_ = -1;
  int status_ = 0;
  bool ended_ = false;
  int patience_ms_ = 0;
  std::uint32_t last_id_ = 0;
  std::map<std::uint32_t, std::vector<Json>> progress_;
};

// The array `tokens` of a request.
struct Tokens {
  explicit Tokens(std::vector<std::int32_t> tokens) : values(std::move(tokens)) {}
  // Random tokens of the tiny model's vocabulary.
  Tokens(int count, std::uint32_t stream) : values(random_tokens(count, tiny_architecture().vocab_size, stream)) {}
  std::vector<std::int32_t> values;
  OutgoingArray array() const {
    return {"tokens", DType::i32, {static_cast<std::int64_t>(values.size())}, raw_bytes(std::span<const std::int32_t>(values))};
  }
};

inline Json generate_request(const std::string& state, std::uint32_t sample, int most) {
  Json key;
  key.set("seed", 5);
  key.set("domain", "train");
  key.set("step", 1);
  key.set("slot", 0);
  key.set("sample", static_cast<std::int64_t>(sample));
  Json request = verb_request("generate");
  request.set("state", state);
  request.set("key", std::move(key));
  request.set("temperature", 0.8);
  request.set("max_new_tokens", most);
  request.set("stop_tokens", Json::Array{});
  return request;
}

inline Json save_request(const std::string& state, const std::string& path) {
  Json request = verb_request("save_state");
  request.set("state", state);
  request.set("path", path);
  return request;
}

inline Json fault_request(const char* kind) {
  Json request = verb_request("fault");
  request.set("kind", kind);
  return request;
}

// Field `lora` of a load: rank 4 on a query projection and on down_proj.
inline Json lora_json_of(std::int64_t seed) {
  Json lora;
  lora.set("rank", 4);
  lora.set("alpha", 8);
  lora.set("targets", Json::Array{Json("q_proj"), Json("down_proj")});
  lora.set("seed", seed);
  return lora;
}

struct WrittenBatch {
  std::string path, sha256;
};

// Writes a batch file for `state`, in the form that the store writes.
inline WrittenBatch write_batch(const std::string& path, const OwnedBatch& batch, const std::string& state, int mini_batches) {
  Json identity;
  identity.set("schema", "longhaul.batch/2");
  identity.set("previous_state", state);
  identity.set("mini_batches", mini_batches);
  Json metadata;
  metadata.set("longhaul", write_json(identity, KeyOrder::sorted));
  Json header;
  header.set("__metadata__", std::move(metadata));
  std::string data;
  const auto put = [&](const char* name, const char* dtype, const void* values, std::size_t count, int columns) {
    Json entry;
    entry.set("dtype", dtype);
    Json::Array shape{Json(static_cast<std::uint64_t>(count / static_cast<std::size_t>(columns)))};
    if (columns > 1) shape.emplace_back(columns);
    entry.set("shape", std::move(shape));
    const std::uint64_t begin = data.size();
    data.append(static_cast<const char*>(values), count * 4);
    entry.set("data_offsets", Json::Array{Json(begin), Json(static_cast<std::uint64_t>(data.size()))});
    header.set(name, std::move(entry));
  };
  put("nodes", "I32", batch.nodes.data(), batch.nodes.size(), 3);
  put("tokens", "I32", batch.tokens.data(), batch.tokens.size(), 1);
  put("target_rows", "I32", batch.target_rows.data(), batch.target_rows.size(), 1);
  put("target_tokens", "I32", batch.target_tokens.data(), batch.target_tokens.size(), 1);
  put("target_samples", "I32", batch.target_samples.data(), batch.target_samples.size(), 1);
  put("target_advantages", "F32", batch.advantages.data(), batch.advantages.size(), 1);
  put("target_old_logprobs", "F32", batch.old_logprobs.data(), batch.old_logprobs.size(), 1);
  if (!batch.rollout_logprobs.empty()) put("target_rollout_logprobs", "F32", batch.rollout_logprobs.data(), batch.rollout_logprobs.size(), 1);
  const std::string text = write_json(header);
  const std::uint64_t size = text.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += text + data;
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return {path, sha256_hex(bytes)};
}

// An `update` with this batch and one learning rate for each mini-batch.
inline Json update_request(const std::string& state, const WrittenBatch& batch, int mini_batches, const std::string& step) {
  Json loss;
  loss.set("kind", "regular");
  loss.set("reduction", "token_mean");
  loss.set("eps_clip_low", 0.2);
  loss.set("eps_clip_high", 0.28);
  Json request = verb_request("update");
  request.set("state", state);
  request.set("step_id", sha256_hex(step));
  request.set("batch_path", batch.path);
  request.set("batch_sha256", batch.sha256);
  request.set("learning_rates", Json::Array(static_cast<std::size_t>(mini_batches), Json(1e-2)));
  request.set("adam_betas", Json::Array{Json(0.9), Json(0.98)});
  request.set("adam_eps", 1e-8);
  request.set("weight_decay", 0.1);
  request.set("max_grad_norm", 1);
  request.set("reset_moments", false);
  request.set("temperature", 1);
  request.set("loss", std::move(loss));
  return request;
}

}  // namespace longhaul::test
