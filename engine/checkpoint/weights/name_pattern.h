// NamePattern: names of tensors with places that vary, "h.{i}.ln_1.{name}", to be found in one
// model's names and filled in for another's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// A pattern's text: `{i}` is any text without a dot, `{rest*}` any text, both at least one letter;
/// `[model.]` may be there or not; all else is itself.
class NamePattern {
 public:
  /// What the places hold, by name.
  using Places = std::map<std::string, std::string, std::less<>>;

  /// Throws ConfigError for brackets that do not fit, and more than four optional parts.
  explicit NamePattern(std::string text);

  const std::string& text() const { return text_; }
  /// What its places are in this name; none where it does not fit. A place that comes twice is the
  /// same text both times.
  std::optional<Places> Match(std::string_view name) const;
  /// The names with these places: first the one with all optional parts, then those with fewer.
  /// Throws ConfigError for a place that is not given.
  std::vector<std::string> Fill(const Places& places) const;

 private:
  struct Token {
    enum class Kind { kText, kPart, kRest } kind;
    std::string text;
  };
  using Tokens = std::vector<Token>;
  Tokens Parse(std::string_view text) const;
  static bool MatchFrom(const Tokens& tokens, size_t next, std::string_view name, Places& places);

  std::string text_;
  std::vector<Tokens> forms_;  // one for each choice of optional parts, most parts first
};

}  // namespace strata
