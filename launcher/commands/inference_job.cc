#include "launcher/commands/inference_job.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/forecast/users_program.h"
#include "engine/schedule/generators/generators.h"
#include "launcher/commands/script_job.h"
#include "launcher/process/supervisor.h"
#include "launcher/report/train_report.h"
#include "launcher/terminal/terminal.h"

namespace strata::launcher {
namespace {

constexpr const char* kNoWeights =
    "these are no trained weights: give --weights=FILE or --resume=SAVE";

/// Shows the lines that rank 0 sends, and the output of the ranks.
class LineListener : public JobListener {
 public:
  explicit LineListener(Terminal& terminal) : terminal_(terminal) {}
  void OnMessage(int rank, const Value& message) override {
    if (message["text"].is_string()) terminal_.Line(message["text"].as_string());
    const Value& progress = message["line"];  // rank 0 speaks for all
    if (progress.is_string() && rank <= 0) terminal_.ErrorLine("strata: " + progress.as_string());
    if (message["note"].is_string()) terminal_.ErrorLine(message["note"].as_string());
    if (message["piece"].is_string()) terminal_.Text(message["piece"].as_string());
  }
  void OnOutput(int rank, bool is_error, std::string_view line) override {
    terminal_.Line(Str(rank >= 0 ? Str("[", rank, "] ") : "", line), is_error);
  }

 private:
  Terminal& terminal_;
};

}  // namespace

void InferenceJob::Change(Job& job) const {
  if (job.resume == kLatestSave) {
    if (!job.weights.from.empty() && !job.adapt.is_on()) {
      throw ConfigError(
          "resume and weights both say what is loaded; leave out one of them: --resume=none or "
          "--weights=none");
    }
    job.resume = job.save.dir;
  }
  job.trains = false;
  job.save = {};
  job.trace.clear();
  job.log.clear();
  job.eval.samples = {};
  job.rebalance = false;
  // These keys concern what a forward keeps for the backward; without a backward nothing is kept.
  job.memory = 0;
  job.ranks = {};
  job.recompute = {};
  // The order of a forward does not depend on the schedule, and the schedule's conditions concern a
  // training. Fits() refuses an unknown name.
  if (!IsUsers(job)) schedule::Fits(job.schedule.name, {1, 1, 1});
  job.schedule = {"inference", "", {}};
  // Frozen layers have no gradients and moments, so a rank needs a quarter of the memory. With
  // averages (ema) layers stay trainable, because averages exist only for trainable parameters.
  if (job.optimizer.ema > 0) return;
  for (LayerSpec& layer : job.layers) layer.frozen = true;
}

void InferenceJob::ExpectWeights(const Job& job) {
  if (job.weights.from.empty() && job.resume.empty()) throw ConfigError(kNoWeights);
  const bool has_parts =
      !job.resume.empty() || (job.adapt.is_on() && job.adapt.options["from"].is_string());
  if (job.adapt.is_on() && !has_parts) {
    throw ConfigError(
        "the job has adapt, and its low-rank parts are not given: --resume=SAVE or --adapt.from="
        "FOLDER (--adapt=none computes with the weights alone)");
  }
}

void InferenceJob::Begun(const StartReport& start, RankReporter& reporter) {
  if (start.from.empty()) throw ConfigError(kNoWeights);
  for (const std::string& note : start.notes) reporter.Send(NoteMessage(note));
}

Value NoteMessage(const std::string& text) {
  return Value::MakeMap({{"type", "note"}, {"note", text}});
}

Value PieceMessage(const std::string& text) {
  return Value::MakeMap({{"type", "piece"}, {"piece", text}});
}

FieldTable InferenceFlags() {
  return {NprocField(), ConfigField(), ScriptTimeoutField(), AllowReadField(),
          PrepareTimeoutField()};
}

int RunInference(const Command& command, const std::vector<std::string>& arguments,
                 const std::function<std::unique_ptr<InferenceJob>(const Placement&)>& make) {
  const Value own = ParseScriptArguments(command, arguments).flags.own();
  const Placement placement = PlacementHere(own);
  CheckIsWhole(placement, "strata " + command.name);
  Terminal terminal;
  LineListener listener(terminal);
  const std::unique_ptr<InferenceJob> job = make(placement);
  return Shown(terminal, Supervise(*job, listener, SupervisorOptionsOf(own, terminal.output())));
}

}  // namespace strata::launcher
