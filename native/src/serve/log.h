// Logs: one JSON object per line on standard error.
// defines: log_line
#pragma once

#include <string>

#include "wire/json.h"

namespace longhaul {

// `level` is info, warn or error; `facts` become members of the line.
void log_line(const char* level, const std::string& message, const Json::Object& facts = {});

}  // namespace longhaul
