// A partial parser of Lua source text: brackets, strings, chains of names. The Scanner reads a text
// once from left to right and records open and closed brackets; the ChainReader then walks back
// from the end of the text and jumps over closed brackets. Both take linear time but for a binary
// search at each bracket.
#include "lua/core/expression.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "engine/base/text.h"

namespace strata::lua {
namespace {

constexpr size_t kMaxNesting = 200;

bool IsName(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), IsNameLetter);
}

/// The level of the long bracket that begins at `at` ("[[" has level 0, "[=[" level 1), or -1.
int LongLevel(std::string_view text, size_t at) {
  if (at >= text.size() || text[at] != '[') return -1;
  size_t end = at + 1;
  while (end < text.size() && text[end] == '=') ++end;
  return end < text.size() && text[end] == '[' ? static_cast<int>(end - at) - 1 : -1;
}

/// The position after the end of the long bracket; npos if it is not closed.
size_t EndOfLong(std::string_view text, size_t at, int level) {
  const std::string close = "]" + std::string(static_cast<size_t>(level), '=') + "]";
  const size_t found = text.find(close, at);
  return found == text.npos ? found : found + close.size();
}

/// The position after the closing quote of the string that begins at `at`; npos if it is not
/// closed.
size_t EndOfQuoted(std::string_view text, size_t at) {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[at]) {
      return i + 1;
    }
  }
  return text.npos;
}

/// Reads a text once, from left to right, and records its open and closed brackets and strings.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  void Scan() {
    size_t at = 0;
    while (at < text_.size() && open_.size() <= kMaxNesting) at = Next(at);
    if (open_.size() > kMaxNesting) open_.clear();
  }

  std::vector<Open>& open() { return open_; }

  /// The start of the bracket or string whose last character is at `end`; npos if none ends there.
  size_t BeginOf(size_t end) const {
    const auto found = std::ranges::lower_bound(closed_, end, {}, &Closed::end);
    return found == closed_.end() || found->end != end ? text_.npos : found->begin;
  }

  /// A bracket or a string that is closed.
  struct Closed {
    size_t begin = 0;  ///< position of its first character
    size_t end = 0;    ///< position of its last character
    Open open;
  };
  const std::vector<Closed>& closed() const { return closed_; }

 private:
  size_t Next(size_t at) {
    const char c = text_[at];
    if (text_.substr(at).starts_with("--")) return SkipComment(at);
    if (c == '"' || c == '\'') return SkipString(at, at + 1, EndOfQuoted(text_, at));
    if (const int level = LongLevel(text_, at); level >= 0) {
      const size_t begin = at + static_cast<size_t>(level) + 2;
      return SkipString(at, begin, EndOfLong(text_, begin, level));
    }
    if (c == '(' || c == '{' || c == '[') Push(c, at, at + 1);
    if ((c == ')' || c == '}' || c == ']') && !open_.empty()) {
      closed_.push_back({open_.back().begin - 1, at, std::move(open_.back())});
      open_.pop_back();
    }
    if (!open_.empty() && (c == ',' || c == ';')) NextElement(at + 1);
    if (!open_.empty() && c == '=') NoteKey(at);
    return at + 1;
  }

  size_t SkipComment(size_t at) {
    const int level = LongLevel(text_, at + 2);
    const size_t end = level >= 0 ? EndOfLong(text_, at + 4, level) : text_.find('\n', at);
    return std::min(end, text_.size());
  }

  size_t SkipString(size_t at, size_t begin, size_t end) {
    if (end == text_.npos) {
      Push('"', at, begin);
      return text_.size();
    }
    closed_.push_back({at, end - 1, {}});
    const bool is_first =
        !open_.empty() && open_.back().elements == 0 &&
        Trim(text_.substr(open_.back().element, at - open_.back().element)).empty();
    if (is_first) open_.back().first = text_.substr(begin, end - 1 - begin);
    return end;
  }

  void Push(char kind, size_t at, size_t begin) {
    Open open;
    open.kind = kind;
    open.begin = open.element = begin;
    const bool follows_key = !open_.empty() && !open_.back().element_key.empty() &&
                             Trim(text_.substr(0, at)).ends_with('=');
    if (follows_key) open.key = open_.back().element_key;
    open_.push_back(std::move(open));
  }

  void NextElement(size_t begin) {
    ++open_.back().elements;
    open_.back().element = begin;
    open_.back().element_key.clear();
  }

  /// Records the name of an element that begins with `name =`.
  void NoteKey(size_t at) {
    Open& open = open_.back();
    if (text_.substr(at).starts_with("==") || open.kind != '{') return;
    const std::string_view name = Trim(text_.substr(open.element, at - open.element));
    if (!IsName(name) || !open.element_key.empty()) return;
    open.element_key = name;
    open.keys.emplace_back(name);
    open.key_places.push_back(at);
  }

  std::string_view text_;
  std::vector<Open> open_;
  std::vector<Closed> closed_;  // sorted by end
};

/// Reads a chain from the end of the text towards its beginning.
class ChainReader {
 public:
  explicit ChainReader(std::string_view text) : text_(text), scanner_(text), at_(text.size()) {
    scanner_.Scan();
  }

  Chain Read() {
    Chain chain;
    chain.word = TakeName();
    chain.is_method = at_ > 0 && text_[at_ - 1] == ':';
    // A name cannot directly follow a bracket or a string; only an operator can.
    if (chain.word.empty() && scanner_.BeginOf(at_ - 1) != text_.npos) chain.is_known = false;
    while (chain.is_known && TakeDot()) chain.is_known = TakeOperand(chain.steps);
    std::reverse(chain.steps.begin(), chain.steps.end());
    chain.text = text_.substr(at_);
    return chain;
  }

 private:
  std::string TakeName() {
    const size_t end = at_;
    while (at_ > 0 && IsNameLetter(text_[at_ - 1])) --at_;
    return std::string(text_.substr(at_, end - at_));
  }

  /// Reads one dot or colon. Two in a row are a concatenation or a label, and end the chain.
  bool TakeDot() {
    if (at_ == 0 || (text_[at_ - 1] != '.' && text_[at_ - 1] != ':')) return false;
    if (at_ > 1 && text_[at_ - 2] == text_[at_ - 1]) return false;
    --at_;
    return true;
  }

  /// Reads a name with the calls and [numbers] after it; false if there is no name before these.
  bool TakeOperand(std::vector<std::string>& steps) {
    while (at_ > 0) {
      if (IsNameLetter(text_[at_ - 1])) {
        steps.push_back(TakeName());
        return true;
      }
      const size_t begin = scanner_.BeginOf(at_ - 1);
      if (begin == text_.npos) return false;
      const std::string_view inner = text_.substr(begin + 1, at_ - begin - 2);
      const bool is_index = text_[at_ - 1] == ']';
      if (is_index && (inner.empty() || inner.find_first_not_of("0123456789") != inner.npos)) {
        return false;
      }
      steps.push_back(is_index ? std::string(inner) : kCallStep);
      at_ = begin;
      if (!is_index) SkipSpaces();
    }
    return false;
  }

  void SkipSpaces() {
    while (at_ > 0 && std::isspace(static_cast<unsigned char>(text_[at_ - 1]))) --at_;
  }

  std::string_view text_;
  Scanner scanner_;
  size_t at_;
};

}  // namespace

bool IsNameLetter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

Chain ParseChain(std::string_view text) { return ChainReader(text).Read(); }

std::vector<Open> OpenBrackets(std::string_view text) {
  Scanner scanner(text);
  scanner.Scan();
  return std::move(scanner.open());
}

std::map<std::string, int> KeyLines(std::string_view source, int line) {
  Scanner scanner(source);
  scanner.Scan();
  std::vector<size_t> ends;  // position of each line's end
  for (size_t at = 0; (at = source.find('\n', at)) != source.npos; ++at) ends.push_back(at);
  const auto line_of = [&](size_t at) {
    return 1 + static_cast<int>(std::ranges::lower_bound(ends, at) - ends.begin());
  };
  std::map<std::string, int> lines;
  int longest = 0;
  for (const Scanner::Closed& table : scanner.closed()) {
    const int first = line_of(table.begin), last = line_of(table.end);
    const bool meant = table.open.kind == '{' && (first == line || last == line);
    if (!meant || last - first <= longest) continue;
    longest = last - first;
    lines.clear();
    for (size_t i = 0; i < table.open.keys.size(); ++i) {
      lines.emplace(table.open.keys[i], line_of(table.open.key_places[i]));
    }
  }
  return lines;
}

}  // namespace strata::lua
