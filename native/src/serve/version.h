// What this build is.
// defines: kVersion, kProtocol, kNumericsVersion, build_text
#pragma once

#include <string>

namespace longhaul {

inline constexpr const char* kVersion = "0.1.0";
inline constexpr int kProtocol = 2;
// Raised by hand when the committed golden digest changes; a test holds it.
inline constexpr int kNumericsVersion = 2;

inline std::string build_text() { return std::string(kVersion) + ", g++ " + __VERSION__; }

}  // namespace longhaul
