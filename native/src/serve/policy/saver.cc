#include "serve/policy/saver.h"

#include <chrono>
#include <exception>
#include <utility>

#include "serve/log.h"

namespace longhaul {

void Saver::start(std::uint32_t id, std::string verb, Work work) {
  join();
  busy_ = true;
  try {
    thread_ = std::thread([this, id, verb = std::move(verb), work = std::move(work)]() mutable {
      run(id, verb, std::move(work));
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

void Saver::run(std::uint32_t id, const std::string& verb, Work work) {
  const auto began = std::chrono::steady_clock::now();
  Json fields;
  std::exception_ptr error;
  try {
    fields = work();
  } catch (...) {
    error = std::current_exception();
  }
  work = nullptr;
  if (error) return replies_.refuse(id, verb, error);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  log_line("info", verb + " is done", {{"ms", static_cast<std::int64_t>(took.count())}});
  replies_.reply(id, std::move(fields));
}

}  // namespace longhaul
