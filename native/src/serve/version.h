// The versions of this build.
// defines: engine_version, protocol_version, build_text
#pragma once

#include <string>

namespace longhaul {

inline constexpr const char* engine_version = "0.1.0";
inline constexpr int protocol_version = 2;

inline std::string build_text() { return std::string(engine_version) + ", g++ " + __VERSION__; }

}  // namespace longhaul
