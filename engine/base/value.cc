#include "engine/base/value.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

/// True for a whole number in the range of int64.
bool IsWhole(double d) { return std::floor(d) == d && d >= -0x1p63 && d < 0x1p63; }

[[noreturn]] void ThrowKind(const char* expected, const Value& got) {
  throw ConfigError(Str("expected ", expected, ", got ", got.Describe()));
}

/// The string as a Lua literal; control characters are written as decimal escapes.
std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else if (code < 0x20 || code == 0x7f) {
      quoted += Printf("\\%03d", code);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

/// The text for an error message: a long one is cut off after 80 bytes.
std::string Shortened(const std::string& text) {
  constexpr size_t kLongest = 80;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

bool IsLuaKeyword(std::string_view word) {
  constexpr std::array<std::string_view, 22> kKeywords = {
      "and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
      "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
      "repeat",   "return", "then", "true", "until",  "while"};
  return std::find(kKeywords.begin(), kKeywords.end(), word) != kKeywords.end();
}

bool IsLuaName(std::string_view key) {
  if (key.empty() || std::isdigit(static_cast<unsigned char>(key[0]))) return false;
  if (IsLuaKeyword(key)) return false;
  for (char c : key) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

std::string FirstDifferenceAt(const std::string& path, const Value& a, const Value& b);

std::string DifferenceOfLists(const std::string& path, const Value::List& a, const Value::List& b) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const Value none;
    const std::string difference =
        FirstDifferenceAt(Str(path, path.empty() ? "" : ".", i), i < a.size() ? a[i] : none,
                          i < b.size() ? b[i] : none);
    if (!difference.empty()) return difference;
  }
  return "";
}

std::string DifferenceOfMaps(const std::string& path, const Value& a, const Value& b) {
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& [key, value] : a.as_map()) {
    const std::string difference = FirstDifferenceAt(prefix + key, value, b[key]);
    if (!difference.empty()) return difference;
  }
  for (const auto& [key, value] : b.as_map()) {
    if (!a.Has(key)) return FirstDifferenceAt(prefix + key, Value(), value);
  }
  return "";
}

std::string FirstDifferenceAt(const std::string& path, const Value& a, const Value& b) {
  if (a == b) return "";
  std::string inner;
  if (a.is_list() && b.is_list()) inner = DifferenceOfLists(path, a.as_list(), b.as_list());
  if (a.is_map() && b.is_map()) inner = DifferenceOfMaps(path, a, b);
  if (!inner.empty()) return inner;
  return Str(path, path.empty() ? "" : ": ", a.ToLua(), " against ", b.ToLua());
}

}  // namespace

Value Value::MakeMap(Map entries) {
  Value value;
  value.data_ = std::move(entries);
  return value;
}

Value Value::IntList(const std::vector<int64_t>& ints) { return List(ints.begin(), ints.end()); }

bool Value::is_int() const {
  if (const double* d = std::get_if<double>(&data_)) return IsWhole(*d);
  return kind() == Kind::kInt;
}

bool Value::as_bool() const {
  if (const bool* b = std::get_if<bool>(&data_)) return *b;
  ThrowKind("true or false", *this);
}

int64_t Value::as_int() const {
  if (const int64_t* i = std::get_if<int64_t>(&data_)) return *i;
  if (is_int()) return static_cast<int64_t>(std::get<double>(data_));
  ThrowKind("a whole number", *this);
}

double Value::as_double() const {
  if (const double* d = std::get_if<double>(&data_)) return *d;
  if (const int64_t* i = std::get_if<int64_t>(&data_)) return static_cast<double>(*i);
  ThrowKind("a number", *this);
}

const std::string& Value::as_string() const {
  if (const std::string* s = std::get_if<std::string>(&data_)) return *s;
  ThrowKind("a string", *this);
}

const FunctionRef& Value::as_function() const {
  if (const FunctionRef* f = std::get_if<FunctionRef>(&data_)) return *f;
  ThrowKind("a function", *this);
}

const Value::List& Value::as_list() const {
  if (const List* list = std::get_if<List>(&data_)) return *list;
  ThrowKind("a list", *this);
}

const Value::Map& Value::as_map() const {
  if (const Map* map = std::get_if<Map>(&data_)) return *map;
  ThrowKind("a table with names", *this);
}

std::vector<int64_t> Value::as_ints() const {
  std::vector<int64_t> ints;
  for (const Value& element : as_list()) ints.push_back(element.as_int());
  return ints;
}

const Value* Value::Find(std::string_view key) const {
  if (is_null()) return nullptr;
  for (const auto& [name, value] : as_map()) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Value& Value::operator[](std::string_view key) const {
  static const Value none;
  const Value* found = Find(key);
  return found ? *found : none;
}

bool Value::operator==(const Value& other) const {
  if (!is_map() || !other.is_map()) return data_ == other.data_;
  const Map &mine = as_map(), &theirs = other.as_map();
  if (mine.size() != theirs.size()) return false;
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto& [key, value] = mine[i];
    const Value* match = theirs[i].first == key ? &theirs[i].second : other.Find(key);
    if (match == nullptr || !(value == *match)) return false;
  }
  return true;
}

Value& Value::Set(std::string_view key, Value value) {
  if (is_null()) data_ = Map();
  if (Value* found = const_cast<Value*>(Find(key))) {
    *found = std::move(value);
  } else {
    std::get<Map>(data_).emplace_back(std::string(key), std::move(value));
  }
  return *this;
}

void Value::Erase(std::string_view key) {
  if (is_null()) return;
  as_map();
  std::erase_if(std::get<Map>(data_), [&](const Entry& entry) { return entry.first == key; });
}

void Value::SetPath(std::string_view dotted, Value value) {
  const size_t dot = dotted.find('.');
  if (dot == std::string_view::npos) {
    Set(dotted, std::move(value));
    return;
  }
  const std::string_view head = dotted.substr(0, dot);
  if (!Has(head)) Set(head, MakeMap());
  const_cast<Value*>(Find(head))->SetPath(dotted.substr(dot + 1), std::move(value));
}

void Value::Append(Value value) {
  if (is_null()) data_ = List();
  as_list();
  std::get<List>(data_).push_back(std::move(value));
}

std::string Value::Describe() const {
  switch (kind()) {
    case Kind::kNull:
      return "nothing";
    case Kind::kBool:
      return as_bool() ? "true" : "false";
    case Kind::kInt:
    case Kind::kDouble:
      return Str("the number ", ToLua());
    case Kind::kString:
      return Str("the string ", Quote(Shortened(as_string())));
    case Kind::kFunction:
      return Str("a function (", as_function().where, ")");
    case Kind::kList:
      return as_list().size() <= 8 ? Str("the list ", ToLua())
                                   : Str("a list of ", as_list().size());
    case Kind::kMap:
      return "a table with names";
  }
  return "";
}

std::string Value::ToLua() const {
  switch (kind()) {
    case Kind::kNull:
      return "nil";
    case Kind::kBool:
      return as_bool() ? "true" : "false";
    case Kind::kInt:
      return std::to_string(as_int());
    case Kind::kDouble:
      return FormatDouble(as_double());
    case Kind::kString:
      return Quote(as_string());
    case Kind::kFunction:
      return Str("function(", as_function().where, ")");
    case Kind::kList: {
      std::vector<std::string> pieces;
      for (const Value& element : as_list()) pieces.push_back(element.ToLua());
      return Str("{", Join(pieces, ", "), "}");
    }
    case Kind::kMap: {
      std::vector<std::string> pieces;
      for (const auto& [key, element] : as_map()) {
        pieces.push_back(
            Str(IsLuaName(key) ? key : Str("[", Quote(key), "]"), "=", element.ToLua()));
      }
      return Str("{", Join(pieces, ", "), "}");
    }
  }
  return "";
}

Value Merged(Value base, const Value& over) {
  for (const auto& [name, value] : over.as_map()) base.Set(name, value);
  return base;
}

std::string FirstDifference(const Value& a, const Value& b) { return FirstDifferenceAt("", a, b); }

std::string Digest(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return Printf("%016llx", static_cast<unsigned long long>(hash));
}

}  // namespace strata
