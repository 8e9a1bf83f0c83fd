#include "engine/data/records/json_lines.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value_json.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/data/files/data_progress.h"
#include "engine/data/files/mapped_file.h"

namespace strata::data {
namespace {

constexpr size_t kMostLevels = 100;

/// Parses a line as a JSON object; throws WorldError with `where` if it is none.
Value ObjectIn(std::string_view line, const std::string& where) {
  Value object;
  try {
    object = ParseStrictJson(line, kMostLevels, where);
  } catch (const WorldError&) {
    const std::string trouble = Utf8Trouble(line);  // tells more than that it is no JSON
    if (trouble.empty()) throw;
    throw WorldError(Str(where, ": ", trouble));
  }
  if (object.is_map()) return object;
  throw WorldError(Str(where, ": expected a JSON object, got ", object.Describe()));
}

}  // namespace

void ForEachJsonLine(
    const std::string& path,
    const std::function<void(const Value& object, const std::string& where)>& body) {
  const MappedFile file(path, "JSON objects, one a line");
  DataProgress progress(Reading(path), std::ssize(file.text()));
  constexpr size_t kRead = size_t{16} << 20;  // bytes that stay in this process's memory
  size_t released = 0;
  std::string_view text = file.text();
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty()) continue;
    const std::string where = Str(path, ":", line);
    body(ObjectIn(one, where), where);
    const size_t at = file.text().size() - text.size();
    progress.At(static_cast<int64_t>(at));
    if (at < released + kRead) continue;
    file.Release(at);
    released = at;
  }
}

const Value& EntryOf(const Value& object, const std::string& key, const std::string& where) {
  if (const Value* entry = object.Find(key)) return *entry;
  std::vector<std::string> keys;
  for (const auto& [name, value] : object.as_map()) keys.push_back(name);
  throw WorldError(Str(where, ": there is no \"", key, "\"", DidYouMean(key, keys)));
}

const std::string& TextOf(const Value& object, const std::string& key, const std::string& where) {
  const Value& text = EntryOf(object, key, where);
  if (text.is_string()) return text.as_string();
  throw WorldError(Str(where, ": \"", key, "\" expects a text, got ", text.Describe()));
}

}  // namespace strata::data
