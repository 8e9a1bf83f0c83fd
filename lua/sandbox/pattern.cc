#include "lua/sandbox/pattern.h"

#include <cctype>
#include <utility>

#include "engine/base/error.h"

namespace strata::lua {
namespace {

constexpr size_t kMaxGroups = 32;
constexpr int kMaxDepth = 200;
constexpr unsigned kStepsPerPoll = 1 << 14;

/// Whether `c` is of the class that %`letter` stands for; another letter stands for itself.
bool ClassMatches(unsigned char c, unsigned char letter) {
  bool in;
  switch (std::tolower(letter)) {
    case 'a':
      in = std::isalpha(c);
      break;
    case 'c':
      in = std::iscntrl(c);
      break;
    case 'd':
      in = std::isdigit(c);
      break;
    case 'g':
      in = std::isgraph(c);
      break;
    case 'l':
      in = std::islower(c);
      break;
    case 'p':
      in = std::ispunct(c);
      break;
    case 's':
      in = std::isspace(c);
      break;
    case 'u':
      in = std::isupper(c);
      break;
    case 'w':
      in = std::isalnum(c);
      break;
    case 'x':
      in = std::isxdigit(c);
      break;
    case 'z':
      in = c == 0;
      break;
    default:
      return letter == c;
  }
  return std::islower(letter) ? in : !in;
}

/// Counts nested calls while it lives.
class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) {
    if (++depth_ > kMaxDepth) {
      --depth_;
      throw ConfigError("the pattern is too complex");
    }
  }
  ~Deeper() { --depth_; }

 private:
  int& depth_;
};

}  // namespace

Pattern::Pattern(std::string_view subject, std::string_view pattern, std::function<void()> poll)
    : subject_(subject),
      pattern_(pattern),
      poll_(std::move(poll)),
      anchored_(!pattern.empty() && pattern[0] == '^') {}

std::optional<Match> Pattern::Find(size_t start) {
  const size_t p = anchored_ ? 1 : 0;
  for (size_t s = start; s <= subject_.size(); ++s) {
    groups_.clear();
    const size_t end = DoMatch(s, p);
    if (end != kNoMatch) {
      Match match{s, end, {}};
      for (const Group& group : groups_) {
        if (group.length == kUnclosed) throw ConfigError("unfinished capture in the pattern");
        match.captures.push_back({group.begin, group.length, group.is_position});
      }
      return match;
    }
    if (anchored_) break;
  }
  return std::nullopt;
}

size_t Pattern::DoMatch(size_t s, size_t p) {
  Deeper deeper(depth_);
  while (p < pattern_.size()) {
    Step();
    switch (pattern_[p]) {
      case '(':
        return at(p + 1) == ')' ? OpenGroup(s, p + 2, true) : OpenGroup(s, p + 1, false);
      case ')':
        return CloseGroup(s, p + 1);
      case '$':
        if (p + 1 == pattern_.size()) return s == subject_.size() ? s : kNoMatch;
        break;
      case '%': {
        const char next = at(p + 1);
        if (next == 'b') {
          s = MatchBalanced(s, p + 2);
          p += 4;
        } else if (next == 'f') {
          const size_t set = p + 2;
          if (at(set) != '[') throw ConfigError("missing '[' after '%f' in the pattern");
          s = MatchFrontier(s, set);
          p = ItemEnd(set);
        } else if (std::isdigit(static_cast<unsigned char>(next))) {
          s = MatchBackReference(s, p + 1);
          p += 2;
        } else {
          break;
        }
        if (s == kNoMatch) return kNoMatch;
        continue;
      }
      default:
        break;
    }
    const size_t item_end = ItemEnd(p);
    const char repeat = at(item_end);
    if (repeat == '?' || repeat == '*' || repeat == '+' || repeat == '-') {
      return MatchItem(s, p, item_end);
    }
    if (!ItemMatches(s, p, item_end)) return kNoMatch;
    ++s;
    p = item_end;
  }
  return s;
}

size_t Pattern::MatchItem(size_t s, size_t p, size_t item_end) {
  switch (pattern_[item_end]) {
    case '?': {
      if (ItemMatches(s, p, item_end)) {
        const size_t end = DoMatch(s + 1, item_end + 1);
        if (end != kNoMatch) return end;
      }
      return DoMatch(s, item_end + 1);
    }
    case '*':
      return MatchMost(s, p, item_end);
    case '+':
      return ItemMatches(s, p, item_end) ? MatchMost(s + 1, p, item_end) : kNoMatch;
    default:
      return MatchLeast(s, p, item_end);
  }
}

size_t Pattern::MatchMost(size_t s, size_t p, size_t item_end) {
  size_t count = 0;
  while (ItemMatches(s + count, p, item_end)) {
    Step();
    ++count;
  }
  for (size_t n = count + 1; n-- > 0;) {
    const size_t end = DoMatch(s + n, item_end + 1);
    if (end != kNoMatch) return end;
  }
  return kNoMatch;
}

size_t Pattern::MatchLeast(size_t s, size_t p, size_t item_end) {
  while (true) {
    const size_t end = DoMatch(s, item_end + 1);
    if (end != kNoMatch) return end;
    if (!ItemMatches(s, p, item_end)) return kNoMatch;
    ++s;
  }
}

size_t Pattern::MatchBalanced(size_t s, size_t p) {
  if (p + 1 >= pattern_.size()) throw ConfigError("missing arguments to '%b' in the pattern");
  if (s >= subject_.size() || subject_[s] != pattern_[p]) return kNoMatch;
  const char open = pattern_[p], close = pattern_[p + 1];
  int level = 1;
  for (size_t i = s + 1; i < subject_.size(); ++i) {
    Step();
    if (subject_[i] == close) {
      if (--level == 0) return i + 1;
    } else if (subject_[i] == open) {
      ++level;
    }
  }
  return kNoMatch;
}

size_t Pattern::MatchFrontier(size_t s, size_t p) {
  const size_t last = ItemEnd(p) - 1;
  const unsigned char before = s == 0 ? '\0' : subject_[s - 1];
  const unsigned char here = s < subject_.size() ? subject_[s] : '\0';
  return !SetMatches(before, p, last) && SetMatches(here, p, last) ? s : kNoMatch;
}

size_t Pattern::MatchBackReference(size_t s, size_t p) {
  const size_t index = static_cast<size_t>(pattern_[p] - '1');
  if (index >= groups_.size() || groups_[index].length == kUnclosed) {
    throw ConfigError("the pattern refers to a capture that it does not have");
  }
  const Group& group = groups_[index];
  const std::string_view text = subject_.substr(group.begin, group.length);
  return subject_.substr(s, text.size()) == text ? s + text.size() : kNoMatch;
}

size_t Pattern::OpenGroup(size_t s, size_t p, bool is_position) {
  if (groups_.size() == kMaxGroups) throw ConfigError("the pattern has more than 32 captures");
  groups_.push_back({s, is_position ? 0 : kUnclosed, is_position});
  const size_t end = DoMatch(s, p);
  if (end == kNoMatch) groups_.pop_back();
  return end;
}

size_t Pattern::CloseGroup(size_t s, size_t p) {
  for (size_t i = groups_.size(); i-- > 0;) {
    if (groups_[i].length != kUnclosed) continue;
    groups_[i].length = s - groups_[i].begin;
    const size_t end = DoMatch(s, p);
    if (end == kNoMatch) groups_[i].length = kUnclosed;
    return end;
  }
  throw ConfigError("the pattern closes a capture that it has not opened");
}

size_t Pattern::ItemEnd(size_t p) const {
  if (pattern_[p] == '%') {
    if (p + 1 >= pattern_.size()) throw ConfigError("the pattern ends with '%'");
    return p + 2;
  }
  if (pattern_[p] != '[') return p + 1;
  ++p;
  if (at(p) == '^') ++p;
  do {  // The first ']' of a set stands for itself.
    if (p >= pattern_.size()) throw ConfigError("missing ']' in the pattern");
    p += pattern_[p] == '%' ? 2 : 1;
  } while (p >= pattern_.size() || pattern_[p] != ']');
  return p + 1;
}

bool Pattern::ItemMatches(size_t s, size_t p, size_t item_end) const {
  if (s >= subject_.size()) return false;
  const unsigned char c = subject_[s];
  switch (pattern_[p]) {
    case '.':
      return true;
    case '%':
      return ClassMatches(c, pattern_[p + 1]);
    case '[':
      return SetMatches(c, p, item_end - 1);
    default:
      return static_cast<unsigned char>(pattern_[p]) == c;
  }
}

bool Pattern::SetMatches(unsigned char c, size_t p, size_t last) const {
  bool in = true;
  if (at(p + 1) == '^') {
    in = false;
    ++p;
  }
  while (++p < last) {
    if (pattern_[p] == '%') {
      if (ClassMatches(c, pattern_[++p])) return in;
    } else if (at(p + 1) == '-' && p + 2 < last) {
      const auto low = static_cast<unsigned char>(pattern_[p]);
      const auto high = static_cast<unsigned char>(pattern_[p + 2]);
      if (low <= c && c <= high) return in;
      p += 2;
    } else if (static_cast<unsigned char>(pattern_[p]) == c) {
      return in;
    }
  }
  return !in;
}

void Pattern::Step() {
  if (++steps_ % kStepsPerPoll == 0) poll_();
}

}  // namespace strata::lua
