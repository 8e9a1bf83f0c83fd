// PieceTrie: which of many texts another one begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::data {

/// Texts with a number each, walked byte by byte. Children of a node lie side by side in the order
/// of their bytes.
class PieceTrie {
 public:
  static constexpr int32_t kNone = -1;
  /// No text twice, and none that is empty.
  explicit PieceTrie(std::vector<std::pair<std::string_view, int32_t>> texts);

  static constexpr int32_t kRoot = 0;
  /// Where `byte` leads from `node`; kNone = nowhere.
  int32_t Child(int32_t node, char byte) const;
  /// The number of the text that ends at `node`; kNone = none does.
  int32_t NumberAt(int32_t node) const { return nodes_[static_cast<size_t>(node)].number; }

  /// The length of the longest of the texts that `text` begins with; 0 = with none.
  size_t LongestPrefix(std::string_view text) const;

 private:
  struct Node {
    uint8_t byte;  // that leads here
    int32_t number = kNone;
    int32_t first_child = 0;
    int32_t children = 0;
  };
  std::vector<Node> nodes_;
};

}  // namespace strata::data
