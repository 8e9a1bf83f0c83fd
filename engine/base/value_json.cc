// Conversion of a Value to JSON and back. The writer is our own. The reader is nlohmann's parser
// (its SAX interface) with a builder that turns the parser's events into Values.
#include "engine/base/value_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using Json = nlohmann::json;

/// The library's message, without its prefix such as "[json.exception.type_error.316] ".
std::string WhatOf(const Json::exception& error) {
  const std::string message = error.what();
  return message.substr(message.find("] ") + 2);
}

// ---- Writing

std::string Quote(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The text of a double, which reads back as a double: "3.0" for 3.
std::string DoubleText(double d) {
  if (std::isnan(d)) return "\"NaN\"";
  if (std::isinf(d)) return d > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  const std::string text = FormatDouble(d);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  void Write(const Value& value);
  std::string Take() { return std::move(text_); }

 private:
  void WriteList(const Value::List& list);
  void WriteMap(const Value::Map& map);
  void NewLine();

  /// If negative, everything is written on one line.
  const int indent_;
  int depth_ = 0;
  std::string text_;
};

void Writer::Write(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      text_ += "null";
      return;
    case Value::Kind::kBool:
      text_ += value.as_bool() ? "true" : "false";
      return;
    case Value::Kind::kInt:
      text_ += std::to_string(value.as_int());
      return;
    case Value::Kind::kDouble:
      text_ += DoubleText(value.as_double());
      return;
    case Value::Kind::kString:
      text_ += Quote(value.as_string());
      return;
    case Value::Kind::kFunction:
      WriteMap({{"function", value.as_function().where}, {"digest", value.as_function().digest}});
      return;
    case Value::Kind::kList:
      WriteList(value.as_list());
      return;
    case Value::Kind::kMap:
      WriteMap(value.as_map());
      return;
  }
}

void Writer::NewLine() {
  if (indent_ < 0) return;
  text_ += '\n';
  text_.append(static_cast<size_t>(indent_ * depth_), ' ');
}

void Writer::WriteList(const Value::List& list) {
  text_ += '[';
  ++depth_;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text_ += ',';
    NewLine();
    Write(list[i]);
  }
  --depth_;
  if (!list.empty()) NewLine();
  text_ += ']';
}

void Writer::WriteMap(const Value::Map& map) {
  text_ += '{';
  ++depth_;
  for (size_t i = 0; i < map.size(); ++i) {
    if (i > 0) text_ += ',';
    NewLine();
    text_ += Quote(map[i].first) + (indent_ < 0 ? ":" : ": ");
    Write(map[i].second);
  }
  --depth_;
  if (!map.empty()) NewLine();
  text_ += '}';
}

// ---- Reading

// Up to here a double holds every integer exactly.
constexpr uint64_t kExact = uint64_t{1} << 53;

/// An input iterator over the text that records how far the parser has read, for error messages.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** reached;

  const char& operator*() const { return *at; }
  Cursor& operator++() {
    *reached = ++at;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at == other.at; }
};

/// A list or map whose end the parser has not reached yet.
struct Open {
  bool is_map = false;
  Value::List list;
  Value::Map map;
  std::unordered_set<std::string> keys;  ///< the keys of the map, to find repeated ones
};

/// Receives the parser's events and builds a Value from them. Each function returns true, which
/// tells the parser to go on.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const JsonRules& rules) : text_(text), rules_(rules) {}

  Value Build() {
    // The parser would take a zero byte as the end of the text.
    if (const size_t zero = text_.find('\0'); zero != text_.npos) {
      reached_ = text_.data() + zero + 1;
      Refuse("a zero byte");
    }
    const char* end = text_.data() + text_.size();
    Json::sax_parse(Cursor{text_.data(), &reached_}, Cursor{end, &reached_}, this);
    return std::move(root_);
  }

  bool null() override { return Add({}); }
  bool boolean(bool b) override { return Add(b); }
  bool number_integer(int64_t i) override {
    CheckInteger(i < 0 ? uint64_t{0} - static_cast<uint64_t>(i) : static_cast<uint64_t>(i), i);
    return Add(i);
  }
  bool number_unsigned(uint64_t u) override {
    CheckInteger(u, u);
    if (u > static_cast<uint64_t>(INT64_MAX)) return Add(static_cast<double>(u));
    return Add(static_cast<int64_t>(u));
  }
  bool number_float(double d, const std::string& text) override {
    if (text.find_first_of(".eE") == std::string::npos) CheckInteger(UINT64_MAX, text);
    return Add(d);
  }
  bool string(std::string& text) override { return Add(std::move(text)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON text has no binary values

  bool start_object(size_t) override { return Start(true); }
  bool start_array(size_t) override { return Start(false); }
  bool key(std::string& key) override {
    if (!open_.back().keys.insert(key).second) {
      Refuse(Str("the key ", Value(key.substr(0, kShown)).ToLua(), " comes twice"));
    }
    open_.back().map.emplace_back(std::move(key), Value());
    return true;
  }
  bool end_object() override { return End(Value::MakeMap(std::move(open_.back().map))); }
  bool end_array() override { return End(std::move(open_.back().list)); }

  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    throw ConfigError("not valid JSON: " + WhatOf(error));
  }

 private:
  // Bytes of a key that a message shows.
  static constexpr size_t kShown = 80;

  [[noreturn]] void Refuse(const std::string& why) const {
    const std::string_view before(text_.data(), reached_ - text_.data());
    const size_t lines = std::ranges::count(before, '\n');
    // rfind() returns npos on the first line, and npos + 1 is 0.
    const size_t column = before.size() - (before.rfind('\n') + 1);
    throw ConfigError(Str("not valid JSON: line ", lines + 1, ", column ", column, ": ", why));
  }

  template <class Number>
  void CheckInteger(uint64_t size, const Number& number) const {
    if (!rules_.exact_in_doubles || size <= kExact) return;
    Refuse(Str("the integer ", number, " is beyond 2^53, where numbers skip some; ",
               "a text would keep it"));
  }

  bool Start(bool is_map) {
    if (open_.size() == rules_.max_depth) {
      Refuse(Str("nested more than ", rules_.max_depth, " levels deep"));
    }
    open_.emplace_back().is_map = is_map;
    return true;
  }

  bool End(Value value) {
    open_.pop_back();
    return Add(std::move(value));
  }

  bool Add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Open& parent = open_.back(); parent.is_map) {
      parent.map.back().second = std::move(value);
    } else {
      parent.list.push_back(std::move(value));
    }
    return true;
  }

  const std::string_view text_;
  const JsonRules rules_;
  const char* reached_ = text_.data();  // one past what the parser has read
  std::vector<Open> open_;
  Value root_;
};

}  // namespace

std::string Value::ToJson(int indent) const {
  Writer writer(indent);
  writer.Write(*this);
  return writer.Take();
}

Value ParseJson(std::string_view text, const JsonRules& rules) {
  return Builder(text, rules).Build();
}

Value Value::FromJson(std::string_view text) { return ParseJson(text); }

std::string Utf8Trouble(std::string_view text) {
  try {
    Json(text).dump();
    return "";
  } catch (const Json::exception& error) {
    return WhatOf(error);
  }
}

}  // namespace strata
