// The text format that node_exporter's textfile collector takes:
// https://prometheus.io/docs/instrumenting/exposition_formats
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/runtime/records.h"
#include "launcher/report/step_files.h"

namespace strata::launcher {
namespace {

constexpr std::chrono::seconds kInterval(1);

struct Gauge {
  const char* name;
  const char* help;
  const char* entry;  // of a record
};
constexpr Gauge kGauges[] = {
    {"strata_loss", "Loss of the newest step, the mean over its batch.", "loss"},
    {"strata_gradient_norm", "Norm of all gradients before clipping.", "grad_norm"},
    {"strata_learning_rate", "Learning rate of the newest step.", "lr"},
    {"strata_step_seconds", "Time of the newest step.", "seconds"},
    {"strata_step_data_seconds", "Of these, waiting for data.", "data_seconds"},
    {"strata_samples_per_second", "Samples of the newest step by its time.", "samples_per_second"},
    {"strata_bubble", "Share of a step in which ranks idle, as predicted.", "bubble"},
    {"strata_bubble_measured", "The same of the newest step, as measured.", "bubble_measured"},
    {"strata_peak_memory_bytes", "Largest memory of a rank.", "peak_memory"},
    {"strata_skipped_steps", "Steps left out so far, as not finite.", "skipped"},
    {"strata_loss_scale", "Scale of the loss in float16.", "loss_scale"},
    {"strata_test_loss", "Loss of the newest evaluation.", "test_loss"},
    {"strata_test_accuracy", "Accuracy of the newest evaluation, 0 to 1.", "accuracy"},
};
/// Families of numbers by name; the names become labels.
constexpr Gauge kFamilies[] = {
    {"strata_loss_part", "Part of the loss, by name.", "parts"},
    {"strata_test_loss_part", "Part of the test loss, by name.", "test_parts"},
    {"strata_test_metric", "Metric of the newest evaluation, by name.", "metrics"},
};

std::string NumberText(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  return FormatDouble(number);
}

std::string Label(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

std::string Head(const char* name, const char* help) {
  return Str("# HELP ", name, " ", help, "\n# TYPE ", name, " gauge\n");
}

class PrometheusFile : public StepFile {
 public:
  explicit PrometheusFile(std::string path) : path_(std::move(path)) {
    struct stat status;
    if (::lstat(path_.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
    throw ConfigError(Str("--prometheus=", path_, ": this is no regular file, and the numbers ",
                          "would replace it"));
  }
  /// Writes the last numbers, which may not have been written yet. A full disk is ignored here.
  ~PrometheusFile() override {
    try {
      if (is_due_) Write();
    } catch (const std::exception&) {
    }
  }

  void OnBegin(const Begin& begin) override {
    steps_ = begin.from.done;
    ++runs_;
    std::error_code error;  // an error shows when the file is written
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
    Write();
  }

  void Add(const Value& record) override {
    for (const auto& [name, value] : record.as_map()) newest_.Set(name, value);
    steps_ = record["step"].as_int() + 1;
    time_ = std::chrono::system_clock::now();
    is_due_ = true;
    if (std::chrono::steady_clock::now() - written_ >= kInterval) Write();
  }

 private:
  std::string Text() const {
    const double time = std::chrono::duration<double>(time_.time_since_epoch()).count();
    std::string text =
        Str(Head("strata_steps_done", "Steps of the training so far."), "strata_steps_done ",
            steps_, "\n", Head("strata_runs", "How often the job was started, restarts included."),
            "strata_runs ", runs_, "\n",
            Head("strata_last_record_timestamp_seconds", "When these numbers were new."),
            "strata_last_record_timestamp_seconds ", NumberText(time), "\n");
    for (const auto& [name, help, entry] : kGauges) {
      const Value* value = newest_.Find(entry);
      if (value) text += Str(Head(name, help), name, " ", NumberText(NumberOf(*value)), "\n");
    }
    for (const auto& [name, help, entry] : kFamilies) {
      const Value* values = newest_.Find(entry);
      if (!values) continue;
      text += Head(name, help);
      for (const auto& [label, value] : values->as_map()) {
        if (value.is_list()) continue;  // a table of classes is left out
        text += Str(name, "{name=\"", Label(label), "\"} ", NumberText(NumberOf(value)), "\n");
      }
    }
    return text;
  }

  void Write() {
    const std::string next = Str(path_, ".tmp-", ::getpid());
    try {
      WriteFile(next, Text());
      if (::rename(next.c_str(), path_.c_str()) != 0) ThrowErrno(Str("cannot write ", path_));
    } catch (const Error&) {
      ::unlink(next.c_str());
      throw;
    }
    written_ = std::chrono::steady_clock::now();
    is_due_ = false;
  }

  const std::string path_;
  Value newest_ = Value::MakeMap();
  int64_t steps_ = 0, runs_ = 0;
  std::chrono::system_clock::time_point time_ = std::chrono::system_clock::now();
  std::chrono::steady_clock::time_point written_ = {};
  bool is_due_ = false;
};

}  // namespace

std::unique_ptr<StepFile> MakePrometheusFile(const std::string& path) {
  return std::make_unique<PrometheusFile>(path);
}

}  // namespace strata::launcher
