// Turns an exception into the error of a reply (docs/engine-protocol.md, "Verbs"). An error of a device's driver ends the process.
// defines: ErrorReply, error_reply
#pragma once

#include <exception>
#include <string>

#include "wire/json.h"

namespace longhaul {

struct ErrorReply {
  std::string code;
  std::string message;
  Json::Object facts;  // further members of the error
};

// `verb` is the verb that failed.
ErrorReply error_reply(std::exception_ptr error, const std::string& verb);

}  // namespace longhaul
