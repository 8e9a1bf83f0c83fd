// PieceTrie: finds which of many texts a given text begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::data {

/// Stores texts with a number each, and is walked byte by byte. The children of a node are side by
/// side, in the order of their bytes.
class PieceTrie {
 public:
  static constexpr int32_t kNone = -1;
  /// REQUIRES: no text is empty, and all are different.
  explicit PieceTrie(std::vector<std::pair<std::string_view, int32_t>> texts);

  static constexpr int32_t kRoot = 0;
  /// The node that `byte` leads to from `node`; kNone if there is none.
  int32_t Child(int32_t node, char byte) const;
  /// The number of the text that ends at `node`; kNone if no text ends there.
  int32_t NumberAt(int32_t node) const { return nodes_[static_cast<size_t>(node)].number; }

  /// The length of the longest stored text that `text` begins with; 0 if there is none.
  size_t LongestPrefix(std::string_view text) const;

 private:
  struct Node {
    uint8_t byte;  // the byte that leads here
    int32_t number = kNone;
    int32_t first_child = 0;
    int32_t children = 0;
  };
  std::vector<Node> nodes_;
};

}  // namespace strata::data
