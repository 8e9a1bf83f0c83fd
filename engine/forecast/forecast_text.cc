#include "engine/forecast/forecast_text.h"

#include <algorithm>

#include "engine/base/text.h"

namespace strata {
namespace {

/// Says on which ranks all gradients exist together at the highest, in spite of zero = 2. It may
/// still save what other moments need more, as in gpipe, whose activations shrink as gradients
/// come.
std::string UnsavedText(const std::vector<RankMemory>& ranks) {
  std::vector<std::string> unsaved;
  for (const RankMemory& rank : ranks) {
    int64_t whole = 0;
    for (const LateGradients& late : rank.late) whole += late.whole;
    if (whole > 0 && rank.gradients >= whole) unsaved.push_back(Str(rank.rank));
  }
  if (unsaved.empty()) return "";
  return Str("zero = 2 saves little or nothing over zero = 1 on ",
             unsaved.size() == 1 ? "rank " : "ranks ", Join(unsaved, ", "),
             ": each replica adds up its micro-batches before the replicas ",
             "are added, so that bits are those of zero = 0, and meanwhile all gradients exist; ",
             "one micro-batch a step avoids that, or schedule = \"looped_bfs\" with several ",
             "stages_per_rank\n");
}

}  // namespace

std::string ForecastText(const StepForecast& forecast) {
  const int slowest = forecast.slowest_stage();
  return Str("predicted: step ", FormatSeconds(forecast.step()), ", bubble ",
             FormatShare(forecast.simulation.bubble), ", slowest stage ", slowest, " (",
             FormatSeconds(forecast.StageSeconds(slowest)), " a micro-batch), balance ",
             FormatShare(forecast.balance()), ",\n           memory of the fullest rank ",
             ShowBytes(forecast.peak_memory()), ", on ", forecast.rates.name);
}

Value ForecastValue(const StepForecast& forecast) {
  Value::List stages;
  for (int s = 0; s < static_cast<int>(forecast.stages.size()); ++s) {
    stages.emplace_back(forecast.StageSeconds(s));
  }
  const std::vector<double>& busy = forecast.simulation.busy;
  return Value::MakeMap({{"step", forecast.step()},
                         {"bubble", forecast.simulation.bubble},
                         {"slowest_stage", forecast.slowest_stage()},
                         {"balance", forecast.balance()},
                         {"stages", stages},
                         {"busy", Value::List(busy.begin(), busy.end())},
                         {"memory", forecast.peak_memory()},
                         {"rates", forecast.rates.name}});
}

std::string MemoryText(const std::vector<RankMemory>& ranks) {
  const bool has_texts =
      std::ranges::any_of(ranks, [](const auto& rank) { return rank.texts > 0; });
  std::vector<std::string> head = {"rank",        "weights", "gradients", "optimizer",
                                   "activations", "buffers", "all"};
  if (has_texts) head.insert(head.end() - 1, "or texts");
  const bool has_check = !ranks.empty() && ranks.front().check > 0;
  if (has_check) head.insert(head.end() - 1, "or check");
  TextTable table(head);
  for (const RankMemory& rank : ranks) {
    std::vector<std::string> row = {Str(rank.rank),
                                    ShowBytes(rank.weights),
                                    ShowBytes(rank.gradients),
                                    ShowBytes(rank.optimizer),
                                    ShowBytes(rank.activations),
                                    ShowBytes(rank.buffers),
                                    ShowBytes(rank.total())};
    if (has_texts) row.insert(row.end() - 1, ShowBytes(rank.texts));
    if (has_check) row.insert(row.end() - 1, ShowBytes(rank.check));
    table.Add(row);
  }
  return Str(table.Render(), "tensors of each rank of the pipe axis at the highest; ",
             "LibTorch itself is not in it\n", UnsavedText(ranks));
}

Value MemoryValue(const std::vector<RankMemory>& ranks) {
  Value::List rows;
  for (const RankMemory& rank : ranks) {
    Value row = Value::MakeMap({{"rank", rank.rank},
                                {"weights", rank.weights},
                                {"gradients", rank.gradients},
                                {"optimizer", rank.optimizer},
                                {"activations", rank.activations},
                                {"buffers", rank.buffers}});
    if (rank.texts > 0) row.Set("texts", rank.texts);
    if (rank.check > 0) row.Set("check", rank.check);
    rows.push_back(row.Set("total", rank.total()));
  }
  return rows;
}

std::string ShowBytes(int64_t bytes) {
  return bytes == 0 ? "0" : FormatBytes(static_cast<double>(bytes));
}

std::string FormatShare(double share) { return Printf("%.1f%%", 100 * share); }

}  // namespace strata
