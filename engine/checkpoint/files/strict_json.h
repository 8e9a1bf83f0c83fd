// Strict reading of JSON from files that cannot be trusted: manifests and headers of safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"

namespace strata {

/// ParseJson() for a file that may be damaged: throws WorldError that begins with `source`.
Value ParseStrictJson(std::string_view text, size_t max_depth, const std::string& source);

/// Reads the entries of a JSON object. Each getter throws WorldError if the entry is missing or of
/// another kind: "SOURCE: \"tensors\".3.shape: expected ..., got ...".
class JsonObject {
 public:
  /// Throws WorldError if `value` is not an object. `value` must outlive the JsonObject.
  JsonObject(const Value& value, std::string source);

  const Value::Map& entries() const { return value_.as_map(); }
  const std::string& Text(std::string_view key) const;
  /// An integer of at least `least`.
  int64_t Int(std::string_view key, int64_t least) const;
  /// A list of integers of at least 0.
  std::vector<int64_t> Sizes(std::string_view key) const;
  const Value::List& List(std::string_view key) const;
  const Value& Object(std::string_view key) const;
  bool Has(std::string_view key) const { return value_.Has(key); }
  /// Throws WorldError for an entry that is not what `expected` says.
  [[noreturn]] void Refuse(std::string_view key, const std::string& expected) const;

 private:
  const Value& value_;
  const std::string source_;
};

}  // namespace strata
