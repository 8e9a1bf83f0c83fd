// Value to JSON and back. The writer is our own. The reader is nlohmann's parser with a builder
// that makes Values of the parser's events.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata {
namespace {

using Json = nlohmann::json;

/// The most levels of nesting. Deeper texts are refused, since functions that walk a Value recurse
/// once for each level and would overflow the stack.
constexpr size_t kMaxDepth = 1000;

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

  const int indent_;  ///< < 0: all on one line
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

/// A list or map that the parser is still inside of.
struct Open {
  bool is_map = false;
  Value::List list;
  Value::Map map;
  std::string key;                                 ///< of the entry that comes next
  std::unordered_map<std::string, size_t> places;  ///< of the keys in `map`
};

/// Receives the parser's events. Each returns true, which means: go on.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Value Take() { return std::move(root_); }

  bool null() override { return Add({}); }
  bool boolean(bool b) override { return Add(b); }
  bool number_integer(int64_t i) override { return Add(i); }
  bool number_unsigned(uint64_t u) override {
    if (u > static_cast<uint64_t>(INT64_MAX)) return Add(static_cast<double>(u));
    return Add(static_cast<int64_t>(u));
  }
  bool number_float(double d, const std::string&) override { return Add(d); }
  bool string(std::string& text) override { return Add(std::move(text)); }
  bool binary(Json::binary_t&) override { return false; }  // not in a text

  bool start_object(size_t) override { return Start(true); }
  bool start_array(size_t) override { return Start(false); }
  bool key(std::string& key) override {
    open_.back().key = std::move(key);
    return true;
  }
  bool end_object() override { return End(Value::MakeMap(std::move(open_.back().map))); }
  bool end_array() override { return End(std::move(open_.back().list)); }

  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    const std::string message = error.what();  // "[json.exception.parse_error.101] parse error ..."
    const size_t bracket = message.find("] ");
    throw ConfigError(Str("not valid JSON: ",
                          bracket == std::string::npos ? message : message.substr(bracket + 2)));
  }

 private:
  bool Start(bool is_map) {
    if (open_.size() == kMaxDepth) {
      throw ConfigError(Str("not valid JSON here: nested more than ", kMaxDepth, " levels deep"));
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
      Put(parent, std::move(value));
    } else {
      parent.list.push_back(std::move(value));
    }
    return true;
  }

  /// Adds an entry. Of entries with the same key the last value counts, at the place of the first.
  static void Put(Open& parent, Value value) {
    const auto [place, is_new] = parent.places.try_emplace(parent.key, parent.map.size());
    if (is_new) {
      parent.map.emplace_back(std::move(parent.key), std::move(value));
    } else {
      parent.map[place->second].second = std::move(value);
    }
  }

  std::vector<Open> open_;
  Value root_;
};

}  // namespace

std::string Value::ToJson(int indent) const {
  Writer writer(indent);
  writer.Write(*this);
  return writer.Take();
}

Value Value::FromJson(std::string_view text) {
  Builder builder;
  Json::sax_parse(text, &builder);
  return builder.Take();
}

}  // namespace strata
