#include "lua/expression.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "engine/base/text.h"
#include "lua/binding.h"
#include "lua/object.h"

namespace strata::lua {
namespace {

constexpr size_t kMaxNesting = 200;

bool IsNameLetter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool IsName(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), IsNameLetter);
}

std::string_view ChainText(std::string_view text) {
  size_t begin = text.size();
  for (int open = 0; begin > 0; --begin) {
    const char c = text[begin - 1];
    if (!IsNameLetter(c) && c != '.' && c != ':' && c != '[' && c != ']') break;
    if (text.substr(0, begin).ends_with("..")) break;
    if (c == ']') ++open;
    if (c == '[' && --open < 0) break;
  }
  return text.substr(begin);
}

/// The level of the long bracket that begins at `at` ("[[" is 0, "[=[" 1), or -1.
int LongLevel(std::string_view text, size_t at) {
  if (at >= text.size() || text[at] != '[') return -1;
  size_t end = at + 1;
  while (end < text.size() && text[end] == '=') ++end;
  return end < text.size() && text[end] == '[' ? static_cast<int>(end - at) - 1 : -1;
}

/// The place behind the long bracket's end, npos where it has none.
size_t EndOfLong(std::string_view text, size_t at, int level) {
  const std::string close = "]" + std::string(static_cast<size_t>(level), '=') + "]";
  const size_t found = text.find(close, at);
  return found == text.npos ? found : found + close.size();
}

/// The place behind the closing quote of the string that begins at `at`, npos where it has none.
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

/// Reads a text once, from left to right.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::vector<Open> Scan() {
    size_t at = 0;
    while (at < text_.size() && open_.size() <= kMaxNesting) at = Next(at);
    if (open_.size() > kMaxNesting) open_.clear();
    return std::move(open_);
  }

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
    if ((c == ')' || c == '}' || c == ']') && !open_.empty()) open_.pop_back();
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

  /// `name =` at the beginning of an element.
  void NoteKey(size_t at) {
    Open& open = open_.back();
    if (text_.substr(at).starts_with("==") || open.kind != '{') return;
    const std::string_view name = Trim(text_.substr(open.element, at - open.element));
    if (!IsName(name) || !open.element_key.empty()) return;
    open.element_key = name;
    open.keys.emplace_back(name);
  }

  std::string_view text_;
  std::vector<Open> open_;
};

}  // namespace

Chain ParseChain(std::string_view text) {
  Chain chain;
  chain.text = ChainText(text);
  if (!chain.text.empty() && !IsNameLetter(chain.text[0])) chain.is_known = false;
  for (const char c : chain.text) {
    if (IsNameLetter(c)) {
      chain.word += c;
      continue;
    }
    chain.is_method = c == ':';
    const bool is_index = chain.word.find_first_not_of("0123456789") == std::string::npos;
    if (c == ']' && !is_index) chain.is_known = false;
    if (!chain.word.empty()) chain.steps.push_back(std::exchange(chain.word, ""));
  }
  return chain;
}

std::vector<Open> OpenBrackets(std::string_view text) { return Scanner(text).Scan(); }

bool FollowStep(lua_State* L, const std::string& step) {
  if (step.empty()) return false;
  const bool index = std::isdigit(static_cast<unsigned char>(step[0])) && step.size() < 9;
  if (lua_istable(L, -1)) {
    if (index) {
      lua_rawgeti(L, -1, std::stoi(step));
    } else {
      PushText(L, step);
      lua_rawget(L, -2);
    }
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      return false;
    }
  } else {
    const std::vector<std::string> members = ObjectMembers(L, -1);
    if (std::find(members.begin(), members.end(), step) == members.end()) return false;
    lua_getfield(L, -1, step.c_str());
  }
  lua_remove(L, -2);
  return true;
}

}  // namespace strata::lua
