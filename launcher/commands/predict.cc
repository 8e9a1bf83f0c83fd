// The commands `strata predict SCRIPT`, which writes a model's outputs for data.test or for a file,
// and `strata eval SCRIPT`, which evaluates the model on data.test.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/open_dataset.h"
#include "engine/job/data_source.h"
#include "engine/layers/layer_types.h"
#include "engine/runtime/records.h"
#include "launcher/command.h"
#include "launcher/commands/inference_job.h"
#include "launcher/commands/script_job.h"
#include "launcher/report/predictions.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

/// A job that runs over data.test.
class TestDataJob : public InferenceJob {
 public:
  using InferenceJob::InferenceJob;

 protected:
  void OnPlan(const Job& job, const Plan&, Script&, int, Reporter&) override {
    if (job.test_data.kind.empty()) {
      throw ConfigError(Str("the job \"", job.name, "\" has no data.test to compute outputs for"));
    }
    ExpectWeights(job);
  }
};

std::shared_ptr<const Dataset> Opened(const DataSpec& data, const Job& job, Script& script) {
  return OpenDataset(data, {fs::path(job.script).parent_path().string(), job.input, job.seed,
                            dynamic_cast<DataScript*>(&script)});
}

/// The names of the classes, if the data has them: its sub-folders, or the words of a table's
/// column.
std::vector<std::string> NamesIn(const Job& job, Script& script) {
  for (const DataSpec* data : {&job.test_data, &job.train_data}) {
    if (!HasEnd(*data)) continue;
    const std::vector<std::string> names = Opened(*data, job, script)->class_names();
    if (!names.empty()) return names;
  }
  return {};
}

/// The numbers of the outputs whose rows are padded as the samples are (collate = "pad"): those
/// that become longer with longer samples. Sends a note if this cannot be determined.
std::set<size_t> FilledUp(const Job& job, const Plan& plan, Script& script, Reporter& reporter) {
  if (job.test_data.options["collate"] != Value("pad")) return {};
  const TensorSpecs sample = FactsOf(job.test_data).inputs;
  const int64_t length = sample.at(0).shape.at(0);
  const auto outputs_for = [&](int64_t samples_length) {
    TensorSpecs inputs = WithRows(sample, plan.batch.micro_batch_size);
    for (TensorSpec& input : inputs) input.shape.at(1) = samples_length;  // the mask's too
    return InferLayers(job.layers, inputs, &script).back();
  };
  std::set<size_t> filled_up;
  try {
    const TensorSpecs outputs = outputs_for(length), longer = outputs_for(length + 1);
    bool is_known = outputs.size() == longer.size();
    for (size_t k = 0; k < outputs.size() && is_known; ++k) {
      if (outputs[k] == longer[k]) continue;
      TensorSpec expected = outputs[k];
      is_known =
          expected.shape.size() > 1 && std::exchange(expected.shape[1], length + 1) == length;
      is_known = is_known && expected == longer[k];
      filled_up.insert(k);
    }
    if (is_known) return filled_up;
  } catch (const ConfigError&) {  // the model does not take longer samples
  }
  reporter.Send(NoteMessage(
      "rows have the length of the longest sample of their micro-batch, padding included: "
      "the shape of the output does not tell which numbers belong to padding"));
  return {};
}

/// The options of the output file. Class names from the data are dropped if the model has another
/// number of classes.
PredictionOptions OptionsOf(const Value& own, const Job& job, const Plan& plan, Script& script,
                            Reporter& reporter) {
  PredictionOptions options = {.classes = own["as_classes"].as_bool()};
  const TensorSpecs& output = plan.stages.back().output;
  const bool is_list = output.size() == 1 && output[0].shape.size() == 2;
  const int64_t classes = is_list ? output[0].shape[1] : 0;
  options.probabilities = is_list && GivesProbabilities(job.layers, 2);
  if (classes > 1 && job.loss.type.starts_with("BCE")) options.loss_of_labels = job.loss.type;
  const Value& names = own["class_names"];
  if (names.is_null()) {
    if (options.classes) options.names = NamesIn(job, script);
    if (options.names.empty() || !is_list) return options;
    if (classes == std::ssize(options.names)) return options;
    reporter.Send(
        NoteMessage(Str("classes are written as numbers: the data has ", options.names.size(),
                        " names, but the model has ", Plural(classes, "output"))));
    options.names.clear();
    return options;
  }
  for (const std::string& name : Split(names.as_string(), ',')) {
    options.names.emplace_back(Trim(name));
  }
  return options;
}

/// "size at time" for a file, or for every file in a folder and below it. The files that this
/// command itself writes (`output`.part and its log) are left out.
std::string StampOf(const std::string& path, const std::string& output) {
  std::string stamp;
  std::error_code error;
  const auto add = [&](const std::string& file) {
    struct stat status;
    if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    if (fs::equivalent(file, output + ".part", error)) return;
    if (fs::equivalent(file, output + ".part.log", error)) return;
    stamp += Str(file, " ", status.st_size, " at ", status.st_mtim.tv_sec, ".",
                 status.st_mtim.tv_nsec, "\n");
  };
  add(path);
  std::vector<std::string> files;
  const std::string beside = ".tmp-" + fs::path(output).filename().string();  // PlaceBeside()
  fs::recursive_directory_iterator at(path, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at->path().filename().string().starts_with(beside)) continue;
    files.push_back(at->path().string());
  }
  std::ranges::sort(files);
  for (const std::string& file : files) add(file);
  return stamp;
}

/// The stamps of all files and folders that a data source's options name.
std::string StampsOf(const Value& options, const fs::path& folder, const std::string& output) {
  std::string stamps;
  if (options.is_string()) return StampOf((folder / options.as_string()).string(), output);
  if (options.is_list()) {
    for (const Value& option : options.as_list()) stamps += StampsOf(option, folder, output);
  }
  if (options.is_map()) {
    for (const auto& [name, option] : options.as_map()) stamps += StampsOf(option, folder, output);
  }
  return stamps;
}

/// A digest of everything on which a prediction depends. An unfinished prediction is only continued
/// if it has the same digest.
std::string What(const Job& job, const Plan& plan, const std::string& output) {
  return Digest(Str(job.ToValue().ToJson(), StampOf(job.weights.from, output),
                    StampOf(job.resume, output),
                    StampsOf(job.test_data.options, fs::path(job.script).parent_path(), output),
                    plan.stages.size(), " ", plan.topology.world_size(), " ",
                    plan.batch.micro_batches, " ", plan.batch.micro_batch_size));
}

class PredictJob : public TestDataJob {
 public:
  using TestDataJob::TestDataJob;

 protected:
  void OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
              Reporter& reporter) override {
    TestDataJob::OnPlan(job, plan, script, processes, reporter);
    path_ = own_flags()["output"].as_string();
    options_ = OptionsOf(own_flags(), job, plan, script, reporter);
    if (path_.ends_with(".jsonl")) options_.filled_up = FilledUp(job, plan, script, reporter);
    what_ = What(job, plan, path_);
    const Predictions before(path_, options_, what_);  // throws before any work is done
    done_ = before.parts();
    if (done_ == 0) return;
    reporter.Send(NoteMessage(
        Str("goes on after ", Plural(before.samples(), "sample"), " of ", path_, ".part")));
  }
  void Work(const Job& job, Engine& engine, Script& script, int rank,
            RankReporter& reporter) override {
    std::optional<Predictions> predictions;
    if (rank == 0) {
      Begun(engine.start(), reporter);
      predictions.emplace(path_, OptionsOfSamples(job, script), what_);
      if (predictions->parts() != done_) throw WorldError(Str("another process writes ", path_));
    }
    for (int64_t part = done_; const auto rows = engine.PredictTestData(part); ++part) {
      if (predictions) predictions->Add(*rows);
    }
    if (!predictions) return;
    predictions->Finish();
    reporter.Send(TextMessage(Str(path_, ": ", Plural(predictions->samples(), "sample"), ", with ",
                                  engine.start().from)));
  }

 private:
  /// Adds what the data knows of each sample: its length and, for a folder of images, its file.
  PredictionOptions OptionsOfSamples(const Job& job, Script& script) const {
    PredictionOptions options = options_;
    const auto is_images = [](std::string_view kind) { return kind == "image_folder"; };
    const bool is_input = own_flags()["input"].is_string();
    const bool has_files = is_input && AnySource(job.test_data, is_images);
    if (!has_files && options.filled_up.empty()) return options;
    const auto data = Opened(job.test_data, job, script);
    if (has_files) options.file_of = [data](int64_t sample) { return data->name_of(sample); };
    options.length_of = [data](int64_t sample) {
      return data->ReadPlain(sample).input.specs.at(0).shape.at(0);
    };
    return options;
  }

  // Set in the starter; the ranks inherit it through fork():
  std::string path_, what_;
  PredictionOptions options_;
  int64_t done_ = 0;  // parts that an earlier run has written
};

class EvalJob : public TestDataJob {
 public:
  using TestDataJob::TestDataJob;

 protected:
  void OnJob(const Job& job, Reporter&) override {
    if (!job.loss.type.empty()) return;
    throw ConfigError(Str("the job \"", job.name, "\" needs a loss to evaluate: ",
                          "loss = nn.CrossEntropyLoss{} or another"));
  }
  void Work(const Job&, Engine& engine, Script&, int rank, RankReporter& reporter) override {
    if (rank == 0) Begun(engine.start(), reporter);
    const EvalResult result = engine.EvaluateTestData();
    if (result.stop) return reporter.Stopped();
    if (rank != 0) return;
    reporter.Send(TextMessage(
        Str(FormatTest(EvalRecord(0, result)), "  (", Plural(result.samples, "sample"), ")")));
  }
};

/// Replaces --input by the key data.input, with the path relative to the current folder.
Arguments WithInput(const Command& command, const Arguments& given) {
  const Value input = ParseScriptArguments(command, given).flags.own()["input"];
  if (!input.is_string()) return given;
  const std::string path = fs::absolute(input.as_string()).lexically_normal().string();
  return WithFlags(given, {"--data.input=" + path});
}

template <class SomeJob>
int Run(const Command& command, const Arguments& given) {
  const Arguments arguments = WithInput(command, given);
  return RunInference(command, arguments, [&](const Placement& placement) {
    return std::make_unique<SomeJob>(command, arguments, placement);
  });
}

}  // namespace

Command PredictCommand() {
  Command command = {
      .name = "predict",
      .usage = "SCRIPT --weights=FILE --output=OUT.csv [--input=FILE] [--flags]",
      .summary = "writes what a model gives for data.test, or a file",
      .details =
          "Runs the model forward on the job's grid, in evaluation mode, over data.test in its\n"
          "order, or over FILE, which is read as data.test is; targets are not read. OUT ends in\n"
          ".npy, .safetensors (the tensor \"output\"), .csv or .jsonl; it is there once it is "
          "whole.\n"
          "A last layer with several outputs needs .safetensors or .jsonl: \"output_0\", ...\n"
          "The same command goes on with what was interrupted (OUT.part).\n"
          "--eval.batch=N sets the micro-batch size.",
      .flags = {Field::String("output", "the new file"),
                Field::String(
                    "input",
                    "a table, arrays, texts, an image or a folder of images, in the place "
                    "of data.test")
                    .Optional(),
                Field::Bool("as_classes",
                            "the likeliest class, by name where the data has names, and its "
                            "probability instead of outputs")
                    .Default(false),
                Field::String("class_names", "of the classes, with commas: cat,dog").Optional()},
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
