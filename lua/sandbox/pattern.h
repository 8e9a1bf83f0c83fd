// Lua 5.1's string patterns, as a matcher that can be stopped. The one inside LuaJIT cannot, and
// ("a"):rep(1e5):find((".-"):rep(9).."b") would run for years.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace strata::lua {

/// A part of the subject that a match took out, or a position ("()").
struct Capture {
  size_t begin = 0;
  size_t length = 0;
  bool is_position = false;
};

struct Match {
  size_t begin = 0;
  size_t end = 0;
  std::vector<Capture> captures;
};

/// Matches one pattern against one subject, both of which must outlive it. The syntax is that of
/// Lua 5.1 with %f (frontier): classes, sets, * + - ?, %b, %1..%9, (), ^ and $. Throws ConfigError
/// for a malformed pattern.
class Pattern {
 public:
  /// `poll` is called every few thousand steps; it may throw to end the search.
  Pattern(std::string_view subject, std::string_view pattern, std::function<void()> poll);

  /// The first match that begins at `start` or later; at `start` only when the pattern begins with
  /// '^'. REQUIRES: start <= subject.size().
  std::optional<Match> Find(size_t start);

  /// Whether the pattern begins with '^', so that only one place can match.
  bool anchored() const { return anchored_; }

 private:
  static constexpr size_t kUnclosed = static_cast<size_t>(-1);
  static constexpr size_t kNoMatch = static_cast<size_t>(-1);

  struct Group {
    size_t begin;
    size_t length;
    bool is_position;
  };

  // Each takes places in subject (s) and pattern (p) and gives the end of the match, or kNoMatch.
  size_t DoMatch(size_t s, size_t p);
  size_t MatchItem(size_t s, size_t p, size_t item_end);
  size_t MatchMost(size_t s, size_t p, size_t item_end);
  size_t MatchLeast(size_t s, size_t p, size_t item_end);
  size_t MatchBalanced(size_t s, size_t p);
  size_t MatchFrontier(size_t s, size_t p);
  size_t MatchBackReference(size_t s, size_t p);
  size_t OpenGroup(size_t s, size_t p, bool is_position);
  size_t CloseGroup(size_t s, size_t p);

  /// One past the single-character item (a letter, %a, a set) at p.
  size_t ItemEnd(size_t p) const;
  bool ItemMatches(size_t s, size_t p, size_t item_end) const;
  bool SetMatches(unsigned char c, size_t p, size_t last) const;
  char at(size_t p) const { return p < pattern_.size() ? pattern_[p] : '\0'; }
  void Step();

  std::string_view subject_;
  std::string_view pattern_;
  std::function<void()> poll_;
  bool anchored_;
  std::vector<Group> groups_;
  int depth_ = 0;
  unsigned steps_ = 0;
};

}  // namespace strata::lua
