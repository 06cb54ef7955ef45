// A folder of src includes itself and those before it, so there are no circles.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/check.h"

using namespace longhaul::test;

namespace {

const std::string folders[] = {"base", "ops", "cpu", "model", "pass", "backend", "cuda", "train", "wire", "state", "serve"};

long place_of(const std::string& folder) { return std::find(std::begin(folders), std::end(folders), folder) - std::begin(folders); }

void a_folder_includes_those_before_it() {
  const std::filesystem::path source = std::filesystem::path(FIXTURE_DIRECTORY) / "../../src";
  int seen = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source)) {
    const std::filesystem::path file = std::filesystem::relative(entry.path(), source);
    if (!entry.is_regular_file() || !file.has_parent_path()) continue;
    const std::string folder = file.begin()->string();
    check(place_of(folder) < long(std::size(folders)), folder + " is in the list");
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);) {
      const std::string start = "#include \"";
      if (!line.starts_with(start)) continue;
      const std::string included = line.substr(start.size(), line.find('/') - start.size());
      check(place_of(included) <= place_of(folder), file.string() + " includes " + included);
      ++seen;
    }
  }
  check(seen > 100, "includes were read");
}

}  // namespace

int main() { return run({{"a folder includes those before it", a_folder_includes_those_before_it}}); }
