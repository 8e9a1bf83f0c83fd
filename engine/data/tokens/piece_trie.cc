// The texts are sorted, so all texts that begin with the same bytes are a range. The constructor
// visits nodes breadth-first, each with its range, and appends the children of a node side by side.
// Construction takes O(n log n) comparisons for n texts; a step of Child() takes O(log c) for c
// children.
#include "engine/data/tokens/piece_trie.h"

#include <algorithm>
#include <deque>

namespace strata::data {

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, int32_t>> texts) {
  std::ranges::sort(texts);
  // The texts that begin with the same `depth` bytes.
  struct Range {
    size_t begin, end, depth;
  };
  nodes_.push_back({0});
  std::deque<Range> ranges{{0, texts.size(), 0}};
  for (size_t at = 0; at < nodes_.size(); ++at, ranges.pop_front()) {
    auto [begin, end, depth] = ranges.front();
    if (begin < end && texts[begin].first.size() == depth) {
      nodes_[at].number = texts[begin++].second;
    }
    nodes_[at].first_child = static_cast<int32_t>(nodes_.size());
    while (begin < end) {
      const char byte = texts[begin].first[depth];
      size_t next = begin + 1;
      while (next < end && texts[next].first[depth] == byte) ++next;
      nodes_.push_back({static_cast<uint8_t>(byte)});
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[at].children;
      begin = next;
    }
  }
}

int32_t PieceTrie::Child(int32_t node, char byte) const {
  const Node& from = nodes_[static_cast<size_t>(node)];
  const auto begin = nodes_.begin() + from.first_child;
  const auto end = begin + from.children;
  const auto found =
      std::ranges::lower_bound(begin, end, static_cast<uint8_t>(byte), {}, &Node::byte);
  if (found == end || found->byte != static_cast<uint8_t>(byte)) return kNone;
  return static_cast<int32_t>(found - nodes_.begin());
}

size_t PieceTrie::LongestPrefix(std::string_view text) const {
  size_t longest = 0;
  int32_t node = kRoot;
  for (size_t at = 0; at < text.size(); ++at) {
    node = Child(node, text[at]);
    if (node == kNone) break;
    if (NumberAt(node) != kNone) longest = at + 1;
  }
  return longest;
}

}  // namespace strata::data
