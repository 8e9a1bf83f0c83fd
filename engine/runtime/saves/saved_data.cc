#include "engine/runtime/saves/saved_data.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/table_encoding.h"

namespace strata {
namespace {

constexpr const char* kClasses = "classes";
constexpr const char* kEncoding = "encoding";

/// The class names in saved data. A save may have been edited: anything but a list of strings
/// counts as none.
std::vector<std::string> ClassesIn(const Value& data) {
  std::vector<std::string> names;
  const Value& list = data[kClasses];
  if (!list.is_list()) return names;
  for (const Value& name : list.as_list()) {
    if (name.is_string()) names.push_back(name.as_string());
  }
  return names;
}

std::string EncodingIn(const Value& data) {
  return data[kEncoding].is_string() ? data[kEncoding].as_string() : "";
}

std::string ShortList(std::vector<std::string> names) {
  constexpr size_t kShown = 10;
  const size_t all = names.size();
  names.resize(std::min(all, kShown));
  return Join(names, ", ") + (all > kShown ? Str(", ... (", all, " classes)") : "");
}

}  // namespace

Value SavedData(const DataSpec& train) {
  Value data;
  const auto& names = train.class_names;
  if (!names.empty()) data.Set(kClasses, Value::List(names.begin(), names.end()));
  if (!train.encoding.empty()) data.Set(kEncoding, train.encoding);
  return Value::FromJson(data.ToJson());  // JSON replaces bytes that are not UTF-8
}

void CheckClasses(const Value& saved, const Value& now, const std::string& path) {
  const std::vector<std::string> theirs = ClassesIn(saved), ours = ClassesIn(now);
  for (size_t i = 0; i < theirs.size(); ++i) {
    // JSON may have made different names equal, so the same place is checked first.
    const bool stays = i < ours.size() && ours[i] == theirs[i];
    if (stays || std::ranges::find(ours, theirs[i]) == ours.end()) continue;
    throw ConfigError(Str(path, ": class ", i, " is \"", theirs[i],
                          "\" there, and in data.train \"", i < ours.size() ? ours[i] : "none",
                          "\": outputs would have the names of others. The save has ",
                          ShortList(theirs), "; data.train has ", ShortList(ours)));
  }
}

std::vector<std::string> ChangesOfData(const Value& saved, const Value& now) {
  std::vector<std::string> notes;
  const std::vector<std::string> theirs = ClassesIn(saved), ours = ClassesIn(now);
  if (!theirs.empty() && !ours.empty() && theirs != ours) {
    notes.push_back(Str("data.train has the classes ", ShortList(ours), ", when it was saved ",
                        ShortList(theirs)));
  }
  if (HasOtherNumbers(EncodingIn(saved), EncodingIn(now))) {
    notes.push_back(
        "data.train makes other numbers of its cells than when it was saved: by other columns, "
        "words, means or normalise");
  }
  return notes;
}

}  // namespace strata
