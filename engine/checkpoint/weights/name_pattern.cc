// A pattern with optional parts is expanded into one form without brackets per choice of its parts;
// the forms are tried in turn. A form is matched by backtracking.
#include "engine/checkpoint/weights/name_pattern.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr size_t kMostForms = 16;

/// The text with and without each part in brackets, in all combinations.
std::vector<std::string> FormsOf(const std::string& text) {
  std::vector<std::string> forms = {""};
  size_t place = 0;
  while (place < text.size()) {
    const size_t open = text.find('[', place);
    const std::string before = text.substr(place, open - place);
    for (std::string& form : forms) form += before;
    if (open == std::string::npos) break;
    const size_t close = text.find(']', open);
    const size_t inner = text.find('[', open + 1);
    if (close == std::string::npos || inner < close || 2 * forms.size() > kMostForms) {
      throw ConfigError(Str("the pattern \"", text, "\" has a [ without its ], or too many"));
    }
    std::vector<std::string> with = forms;
    for (std::string& form : with) form += text.substr(open + 1, close - open - 1);
    with.insert(with.end(), forms.begin(), forms.end());
    forms = std::move(with);
    place = close + 1;
  }
  return forms;
}

}  // namespace

NamePattern::NamePattern(std::string text) : text_(std::move(text)) {
  for (const std::string& form : FormsOf(text_)) forms_.push_back(Parse(form));
}

NamePattern::Tokens NamePattern::Parse(std::string_view text) const {
  Tokens tokens;
  while (!text.empty()) {
    const size_t open = text.find('{');
    if (open > 0) tokens.push_back({Token::Kind::kText, std::string(text.substr(0, open))});
    if (open == std::string_view::npos) break;
    const size_t close = text.find('}', open);
    const bool fits = close != std::string_view::npos && close > open + 1;
    if (!fits) throw ConfigError(Str("the pattern \"", text_, "\" has a { without a name and }"));
    std::string_view name = text.substr(open + 1, close - open - 1);
    const bool rest = name.ends_with('*');
    if (rest) name.remove_suffix(1);
    tokens.push_back({rest ? Token::Kind::kRest : Token::Kind::kPart, std::string(name)});
    text.remove_prefix(close + 1);
  }
  return tokens;
}

std::optional<NamePattern::Places> NamePattern::Match(std::string_view name) const {
  for (const Tokens& tokens : forms_) {
    Places places;
    if (MatchFrom(tokens, 0, name, places)) return places;
  }
  return std::nullopt;
}

/// Matches the tokens from `next` on. For each place the longest text is tried first.
bool NamePattern::MatchFrom(const Tokens& tokens, size_t next, std::string_view name,
                            Places& places) {
  if (next == tokens.size()) return name.empty();
  const Token& token = tokens[next];
  const auto known = places.find(token.text);
  const bool is_known = token.kind != Token::Kind::kText && known != places.end();
  if (token.kind == Token::Kind::kText || is_known) {
    const std::string& text = is_known ? known->second : token.text;
    return name.starts_with(text) && MatchFrom(tokens, next + 1, name.substr(text.size()), places);
  }
  size_t longest = token.kind == Token::Kind::kPart ? name.find('.') : name.size();
  for (longest = std::min(longest, name.size()); longest > 0; --longest) {
    places[token.text] = name.substr(0, longest);
    if (MatchFrom(tokens, next + 1, name.substr(longest), places)) return true;
    places.erase(token.text);
  }
  return false;
}

std::vector<std::string> NamePattern::Fill(const Places& places) const {
  std::vector<std::string> names;
  for (const Tokens& tokens : forms_) {
    std::string& name = names.emplace_back();
    for (const Token& token : tokens) {
      if (token.kind == Token::Kind::kText) {
        name += token.text;
        continue;
      }
      const auto place = places.find(token.text);
      if (place == places.end()) {
        throw ConfigError(Str("the pattern \"", text_, "\" has the place {", token.text,
                              "}, which the pattern on the other side lacks"));
      }
      name += place->second;
    }
  }
  return names;
}

}  // namespace strata
