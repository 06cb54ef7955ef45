// A forest: rows of tokens that attend to their ancestors. A shared prefix is an inner node and is computed once.
// Log-probs have the same bits as if each root-to-leaf path were computed alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

struct ForestNode {
  int parent = -1;
  int first_row = 0;
  int rows = 0;
  /// Position of its first row, which is the number of rows of all its ancestors.
  int position = 0;
};

struct Forest {
  std::vector<ForestNode> nodes;
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;

  int rows() const { return int(tokens.size()); }

  /// Returns the index of the new node. A parent must be added before its children.
  int add(int parent, std::span<const int32_t> tokens);
};

}  // namespace longhaul
