#include "engine/data/records/labels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/records/json_lines.h"

namespace strata::data {

std::string KeyOfLabels(const Value& options) {
  return Str(options["target"].ToLua(), ", ", options["targets"].ToLua(), ", ",
             options["task"].ToLua());
}

LabelWriter::LabelWriter(const Value& options, const RecordFiles* like) {
  if (options["target"].is_null()) return;
  const std::string& field = options["target"].as_string();
  if (options["targets"] != Value(false)) field_ = field;
  are_numbers_ = options["task"] == Value("numbers");
  if (are_numbers_ || !like) return;
  Value own = options;
  own.Set("targets", true);
  LabelWriter others(own, nullptr);
  like->ForEach({{field}}, [&](const Record& record) { others.Add(record); });
  int64_t number = 0;
  for (const auto& [word, unsorted] : others.words_) words_[word] = number++;
  most_ = others.most_;
  is_open_ = false;
}

void LabelWriter::RefuseClass(const Value& value, const std::string& where) const {
  throw WorldError(Str(where, ": \"", field_, "\" expects a class, words everywhere or whole ",
                       "numbers from 0 on (task=\"numbers\" takes any number); got ",
                       value.Describe()));
}

int64_t LabelWriter::ClassOf(const Value& value, const std::string& where) {
  if (value.is_string() && most_ < 0) {
    if (is_open_) return words_.emplace(value.as_string(), std::ssize(words_)).first->second;
    const auto found = words_.find(value.as_string());
    if (found != words_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [word, number] : words_) names.push_back(word);
    throw WorldError(Str(where, ": the training has no \"", value.as_string(), "\"",
                         DidYouMean(value.as_string(), names)));
  }
  constexpr int64_t kMostClasses = 1'000'000;
  const bool is_number =
      value.is_int() && value.as_int() >= 0 && value.as_int() <= (is_open_ ? kMostClasses : most_);
  if (!is_number || !words_.empty()) RefuseClass(value, where);
  most_ = std::max(most_, value.as_int());
  return value.as_int();
}

void LabelWriter::Add(const Record& record) {
  ++count_;
  if (field_.empty()) return;
  const Value& given = EntryOf(record.fields, field_, record.where);
  const Value value = given.is_bool() ? Value(given.as_bool() ? 1 : 0) : given;
  if (!are_numbers_) return classes_.push_back(ClassOf(value, record.where));
  if (!value.is_number() || !std::isfinite(value.as_double())) {
    throw WorldError(
        Str(record.where, ": \"", field_, "\" expects a number, got ", value.Describe()));
  }
  numbers_.push_back(value.as_double());
}

void LabelWriter::Write(PreparedWriter& to, Value& facts) {
  Value::List words;
  std::vector<int64_t> sorted(words_.size());
  for (const auto& [word, number] : words_) {
    sorted[static_cast<size_t>(number)] = std::ssize(words);
    words.emplace_back(word);
  }
  if (!words.empty()) {
    for (int64_t& label : classes_) label = sorted[static_cast<size_t>(label)];
  }
  facts.Set("labels_at", to.Align());
  facts.Set("classes", are_numbers_ ? 0 : std::max(most_ + 1, std::ssize(words)));
  facts.Set("words", std::move(words));
  if (field_.empty()) classes_.assign(static_cast<size_t>(count_), 0);
  if (are_numbers_ && !field_.empty()) {
    to.Write(numbers_.data(), numbers_.size() * sizeof(numbers_[0]));
  } else {
    to.Write(classes_.data(), classes_.size() * sizeof(classes_[0]));
  }
  facts.Set("numbers", are_numbers_);
}

Labels::Labels(const Prepared& prepared)
    : prepared_(prepared),
      classes_(prepared.facts["classes"].as_int()),
      are_numbers_(prepared.facts["numbers"].as_bool()),
      begin_(prepared.bytes.data() + prepared.facts["labels_at"].as_int()) {}

TensorSpec Labels::spec() const {
  return are_numbers_ ? TensorSpec{{1}, DType::kFloat32} : TensorSpec{{}, DType::kInt64};
}

std::vector<std::string> Labels::names() const {
  std::vector<std::string> names;
  for (const Value& word : prepared_.facts["words"].as_list()) names.push_back(word.as_string());
  return names;
}

void Labels::Copy(int64_t index, std::byte* to) const {
  const std::byte* const from = begin_ + static_cast<size_t>(index) * sizeof(int64_t);
  if (!are_numbers_) {
    std::memcpy(to, from, sizeof(int64_t));
    return;
  }
  double number = 0;
  std::memcpy(&number, from, sizeof(number));
  const auto narrow = static_cast<float>(number);
  std::memcpy(to, &narrow, sizeof(narrow));
}

}  // namespace strata::data
