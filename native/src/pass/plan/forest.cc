#include "pass/plan/forest.h"

namespace longhaul {

int Forest::add(int parent, std::span<const int32_t> added) {
  ForestNode node{parent, rows(), int(added.size()), 0};
  if (parent >= 0) node.position = nodes[parent].position + nodes[parent].rows;
  tokens.insert(tokens.end(), added.begin(), added.end());
  for (int i = 0; i < node.rows; ++i) positions.push_back(node.position + i);
  nodes.push_back(node);
  return int(nodes.size()) - 1;
}

}  // namespace longhaul
