// The commands `strata predict SCRIPT` and `strata eval SCRIPT`: what a model gives for data.test,
// and how well it does there, without training.
#include <memory>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/runtime/interface/records.h"
#include "launcher/command.h"
#include "launcher/job/inference_job.h"
#include "launcher/report/predictions.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

using Arguments = std::vector<std::string>;

/// Of data.test.
class TestDataJob : public InferenceJob {
 public:
  using InferenceJob::InferenceJob;

 protected:
  void OnPlan(const Job& job, const Plan&, Script&, int, Reporter&) override {
    if (job.test_data.kind.empty()) {
      throw ConfigError(Str("the job \"", job.name, "\" has no data.test to compute outputs for"));
    }
  }
};

PredictionOptions OptionsOf(const Value& own) {
  PredictionOptions options = {.classes = own["as_classes"].as_bool()};
  const Value& names = own["class_names"];
  if (names.is_null()) return options;
  for (const Value& name : names.is_list() ? names.as_list() : Value::List{names}) {
    options.names.push_back(name.is_string() ? name.as_string() : name.ToJson());
  }
  return options;
}

class PredictJob : public TestDataJob {
 public:
  using TestDataJob::TestDataJob;

 protected:
  void OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
              Reporter& reporter) override {
    TestDataJob::OnPlan(job, plan, script, processes, reporter);
    Predictions(own_flags()["output"].as_string(), OptionsOf(own_flags()));  // before work is done
  }
  void Work(const Job&, Engine& engine, Script&, int rank, RankReporter& reporter) override {
    const std::string path = own_flags()["output"].as_string();
    std::optional<Predictions> predictions;
    if (rank == 0) {
      Begun(engine, reporter);
      predictions.emplace(path, OptionsOf(own_flags()));
    }
    for (int64_t part = 0; const auto rows = engine.PredictTestData(part); ++part) {
      if (predictions) predictions->Add(*rows);
    }
    if (!predictions) return;
    predictions->Finish();
    reporter.Send(TextMessage(
        Str(path, ": ", Plural(predictions->samples(), "sample"), ", with ", engine.start().from)));
  }
};

class EvalJob : public TestDataJob {
 public:
  using TestDataJob::TestDataJob;

 protected:
  void Work(const Job&, Engine& engine, Script&, int rank, RankReporter& reporter) override {
    if (rank == 0) Begun(engine, reporter);
    const EvalResult result = engine.EvaluateTestData();
    if (rank != 0) return;
    reporter.Send(TextMessage(
        Str(FormatTest(EvalRecord(0, result)), "  (", Plural(result.samples, "sample"), ")")));
  }
};

template <class SomeJob>
int Run(const Command& command, const Arguments& arguments) {
  return RunInference(command, arguments, [&](const Placement& placement) {
    return std::make_unique<SomeJob>(command, arguments, placement);
  });
}

}  // namespace

Command PredictCommand() {
  Command command = {
      .name = "predict",
      .usage = "SCRIPT --weights=FILE --output=OUT.csv [--flags]",
      .summary = "writes what a model gives for data.test",
      .details =
          "Runs the model forward on the job's grid, in evaluation mode, over data.test in its\n"
          "order; targets are not read. OUT ends in .npy, .safetensors (the tensor \"output\"),\n"
          ".csv or .jsonl; it is there once it is whole. --eval.batch=N sets the micro-batch size.",
      .flags = {Field::String("output", "the new file"),
                Field::Bool("as_classes",
                            "the likeliest class and its probability instead of outputs")
                    .Default(false),
                Field::Any("class_names", "of the classes, with commas: cat,dog").Optional()},
      .takes_job = true,
      .run = &Run<PredictJob>};
  for (const Field& field : InferenceFlags()) command.flags.push_back(field);
  return command;
}

Command EvalCommand() {
  return {.name = "eval",
          .usage = "SCRIPT --weights=FILE [--flags]",
          .summary = "shows a model's loss and accuracy on data.test",
          .details = "Runs the model forward on the job's grid over data.test, without training.",
          .flags = InferenceFlags(),
          .takes_job = true,
          .run = &Run<EvalJob>};
}

}  // namespace strata::launcher
