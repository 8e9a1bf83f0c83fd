// NamePattern: a pattern for names of tensors, such as "h.{i}.ln_1.{name}". Its variable places are
// found in the names of one model and filled in for those of another.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// A pattern's text: `{i}` is any text without a dot, `{rest*}` any text, both of at least one
/// letter; `[model.]` is optional; everything else stands for itself.
class NamePattern {
 public:
  /// The text of each place, by the place's name.
  using Places = std::map<std::string, std::string, std::less<>>;

  /// Throws ConfigError for unbalanced brackets, and for more than four optional parts.
  explicit NamePattern(std::string text);

  const std::string& text() const { return text_; }
  /// The texts of the places in this name; none if the name does not match. A place that occurs
  /// twice must be the same text both times.
  std::optional<Places> Match(std::string_view name) const;
  /// The names with these places filled in: first the one with all optional parts, then those with
  /// fewer. Throws ConfigError for a place that is not given.
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
  std::vector<Tokens> forms_;  // one per choice of optional parts, most parts first
};

}  // namespace strata
