// The versions of this build.
// defines: engine_version, protocol_version, numerics_version, build_text
#pragma once

#include <string>

namespace longhaul {

inline constexpr const char* engine_version = "0.1.0";
inline constexpr int protocol_version = 2;
// Raise it by hand when the committed golden digest changes; a test checks this.
inline constexpr int numerics_version = 2;

inline std::string build_text() { return std::string(engine_version) + ", g++ " + __VERSION__; }

}  // namespace longhaul
