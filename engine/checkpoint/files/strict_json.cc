#include "engine/checkpoint/files/strict_json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kExact = uint64_t{1} << 53;  // beyond it a double skips integers

/// Looks at a text without keeping it. An event that is refused ends the parsing.
class Inspector : public nlohmann::json_sax<Json> {
 public:
  explicit Inspector(const JsonRules& rules) : rules_(rules) {}
  const std::string& complaint() const { return complaint_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t i) override { return i >= 0 || Integer(uint64_t{0} - i, Str(i)); }
  bool number_unsigned(uint64_t u) override { return Integer(u, Str(u)); }
  bool number_float(double, const std::string& text) override {
    const bool is_integer = text.find_first_of(".eE") == std::string::npos;
    return !is_integer || Integer(UINT64_MAX, text);
  }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }

  bool key(std::string& key) override {
    if (keys_.back().insert(key).second) return true;
    return Complain(Str("the key ", Value(key).ToLua(), " comes twice"));
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return Complain(Str("no valid JSON at byte ", position));
  }

 private:
  bool Complain(std::string complaint) {
    complaint_ = std::move(complaint);
    return false;
  }
  bool Integer(uint64_t size, const std::string& text) {
    if (!rules_.in_doubles || size <= kExact) return true;
    return Complain(Str("the integer ", text, " is beyond 2^53, where numbers skip some; ",
                        "a text would keep it"));
  }
  bool Open() {
    if (keys_.size() == rules_.max_depth) {
      return Complain(Str("nested more than ", rules_.max_depth, " levels deep"));
    }
    keys_.emplace_back();
    return true;
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  const JsonRules rules_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open object; none of a list
  std::string complaint_;
};

}  // namespace

std::string JsonTrouble(std::string_view text, const JsonRules& rules) {
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return Str("no valid JSON at byte ", zero + 1);
  }
  Inspector inspector(rules);
  Json::sax_parse(text, &inspector);
  return inspector.complaint();
}

std::string Utf8Trouble(std::string_view text) {
  try {
    Json(text).dump();
    return "";
  } catch (const Json::exception& error) {  // "[json.exception.type_error.316] invalid UTF-8 ..."
    const std::string message = error.what();
    return message.substr(message.find("] ") + 2);
  }
}

Value ParseStrictJson(std::string_view text, size_t max_depth, const std::string& source) {
  const std::string trouble = JsonTrouble(text, {.max_depth = max_depth});
  if (!trouble.empty()) throw WorldError(Str(source, ": ", trouble));
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
