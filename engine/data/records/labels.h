// The targets of records: classes or numbers. Internal to engine/data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/data/files/prepared.h"
#include "engine/data/records/record_files.h"

namespace strata::data {

/// The options that the targets depend on, for PreparedKey::what.
std::string KeyOfLabels(const Value& options);

/// Collects the targets of records while their data is prepared.
class LabelWriter {
 public:
  /// By the options target, targets and task. The classes are those of the records in `like`, or
  /// of the records that are added if it is null.
  LabelWriter(const Value& options, const RecordFiles* like);
  /// The field of the target; "" if records have none.
  const std::string& field() const { return field_; }
  void Add(const Record& record);
  int64_t count() const { return count_; }
  /// Writes the targets, 8 bytes each, at a multiple of 8, and adds to `facts` what Labels needs.
  void Write(PreparedWriter& to, Value& facts);

 private:
  /// The number of the class of a word or a whole number.
  int64_t ClassOf(const Value& value, const std::string& where);
  [[noreturn]] void RefuseClass(const Value& value, const std::string& where) const;

  std::string field_;
  bool are_numbers_ = false;
  bool is_open_ = true;                   // new classes may come
  std::map<std::string, int64_t> words_;  // in the order of their appearance while is_open_
  int64_t most_ = -1;                     // the largest class of whole numbers
  int64_t count_ = 0;
  std::vector<int64_t> classes_;
  std::vector<double> numbers_;
};

/// The targets in prepared data.
class Labels {
 public:
  /// REQUIRES: `prepared` outlives it.
  explicit Labels(const Prepared& prepared);
  TensorSpec spec() const;
  int64_t classes() const { return classes_; }
  std::vector<std::string> names() const;
  /// Copies a target: a class (int64), or a number (float32).
  void Copy(int64_t index, std::byte* to) const;

 private:
  const Prepared& prepared_;
  const int64_t classes_;  // 0 = numbers
  const bool are_numbers_;
  const std::byte* begin_;
};

}  // namespace strata::data
