#include "engine/plan/plan_seconds.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/machine/cores.h"
#include "engine/base/text.h"
#include "engine/cost/calibration.h"
#include "engine/plan/cut/cut.h"
#include "engine/plan/plan_costs.h"
#include "engine/plan/uncut_plan.h"

namespace strata {
namespace {

using partition::GoesBy;

/// True if a choice uses costs when they can be had.
bool WantsCosts(const Job& job, const PlanOptions& options) {
  return options.wants_rates || partition::MethodGoesBy(job.partition) == GoesBy::kGuess ||
         job.schedule.name == "auto" || job.stages_per_rank == 0;
}

/// True if the layers themselves must be measured, all of them.
bool MustMeasure(const Job& job, const PlanOptions& options) {
  return partition::MethodGoesBy(job.partition) == GoesBy::kTime || options.wants_seconds;
}

/// True if the job cannot be planned without costs.
bool NeedsCosts(const Job& job, const Plan& plan, const PlanOptions& options) {
  const GoesBy by = partition::MethodGoesBy(job.partition);
  return MustMeasure(job, options) || by == GoesBy::kMemory || plan.memory > 0 ||
         !job.costs.empty();
}

/// Sets the measured seconds of whole layers, scaled to the share of each rank on the model axis.
/// That needs the costs of the whole layers; if `costs` are not those, they are made, for which
/// layers written in Lua run once more.
void SetMeasured(const MeasureTask& task, const Profile& profile, Script* script,
                 ModelCosts& costs) {
  if (task.model == 1) return SetSeconds(costs, profile, costs, task.device);
  SetSeconds(costs, profile, CostsOf(*task.job, task.input, task.outputs, 1, script), task.device);
}

bool WantsStatedRates() {
  const char* rates = std::getenv("STRATA_RATES");
  if (rates == nullptr || *rates == '\0') return false;
  if (std::string_view(rates) == "stated") return true;
  throw ConfigError(
      Str("STRATA_RATES in the environment: expected stated, or nothing, got ", rates));
}

/// The seconds that a job waits in its first run for the measurement of its own layers, and at
/// least for that of probes after it.
constexpr double kMostSeconds = 2.4, kLeastOfProbes = 2.6;

/// True if measuring a few passes of each distinct layer fits into kMostSeconds and kMostBytes,
/// estimated from the stated rates. Each copy holds all layers at once.
bool FitsMeasuringBudget(const MeasureTask& task, const ModelCosts& costs) {
  constexpr int kPasses = 3;
  constexpr int64_t kMostBytes = int64_t{2} << 30;
  std::set<std::string> keys;
  double seconds = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < costs.layers.size(); ++i) {
    if (!keys.insert(LayerKey(task, i)).second) continue;
    const LayerCost& cost = costs.layers[i];
    seconds += cost.forward.seconds + cost.input_grad.seconds + cost.weight_grad.seconds;
    bytes += cost.weight_bytes + cost.gradient_bytes + cost.input_bytes + cost.output_bytes;
  }
  return kPasses * seconds <= kMostSeconds && task.copies * bytes <= kMostBytes;
}

bool IsWhole(const Profile& profile) { return !profile.layers.empty() && profile.is_whole; }

/// What may be measured now, if the seconds are not known yet.
enum class MayMeasure {
  kNothing,
  kAWhile,  ///< what fits the budget
  kAll,     ///< the layers, however long it takes
};

/// The measured seconds of the job's own layers: those that are known already, else measured now.
/// Has no layers if there are none.
Profile OwnSeconds(MeasureTask task, const Measure& measure, MayMeasure may,
                   const ModelCosts& costs) {
  task.only_known = true;
  Profile known = measure(task);
  if (IsWhole(known) || may == MayMeasure::kNothing) return known;
  task.only_known = false;
  if (may == MayMeasure::kAll) return measure(task);
  if (!FitsMeasuringBudget(task, costs)) return known;
  task.most_seconds = kMostSeconds;
  try {
    return measure(task);
  } catch (const Error&) {
    return known;  // layers that fail on random numbers may work in the training
  }
}

/// Sets what is measured on this machine: what the job's own layers took, and for layers without
/// it what the machine's probes tell. Returns false if the probes are not known and may not be
/// measured.
bool ApplyMeasured(const MeasureTask& task, const Measure& measure, MayMeasure may, Script* script,
                   ModelCosts& costs) {
  const auto begin = std::chrono::steady_clock::now();
  const Profile own = OwnSeconds(task, measure, may, costs);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  if (!IsWhole(own)) {
    const Calibration calibration(task);
    MeasureTask probes = calibration.task();
    probes.only_known = may == MayMeasure::kNothing;
    probes.most_seconds = std::max(kLeastOfProbes, probes.most_seconds - waited.count());
    const Profile machine = measure(probes);
    if (probes.only_known && !IsWhole(machine)) return false;
    calibration.SetSeconds(machine, task.job->layers, costs);
  }
  if (!own.layers.empty()) SetMeasured(task, own, script, costs);
  return true;
}

/// Sets the seconds by which a choice is made. If the machine cannot be measured they are the
/// stated rates, since that may cost speed but must not stop the training.
void GuessSeconds(const MeasureTask& task, const Measure& measure, Script* script,
                  ModelCosts& costs, std::vector<std::string>& notices) {
  SetSeconds(costs, NominalDevice(task.device));
  const ModelCosts stated = costs;
  try {
    ApplyMeasured(task, measure, MayMeasure::kAWhile, script, costs);
  } catch (const Error& error) {
    costs = stated;
    notices.push_back(
        Str("the plan goes by stated rates, for nothing could be measured here: ", error.what()));
  }
}

/// Decides where the seconds of a job come from.
SecondsFrom SourceOf(const Job& job, const Plan& plan, const PlanOptions& options) {
  if (!job.costs.empty()) return SecondsFrom::kFile;
  if (MustMeasure(job, options)) {
    if (options.measure) return SecondsFrom::kMeasured;
    throw ConfigError(Str("partition = \"", job.partition.method, "\" needs measured costs, and ",
                          "several machines must agree on them: write them on one with `strata ",
                          "plan SCRIPT --write_costs=FILE`, and give all of them costs = FILE"));
  }
  const bool chooses = WantsCosts(job, options);
  if (!chooses && NeedsCosts(job, plan, options))
    return SecondsFrom::kNowhere;  // only bytes matter
  if (options.measure && !WantsStatedRates()) return SecondsFrom::kMeasured;
  return chooses ? SecondsFrom::kStated : SecondsFrom::kNowhere;
}

/// Sets the seconds from the source. Returns false if they are measured ones that nothing needs,
/// and nothing is known.
bool ApplySeconds(const Job& job, const PlanOptions& options, SecondsFrom source,
                  const MeasureTask& task, Script* script, ModelCosts& costs, Plan& plan) {
  switch (source) {
    case SecondsFrom::kNowhere:
      return NeedsCosts(job, plan, options);
    case SecondsFrom::kStated:
      SetSeconds(costs, NominalDevice(task.device));
      return true;
    case SecondsFrom::kFile:
      SetMeasured(task, ReadProfile(job.costs, task), script, costs);
      return true;
    case SecondsFrom::kMeasured:
      break;
  }
  if (MustMeasure(job, options)) {
    ApplyMeasured(task, options.measure, MayMeasure::kAll, script, costs);
  } else if (WantsCosts(job, options)) {
    GuessSeconds(task, options.measure, script, costs, plan.notices);
  } else {
    try {
      return ApplyMeasured(task, options.measure, MayMeasure::kNothing, script, costs);
    } catch (const Error&) {
      return false;  // the job can run without a prediction
    }
  }
  return true;
}

/// The costs without seconds. Returns nothing if they are not required and a layer written in Lua
/// fails on zeros.
std::optional<ModelCosts> CostsWithoutSeconds(const Job& job, const MicroBatchShapes& shapes,
                                              bool must_be, Script* script, const Plan& plan,
                                              std::vector<std::string>& notices) {
  try {
    return CostsOf(job, shapes.input, shapes.outputs, plan.topology.Size("model"), script,
                   HostOf(job, plan));
  } catch (const ConfigError& error) {
    if (must_be) throw;
    notices.push_back(Str("what the layers take is not known: ", error.what()));
    return std::nullopt;
  }
}

/// Adds a notice if ranks share cores, since predictions assume that each rank has cores of its
/// own.
void NoteSharedCores(const MeasureTask& task, int ranks, std::vector<std::string>& notices) {
  if (task.device != "cpu" || ranks <= task.copies) return;
  const int times = (ranks + task.copies - 1) / task.copies;
  notices.push_back(Str(ranks, " ranks share ", Plural(MachineCores(), "core"),
                        " here: a step takes up to ", times, " times what is predicted"));
}

}  // namespace

void ApplyOwnRuns(const Job& job, const PlanOptions& options, Script* script, Plan& plan) {
  if (!plan.costs || plan.costs->ran.empty()) return;
  MeasureTask task = TaskOf(job, plan);
  task.only_known = true;
  const Profile own = options.measure(task);
  if (!IsWhole(own)) return;
  ModelCosts costs = *plan.costs;
  SetMeasured(task, own, script, costs);
  plan.costs = std::make_shared<const ModelCosts>(std::move(costs));
}

void SetPlanCosts(const Job& job, const PlanOptions& options, const MicroBatchShapes& shapes,
                  Script* script, Plan& plan) {
  const bool must_be = NeedsCosts(job, plan, options);
  const bool wants = must_be || WantsCosts(job, options);
  if (!wants && !options.wants_known) return;
  if (shapes.input.empty()) {
    if (!must_be) return;
    throw ConfigError(
        "time and memory cannot be predicted without the input's shape: the job needs input = "
        "{shape=...}, or data that tells it");
  }
  std::vector<std::string> notices;
  std::optional<ModelCosts> costs =
      CostsWithoutSeconds(job, shapes, must_be, script, plan, notices);
  if (wants) plan.notices.insert(plan.notices.end(), notices.begin(), notices.end());
  if (!costs) return;
  const MeasureTask task = TaskOf(job, plan, shapes.input, shapes.outputs);
  if (!ApplySeconds(job, options, SourceOf(job, plan, options), task, script, *costs, plan)) return;
  if (costs->seconds_from == SecondsFrom::kMeasured) {
    NoteSharedCores(task, plan.topology.world_size(), plan.notices);
  }
  plan.costs = std::make_shared<const ModelCosts>(*std::move(costs));
}

}  // namespace strata
