// Shows a training on a terminal, message by message.
#include "launcher/report/train_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/median.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/forecast/summary.h"
#include "engine/runtime/records.h"
#include "engine/runtime/texts.h"
#include "launcher/terminal/progress_bar.h"

namespace strata::launcher {
namespace {

constexpr const char* kSave = "save";
constexpr const char* kEvalStart = "eval start";
constexpr const char* kSamplesStart = "samples start";
constexpr const char* kText = "text";

constexpr int kBarColumns = 24;
constexpr std::chrono::milliseconds kProgressInterval(50);

/// A loss with four decimals; a very small or large one with four significant digits.
std::string FormatLoss(double loss) {
  const double size = std::abs(loss);
  return Printf(size >= 1e-3 && size < 1e6 ? "%.4f" : "%.4g", loss);
}

std::string FormatRate(double per_second) {
  return per_second < 100 ? Printf("%.1f", per_second)
                          : FormatCount(static_cast<int64_t>(std::llround(per_second)));
}

/// "12.5%"
std::string FormatShare(double share) { return Printf("%.1f%%", 100 * share); }

/// "  bce 0.1234  dice 0.5678"
std::string FormatParts(const Value* parts) {
  std::string text;
  if (!parts) return text;
  for (const auto& [name, mean] : parts->as_map()) {
    text += Str("  ", name, " ", FormatLoss(NumberOf(mean)));
  }
  return text;
}

}  // namespace

std::string FormatTest(const Value& record) {
  std::string text = "test loss " + FormatLoss(NumberOf(record["test_loss"])) +
                     FormatParts(record.Find("test_parts"));
  if (record.Has("accuracy")) {
    text += Printf("  accuracy %.3f", NumberOf(record["accuracy"]));
  }
  if (const Value* metrics = record.Find("metrics")) {
    for (const auto& [name, value] : metrics->as_map()) {
      const bool is_shown = value.is_list() || (name == "accuracy" && record.Has(name));
      if (!is_shown) text += Str("  ", name, " ", FormatLoss(NumberOf(value)));
    }
  }
  if (record.Has("best")) text += "  best";
  return text;
}

Value JobMessage(bool goes_on) {
  return Value::MakeMap({{"type", kJobMessage}, {"goes_on", goes_on}});
}

Value HeaderMessage(const std::string& text, int ranks, const JobFacts& facts) {
  return Value::MakeMap({{"type", kHeaderMessage},
                         {"text", text},
                         {"ranks", ranks},
                         {"log", facts.log},
                         {"goes_on", facts.goes_on},
                         {"save_dir", facts.save_dir},
                         {"folder", facts.folder},
                         {"takes_weights", facts.takes_weights},
                         {"tokens_per_sample", facts.tokens_per_sample},
                         {"sample_flops", facts.sample_flops},
                         {"peak_flops", facts.peak_flops},
                         {"run", facts.run}});
}

Value StartMessage(int64_t steps, const StartReport& start) {
  return Value::MakeMap({{"type", kStartMessage},
                         {"steps", steps},
                         {"done", start.step},
                         {"from", start.from},
                         {"owes_evaluation", start.owes_evaluation},
                         {"owes_samples", start.owes_samples},
                         {"notes", Value::List(start.notes.begin(), start.notes.end())}});
}

GoesOn PlaceOf(const Value& start_message) {
  return {.done = start_message["done"].as_int(),
          .owes_evaluation = start_message["owes_evaluation"].as_bool(),
          .owes_samples = start_message["owes_samples"].as_bool()};
}

Value SaveMessage(const SaveReport& report) {
  return Value::MakeMap({{"type", kSave},
                         {"step", report.step},
                         {"path", report.path},
                         {"error", report.error},
                         {"bytes", report.bytes},
                         {"seconds", report.seconds},
                         {"is_best", report.is_best}});
}

Value StepMessage(const Value& record) {
  return Value::MakeMap({{"type", kStepMessage}, {"record", record}});
}

Value EvalStartMessage() { return Value::MakeMap({{"type", kEvalStart}}); }

Value EvalMessage(const Value& record, bool is_last) {
  return Value::MakeMap({{"type", kEvalMessage}, {"record", record}, {"is_last", is_last}});
}

Value SamplesStartMessage() { return Value::MakeMap({{"type", kSamplesStart}}); }

Value SamplesMessage(const Value& record, const std::string& note) {
  return Value::MakeMap({{"type", kSamplesMessage}, {"record", record}, {"note", note}});
}

Value HistogramsMessage(const Value& record) {
  return Value::MakeMap({{"type", kHistogramsMessage}, {"record", record}});
}

Value TextMessage(const std::string& text) {
  return Value::MakeMap({{"type", kText}, {"text", text}});
}

Value ProgressMessage(const std::string& line) {
  return Value::MakeMap({{"type", kProgressMessage}, {"line", line}});
}

int64_t LinesEvery(int64_t steps) {
  for (int64_t power = 1;; power *= 10) {
    for (int64_t digit : {1, 2, 5}) {
      if (steps / (digit * power) <= 50) return digit * power;
    }
  }
}

void TrainReport::OnMessage(int rank, const Value& message) {
  const std::string& type = message["type"].as_string();
  if (type == kHeaderMessage) OnHeader(message);
  if (type == kStartMessage) OnStart(message);
  if (type == kSave) OnSave(message);
  if (type == kStepMessage) OnStep(message["record"]);
  if (type == kEvalStart) terminal_.Status("evaluating");
  if (type == kEvalMessage) OnEval(message["record"], message["is_last"].as_bool());
  if (type == kSamplesStart) terminal_.Status("writing samples");
  if (type == kSamplesMessage) OnSamples(message["record"], message["note"].as_string());
  if (type == kHistogramsMessage) Log(message["record"]);
  if (type == kText) terminal_.Line(message["text"].as_string());
  if (type == kProgressMessage) OnProgress(rank, message["line"].as_string());
}

void TrainReport::OnOutput(int rank, bool is_error, std::string_view line) {
  terminal_.Line(Str(PrefixOf(rank), line), is_error);
}

/// Shows the line unless a lower rank was heard shortly before: ranks do the same work at the same
/// time, and one of them is enough.
void TrainReport::OnProgress(int rank, const std::string& line) {
  constexpr double kHeardSeconds = 1.5 * ProgressLine::kEverySeconds;
  const double now = now_();
  if (rank > heard_rank_ && now - heard_at_ < kHeardSeconds) return;
  heard_rank_ = rank;
  heard_at_ = now;
  terminal_.Line(Str("strata: ", rank > 0 ? PrefixOf(rank) : "", line));
}

/// The prefix of a rank's output: "[host1:3] " or "rank 3: ". Lines of the starter and of a single
/// rank have none.
std::string TrainReport::PrefixOf(int rank) const {
  if (rank == kStarter || ranks_ == 1) return "";
  if (hosts_.empty()) return Str("rank ", rank, ": ");
  return Str("[", hosts_[static_cast<size_t>(rank)], ":", rank, "] ");
}

void TrainReport::OnHeader(const Value& message) {
  ranks_ = static_cast<int>(message["ranks"].as_int());
  terminal_.Line(message["text"].as_string());
  terminal_.Status("starting");
  tokens_per_sample_ = NumberOf(message["tokens_per_sample"]);
  sample_flops_ = NumberOf(message["sample_flops"]);
  peak_flops_ = NumberOf(message["peak_flops"]);
  if (!std::exchange(has_begun_, true)) saves_.Begin(message["save_dir"].as_string());
  folder_ = message["folder"].as_string();
  takes_weights_ |= message["takes_weights"].as_bool();
  run_ = message["run"];
  log_.reset();
  const std::string& log = message["log"].as_string();
  // The old content stays until the ranks have found no error, so that a refused training does not
  // empty it.
  if (!log.empty()) log_.emplace("the log", log, /*goes_on=*/true);
  goes_on_ = message["goes_on"].as_bool();
}

void TrainReport::OnStart(const Value& message) {
  steps_ = message["steps"].as_int();
  done_ = first_ = message["done"].as_int();
  seconds_ = line_seconds_ = line_data_seconds_ = line_idle_seconds_ = 0;
  line_samples_ = line_peak_memory_ = 0;
  step_seconds_.clear();
  const GoesOn place = PlaceOf(message);
  int64_t kept = -1;  // the log's last step that does not come again
  const auto comes_again = [&](std::string_view line) {
    const Value record = Value::FromJson(line);
    if (ComesAgain(record, place)) return true;
    if (!record.Has("run")) kept = record["step"].as_int();
    return false;
  };
  if (log_) goes_on_ ? log_->CutFrom(comes_again) : log_->Clear();
  LogRun();
  has_started_ = true;
  const std::string& from = message["from"].as_string();
  if (!from.empty()) {
    terminal_.Line(first_ > 0 ? Str("goes on after step ", first_, " of ", from)
                              : Str("begins with the weights of ", from));
  }
  for (const Value& note : message["notes"].as_list()) terminal_.Line(note.as_string());
  if (kept < 0 || kept >= first_ - 1) return;
  // The previous launcher was killed before it received the records of these steps.
  terminal_.Line(kept == first_ - 2 ? Str("the log lacks step ", kept + 1)
                                    : Str("the log lacks steps ", kept + 1, " to ", first_ - 1));
}

void TrainReport::OnSave(const Value& message) {
  const std::string step = Str("step ", message["step"].as_int());
  const std::string& error = message["error"].as_string();
  if (!error.empty()) {
    return terminal_.ErrorLine(Str("strata: ",
                                   message["is_best"].as_bool()
                                       ? Str("the best save of ", step, " failed")
                                       : Str(step, " was not saved"),
                                   ", the training goes on: ", error));
  }
  saves_.Add(message["path"].as_string());
  terminal_.Line(Str("saved ", step, " to ", message["path"].as_string(), ", ",
                     FormatBytes(message["bytes"].as_double()), " in ",
                     FormatSeconds(NumberOf(message["seconds"]))));
}

void TrainReport::OnStep(const Value& record) {
  done_ = record["step"].as_int() + 1;
  furthest_ = std::max(furthest_, done_);
  seconds_ += NumberOf(record["seconds"]);
  line_seconds_ += NumberOf(record["seconds"]);
  line_data_seconds_ += NumberOf(record["data_seconds"]);
  if (record.Has("bubble_measured")) {
    line_idle_seconds_ += NumberOf(record["bubble_measured"]) * NumberOf(record["seconds"]);
  }
  line_samples_ += record["samples"].as_int();
  line_peak_memory_ = std::max(line_peak_memory_, record["peak_memory"].as_int());
  Log(record);
  const int64_t every = print_every_ > 0 ? print_every_ : LinesEvery(steps_);
  if (done_ == first_ + 1 || done_ == steps_ || done_ % every == 0) PrintStep(record);
  if (const Value* losses = record.Find("micro_batch_losses")) PrintMicroBatchLosses(*losses);
  if (const Value* stragglers = record.Find("stragglers")) PrintStragglers(*stragglers);
  ShowProgress(record);
  step_seconds_.push_back(NumberOf(record["seconds"]));
  if (done_ == steps_ && step_seconds_.size() > 1) PrintMedian();
}

/// Prints the median time of a step, which users compare with the predicted one.
void TrainReport::PrintMedian() {
  terminal_.Line(Str("median step ", FormatSeconds(Median(step_seconds_))));
}

void TrainReport::OnEval(const Value& record, bool is_last) {
  Log(record);
  terminal_.ClearStatus();
  if (!is_last) return terminal_.Line(Str(StepOfAll(done_), "  ", FormatTest(record)));
  terminal_.Line(FormatTest(record));
  const Value* metrics = record.Find("metrics");
  if (metrics && metrics->Has("confusion")) PrintConfusion((*metrics)["confusion"]);
}

/// Shows each text with its lines aligned below each other, so that it stands out.
void TrainReport::OnSamples(const Value& record, const std::string& note) {
  Log(record);
  terminal_.ClearStatus();
  if (!note.empty() && !has_noted_) {
    terminal_.Line(Str("note: ", note, ": the whole text runs for every token of a sample"));
  }
  has_noted_ |= !note.empty();
  for (const Value& text : record["texts"].as_list()) {
    const std::string head = Str(StepOfAll(done_), "  sample  ");
    const std::vector<std::string> lines = Split(Printable(text.as_string()), '\n');
    terminal_.Line(Str(head, Join(lines, "\n" + std::string(head.size(), ' '))));
  }
}

/// Prints a row for each true class, with a column for each predicted class.
void TrainReport::PrintConfusion(const Value& rows) {
  constexpr size_t kMostClasses = 20;
  if (rows.as_list().size() > kMostClasses) return;  // the log has the full table
  terminal_.Line("confusion (rows: true classes)");
  for (const Value& row : rows.as_list()) {
    std::string line;
    for (const Value& count : row.as_list()) {
      const std::string text = std::to_string(count.as_int());
      line += std::string(text.size() < 7 ? 7 - text.size() : 1, ' ') + text;
    }
    terminal_.Line(line);
  }
}

/// The speed since the last line, such as "2,926 samples/s".
std::string TrainReport::SpeedText() const {
  const auto per_second = [this](double x) { return line_seconds_ > 0 ? x / line_seconds_ : 0.0; };
  const bool has_tokens = tokens_per_sample_ > 0;
  const double samples = static_cast<double>(line_samples_);
  return Str(FormatRate(per_second(samples * (has_tokens ? tokens_per_sample_ : 1))),
             has_tokens ? " tokens/s" : " samples/s");
}

std::vector<TrainReport::Item> TrainReport::ItemsOf(const Value& record) const {
  const auto share = [this](double seconds) {
    return FormatShare(line_seconds_ > 0 ? seconds / line_seconds_ : 0.0);
  };
  std::vector<Item> items = {
      {9, StepOfAll(done_)},
      {9, "loss " + FormatLoss(NumberOf(record["loss"])) + FormatParts(record.Find("parts"))},
      {7, "grad norm " + FormatLoss(NumberOf(record["grad_norm"]))},
      {6, "lr " + Printf("%.3g", NumberOf(record["lr"]))},
      {8, SpeedText()},
  };
  const double flops =
      line_seconds_ > 0 ? sample_flops_ * static_cast<double>(line_samples_) / line_seconds_ : 0;
  if (flops > 0) {
    const std::string of_peak =
        peak_flops_ > 0 ? Printf(" (%.0f%% of peak)", 100 * flops / peak_flops_) : "";
    items.push_back({3, Str(FormatFlops(flops), "/s", of_peak)});
  }
  items.push_back({4, "memory " + FormatBytes(static_cast<double>(line_peak_memory_))});
  const std::string predicted = FormatShare(NumberOf(record["bubble"]));
  items.push_back({5, record.Has("bubble_measured") ? Str("bubble ", share(line_idle_seconds_),
                                                          " (", predicted, " predicted)")
                                                    : "bubble " + predicted});
  items.push_back({2, "data " + share(line_data_seconds_)});
  if (record.Has("loss_scale")) {
    items.push_back({1, Str("scale ", NumberOf(record["loss_scale"]))});
  }
  if (record.Has("skipped")) items.push_back({7, Str("skipped ", record["skipped"].as_int())});
  // A terminal shows the remaining time in its progress bar instead.
  if (done_ < steps_ && !terminal_.interactive()) {
    items.push_back({8, FormatSeconds(SecondsLeft()) + " left"});
  }
  return items;
}

void TrainReport::PrintStep(const Value& record) {
  constexpr std::string_view kGap = "  ";
  std::vector<Item> items = ItemsOf(record);
  const auto width = [&] {
    size_t width = kGap.size() * (items.size() - 1);
    for (const Item& item : items) width += item.text.size();
    return static_cast<int>(width);
  };
  constexpr int kAlways = 9;
  while (terminal_.interactive() && width() > terminal_.width()) {
    const auto least = std::ranges::min_element(items, {}, &Item::weight);
    if (least->weight >= kAlways) break;
    items.erase(least);
  }
  std::string line;
  for (const Item& item : items) line += Str(line.empty() ? "" : kGap, item.text);
  terminal_.Line(line);
  line_seconds_ = line_data_seconds_ = line_idle_seconds_ = 0;
  line_samples_ = line_peak_memory_ = 0;
}

void TrainReport::PrintStragglers(const Value& stragglers) {
  for (const auto& [rank, factor] : stragglers.as_map()) {
    const auto index = static_cast<size_t>(std::stoi(rank));
    terminal_.Line(Str(StepOfAll(done_), "  rank ", rank,
                       index < hosts_.size() ? Str(" (", hosts_[index], ")") : "",
                       " is slow: ", Printf("%.1f", NumberOf(factor)),
                       " times what it would take at the others' pace"));
  }
}

void TrainReport::PrintMicroBatchLosses(const Value& losses) {
  std::vector<std::string> texts;
  for (const Value& loss : losses.as_list()) texts.push_back(FormatLoss(NumberOf(loss)));
  terminal_.Line(Str(StepOfAll(done_), "  micro-batches ", Join(texts, " ")));
}

void TrainReport::ShowProgress(const Value& record) {
  if (done_ == steps_) return terminal_.ClearStatus();
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_.interactive() || now - last_progress_ < kProgressInterval) return;
  last_progress_ = now;
  const double share = static_cast<double>(done_) / static_cast<double>(steps_);
  const std::string text =
      Str(Printf("%.0f%%", 100 * share), "  ", StepOfAll(done_), "  loss ",
          FormatLoss(NumberOf(record["loss"])), "  ", FormatSeconds(SecondsLeft()), " left");
  // The text takes precedence over the bar.
  const int columns = std::min(kBarColumns, terminal_.width() - 2 - static_cast<int>(text.size()));
  constexpr int kLeastColumns = 6;
  terminal_.Status(columns < kLeastColumns
                       ? text
                       : Str(ProgressBar(share, columns, terminal_.unicode()), " ", text));
}

double TrainReport::SecondsLeft() const {
  return seconds_ / static_cast<double>(done_ - first_) * static_cast<double>(steps_ - done_);
}

std::string TrainReport::StepOfAll(int64_t done) const {
  const std::string all = std::to_string(steps_), now = std::to_string(done);
  const size_t padding = all.size() > now.size() ? all.size() - now.size() : 0;
  return Str("step ", std::string(padding, ' '), now, "/", all);
}

/// Says in the log what trains from here on.
void TrainReport::LogRun() {
  Value run = run_;
  run.Set("began", began_).Set("steps", steps_);
  Log(Value::MakeMap({{"step", first_}, {"run", run}}));
}

void TrainReport::OnEnd(const std::string& how) {
  if (has_started_) Log(Value::MakeMap({{"step", done_}, {"end", how}}));
}

void TrainReport::Log(const Value& record) {
  Value versioned = record;
  if (log_) log_->Write(versioned.Set("version", kLogVersion).ToJson());
}

}  // namespace strata::launcher
