// SavedPlan: what a plan decides, as a file: cuts, degrees, schedule, batch, and the layers that
// they were made for. Reading trusts nothing in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/forecast/decisions.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"

namespace strata {

/// Its schedule is "" for one of a file or function, which the job itself has to have.
struct SavedPlan : Decisions {
  struct Layer {
    std::string path;
    std::string type;
    int64_t parameters = 0;  ///< frozen ones too
    bool operator==(const Layer&) const = default;
  };

  std::string name;           ///< of the job
  std::vector<Layer> layers;  ///< those that are cut inside in parts (parts.h)

  bool operator==(const SavedPlan&) const = default;
};

SavedPlan SavedPlanOf(const Job& job, const Plan& plan);

/// The stage of a layer. REQUIRES: there is such a layer.
int StageOf(const SavedPlan& plan, int layer);

/// JSON text, and back. Reading throws ConfigError with what is wrong: text that is no saved plan,
/// fields that are missing or unknown, numbers out of range, cuts that are none of these layers,
/// control characters in names.
std::string ToText(const SavedPlan& plan);
SavedPlan ParseSavedPlan(std::string_view text);
/// Whether a file with this text may be replaced by a saved plan.
bool IsSavedPlan(std::string_view text);

/// As of its decisions; cuts as they are written.
Value KeysOf(const SavedPlan& plan);

/// Throws ConfigError naming the first layer in which the job differs.
void CheckFits(const SavedPlan& plan, const Job& job);

/// For people: cuts, stages with their layers and parameters, degrees, schedule, batch.
std::string SavedPlanText(const SavedPlan& plan);

/// What two plans of one list of layers decide differently: layers that moved, cuts, degrees,
/// schedule, batch. "the plans are equal" where nothing does.
std::string DifferenceText(const SavedPlan& a, const SavedPlan& b);
/// {moved = [{layer, path, from, to}], changed = {key = {from, to}}}.
Value DifferenceValue(const SavedPlan& a, const SavedPlan& b);

}  // namespace strata
