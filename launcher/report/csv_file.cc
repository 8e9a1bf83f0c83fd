// A table with fixed columns, which programs can read without knowing the job.
#include "engine/data/files/csv_file.h"

#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/report/step_files.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

constexpr const char* kColumns[] = {
    "step",    "loss",         "grad_norm",          "lr",           "samples",
    "seconds", "data_seconds", "samples_per_second", "peak_memory",  "bubble",
    "skipped", "loss_scale",   "test_loss",          "test_samples", "accuracy"};
constexpr const char* kMore = "more";

std::string TextOf(const Value& value) {
  return value.is_string() ? value.as_string() : value.is_null() ? "" : value.ToJson();
}

class CsvFile : public StepFile {
 public:
  explicit CsvFile(std::string path) : path_(std::move(path)) {}

  void OnBegin(const Begin& begin) override {
    log_.emplace("the table", path_, begin.goes_on);
    const std::string columns = Str(
        Join(std::vector<std::string>(std::begin(kColumns), std::end(kColumns)), ","), ",", kMore);
    const std::string first = log_->FirstLine();
    if (!first.empty() && first != columns) {
      throw ConfigError(Str("--csv=", path_,
                            ": the training continues this file, but it begins with \"",
                            first.substr(0, 60), "\", not with this table's columns"));
    }
    log_->CutFrom([&](std::string_view line) {
      return line != columns && ComesAgain(RecordOf(line), begin.from);
    });
    if (first.empty()) log_->Write(columns);
  }

  void Add(const Value& record) override {
    std::vector<std::string> cells;
    Value rest = record;
    for (const char* column : kColumns) {
      const Value* value = record.Find(column);
      cells.push_back(value ? data::CsvField(TextOf(*value)) : "");
      rest.Erase(column);
    }
    cells.push_back(rest.as_map().empty() ? "" : data::CsvField(rest.ToJson()));
    log_->Write(Join(cells, ","));
  }

 private:
  /// A record with just the entries that ComesAgain() needs.
  static Value RecordOf(std::string_view line) {
    const std::vector<std::string> cells = Split(std::string(line), ',');
    Value record = Value::FromJson(Str("{\"step\":", cells[0], "}"));
    const bool is_evaluation = cells.size() > 1 && cells[1].empty();
    if (is_evaluation) record.Set("test_loss", 0);
    return record;
  }

  const std::string path_;
  std::optional<LineLog> log_;
};

}  // namespace

std::unique_ptr<StepFile> MakeCsvFile(const std::string& path) {
  return std::make_unique<CsvFile>(path);
}

}  // namespace strata::launcher
