#include "engine/checkpoint/strict_json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using Json = nlohmann::json;

/// Looks at a text without keeping it: how deep it is, and whether keys are unique.
class Inspector : public nlohmann::json_sax<Json> {
 public:
  explicit Inspector(size_t max_depth) : max_depth_(max_depth) {}
  const std::string& complaint() const { return complaint_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }

  bool key(std::string& key) override {
    if (keys_.back().insert(key).second) return true;
    complaint_ = Str("the key ", Value(key).ToLua(), " comes twice");
    return false;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    complaint_ = Str("no valid JSON at byte ", position);
    return false;
  }

 private:
  bool Open() {
    if (keys_.size() == max_depth_) {
      complaint_ = Str("nested more than ", max_depth_, " levels deep");
      return false;
    }
    keys_.emplace_back();
    return true;
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  const size_t max_depth_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open object; none of a list
  std::string complaint_;
};

}  // namespace

Value ParseStrictJson(std::string_view text, size_t max_depth, const std::string& source) {
  // The parser takes a zero byte for the end of the text, whatever comes behind it.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw WorldError(Str(source, ": no valid JSON at byte ", zero + 1));
  }
  Inspector inspector(max_depth);
  if (!Json::sax_parse(text, &inspector)) {
    throw WorldError(Str(source, ": ", inspector.complaint()));
  }
  try {
    return Value::FromJson(text);
  } catch (const ConfigError& error) {
    throw WorldError(Str(source, ": ", error.what()));
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
