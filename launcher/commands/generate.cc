// The command `strata generate SCRIPT`, in which a language model continues texts.
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/runtime/texts.h"
#include "launcher/command.h"
#include "launcher/commands/inference_job.h"
#include "launcher/commands/prompts.h"
#include "launcher/commands/script_job.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

using Arguments = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

/// Shows a single text piece by piece while it is generated; several texts each as a whole, in the
/// order of the prompts.
class TextReporter {
 public:
  TextReporter(const Texts& texts, RankReporter& reporter)
      : texts_(texts), reporter_(reporter), has_ended_(texts.texts().size()) {}

  void Begun(const TextReport& report) {
    report_ = report;
    if (!report.note.empty()) {
      reporter_.Send(NoteMessage(
          Str("note: ", report.note,
              ": keys and values are not kept, so the whole text runs again for every token")));
    }
    if (is_single()) reporter_.Send(PieceMessage(Printable(texts_.texts()[0])));
  }

  void Add(size_t prompt, const std::string& piece, bool is_last) {
    if (is_single()) reporter_.Send(PieceMessage(Str(Printable(piece), is_last ? "\n" : "")));
    has_ended_[prompt] = is_last;
    for (; !is_single() && shown_ < has_ended_.size() && has_ended_[shown_]; ++shown_) {
      reporter_.Send(TextMessage(Str("[", shown_ + 1, "] ", Printable(texts_.texts()[shown_]))));
    }
  }

  void Finish(int64_t tokens, double seconds, double until_first) {
    const auto bytes = static_cast<double>(report_.kept_bytes);
    const double rate = std::round(10 * static_cast<double>(tokens) / seconds) / 10;
    reporter_.Send(NoteMessage(
        Str(Plural(tokens, "token"), " in ", FormatSeconds(seconds), ", ", FormatDouble(rate),
            " a second, the first after ", FormatSeconds(until_first),
            bytes > 0 ? Str("; keys and values ", FormatBytes(bytes), " a rank") : std::string(),
            CutOff())));
  }

 private:
  bool is_single() const { return texts_.texts().size() == 1; }
  std::string CutOff() const {
    if (texts_.cut_off() == 0) return "";
    const std::string which = is_single() ? "the text" : Plural(texts_.cut_off(), "text");
    return Str("; ", which, " ended at the length of the model's input");
  }

  const Texts& texts_;
  RankReporter& reporter_;
  TextReport report_;
  std::vector<bool> has_ended_;
  size_t shown_ = 0;
};

class GenerateJob : public InferenceJob {
 public:
  GenerateJob(const Command& command, Arguments arguments, Placement placement,
              std::vector<std::string> prompts)
      : InferenceJob(command, std::move(arguments), std::move(placement)),
        prompts_(std::move(prompts)) {}

 protected:
  /// Checks the prompts before a rank starts.
  void OnPlan(const Job& job, const Plan& plan, Script&, int, Reporter&) override {
    Texts(job, plan, own_flags(), prompts_);
    ExpectWeights(job);
  }

  void Work(const Job& job, Engine& engine, Script&, int rank, RankReporter& reporter) override {
    Texts texts(job, plan(), own_flags(), prompts_);
    if (rank != 0) {
      texts.Write(engine, nullptr, [](size_t, const std::string&, bool) {});
      return;
    }
    Begun(engine.start(), reporter);
    TextReporter shown(texts, reporter);
    const auto start = Clock::now();
    const auto since = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    double until_first = 0;
    const int64_t tokens = texts.Write(
        engine, [&](const TextReport& report) { shown.Begun(report); },
        [&](size_t prompt, const std::string& piece, bool is_last) {
          if (until_first == 0) until_first = since();
          shown.Add(prompt, piece, is_last);
        });
    shown.Finish(tokens, since(), until_first);
  }

 private:
  const std::vector<std::string> prompts_;
};

/// Takes the prompts out of the arguments unparsed, because a text may contain commas or look like
/// a number.
std::vector<std::string> GroupPrompts(Arguments& arguments) {
  constexpr std::string_view kPrompt = "--prompt";
  std::vector<std::string> prompts;
  Arguments rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument.starts_with(Str(kPrompt, "="))) {
      prompts.emplace_back(argument.substr(kPrompt.size() + 1));
    } else if (argument == kPrompt && i + 1 < arguments.size()) {
      prompts.push_back(arguments[++i]);
    } else {
      rest.push_back(arguments[i]);
    }
  }
  arguments = std::move(rest);
  return prompts;
}

/// Adds the prompts of a file, one per line.
void ReadPrompts(const std::string& path, std::vector<std::string>& prompts) {
  constexpr int64_t kMost = int64_t{1} << 26;
  for (std::string& prompt : PromptsIn(ReadSmallFile(path, kMost))) {
    prompts.push_back(std::move(prompt));
  }
}

int Run(const Command& command, const Arguments& given) {
  Arguments arguments = given;
  std::vector<std::string> prompts = GroupPrompts(arguments);
  const Value own = ParseScriptArguments(command, arguments).flags.own();
  if (own["prompts"].is_string()) ReadPrompts(own["prompts"].as_string(), prompts);
  if (prompts.empty()) throw ConfigError("strata generate: give --prompt=TEXT or --prompts=FILE");
  return RunInference(command, arguments, [&](const Placement& placement) {
    return std::make_unique<GenerateJob>(command, arguments, placement, prompts);
  });
}

}  // namespace

Command GenerateCommand() {
  Command command = {
      .name = "generate",
      .usage = "SCRIPT --weights=FILE --prompt=TEXT [--flags]",
      .summary = "lets a language model go on with a text",
      .details =
          "Runs the model on the job's grid. Several prompts are micro-batches, which fill the\n"
          "pipe; with --eval.batch=N up to N prompts of equal length are one. A text ends at the\n"
          "tokenizer's end token, or at the length of the job's input. The text goes to standard\n"
          "output, what else there is to say to standard error.",
      .flags = {Field::String("prompt", "what a text begins with; may come again").Optional(),
                Field::String("prompts", "a file with a prompt a line").Optional()},
      .takes_job = true,
      .run = &Run};
  for (const Field& field : TextFields()) command.flags.push_back(field);
  for (const Field& field : InferenceFlags()) command.flags.push_back(field);
  return command;
}

}  // namespace strata::launcher
