// The parser throws ConfigError. A mistake in a file is not the user's, so it is thrown here as
// WorldError.
#include "engine/checkpoint/files/strict_json.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value_json.h"

namespace strata {

Value ParseStrictJson(std::string_view text, size_t max_depth, const std::string& source) {
  try {
    return ParseJson(text, {.max_depth = max_depth});
  } catch (const ConfigError& error) {
    // The parser's message shows the text that it read last, which may be long and contain any
    // bytes.
    constexpr size_t kShown = 300;
    std::string trouble = std::string(error.what()).substr(0, kShown);
    std::ranges::replace_if(
        trouble, [](char c) { return c < ' ' || c > '~'; }, '?');
    throw WorldError(Str(source, ": ", trouble));
  }
}

JsonObject::JsonObject(const Value& value, std::string source)
    : value_(value), source_(std::move(source)) {
  if (!value_.is_map()) {
    throw WorldError(Str(source_, ": expected a JSON object, got ", value_.Describe()));
  }
}

const std::string& JsonObject::Text(std::string_view key) const {
  const Value& text = value_[key];
  if (!text.is_string()) Refuse(key, "a text");
  return text.as_string();
}

int64_t JsonObject::Int(std::string_view key, int64_t least) const {
  const Value& number = value_[key];
  if (number.kind() != Value::Kind::kInt || number.as_int() < least) {
    Refuse(key, Str("an integer of at least ", least));
  }
  return number.as_int();
}

std::vector<int64_t> JsonObject::Sizes(std::string_view key) const {
  std::vector<int64_t> sizes;
  for (const Value& size : List(key)) {
    if (size.kind() != Value::Kind::kInt || size.as_int() < 0) {
      Refuse(key, "a list of integers of at least 0");
    }
    sizes.push_back(size.as_int());
  }
  return sizes;
}

const Value::List& JsonObject::List(std::string_view key) const {
  const Value& list = value_[key];
  if (!list.is_list()) Refuse(key, "a list");
  return list.as_list();
}

const Value& JsonObject::Object(std::string_view key) const {
  const Value& object = value_[key];
  if (!object.is_map()) Refuse(key, "a JSON object");
  return object;
}

void JsonObject::Refuse(std::string_view key, const std::string& expected) const {
  throw WorldError(
      Str(source_, ": ", key, ": expected ", expected, ", got ", value_[key].Describe()));
}

}  // namespace strata
