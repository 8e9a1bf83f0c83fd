// The kinds of files, and which of a training's messages they receive.
#include "launcher/report/step_files.h"

#include <utility>

#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

struct Kind {
  const char* flag;
  const char* help;
  std::unique_ptr<StepFile> (*make)(const std::string& path);
};

constexpr Kind kKinds[] = {
    {"csv", "a table of all steps and evaluations", MakeCsvFile},
    {"prometheus", "the newest numbers, for node_exporter's textfile collector (F.prom)",
     MakePrometheusFile},
    {"tensorboard", "a folder of TensorBoard's events", MakeTensorboardFile},
};

}  // namespace

FieldTable StepFileFields() {
  FieldTable fields;
  for (const Kind& kind : kKinds) fields.push_back(Field::String(kind.flag, kind.help).Optional());
  return fields;
}

StepFiles::StepFiles(JobListener& next, const Value& flags) : next_(next) {
  for (const Kind& kind : kKinds) {
    if (flags[kind.flag].is_string()) files_.push_back(kind.make(flags[kind.flag].as_string()));
  }
}

void StepFiles::OnMessage(int rank, const Value& message) {
  next_.OnMessage(rank, message);
  const std::string& type = message["type"].as_string();
  if (type == kHeaderMessage) goes_on_ = message["goes_on"].as_bool();
  for (const auto& file : files_) {
    if (type == kStartMessage) {
      file->OnBegin({goes_on_, PlaceOf(message)});
    }
    if (type == kStepMessage || type == kEvalMessage) file->Add(message["record"]);
    if (type == kSamplesMessage) file->AddTexts(message["record"]);
    if (type == kHistogramsMessage) file->AddHistograms(message["record"]);
  }
}

void StepFiles::StopFiles() {
  next_.StopFiles();
  files_.clear();
}

}  // namespace strata::launcher
