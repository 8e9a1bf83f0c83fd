// SavedPlan: a plan's decisions as a file: cuts, degrees, schedule, batch, and the layers that the
// cuts belong to. The reader checks everything, because the file may come from anywhere.
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

/// A saved plan. Its schedule is "" if it comes from a file or a function; then the job must supply
/// it.
struct SavedPlan : Decisions {
  struct Layer {
    std::string path;
    std::string type;
    int64_t parameters = 0;  ///< including frozen ones
    bool operator==(const Layer&) const = default;
  };

  std::string name;           ///< of the job
  std::vector<Layer> layers;  ///< layers that are cut inside are listed as parts (parts.h)

  bool operator==(const SavedPlan&) const = default;
};

SavedPlan SavedPlanOf(const Job& job, const Plan& plan);

/// The stage of a layer. REQUIRES: 0 <= layer < number of layers.
int StageOf(const SavedPlan& plan, int layer);

/// Conversion to JSON text and back. Parsing throws ConfigError for text that is not a saved plan,
/// missing or unknown fields, numbers out of range, cuts that do not fit the layers, and control
/// characters in names.
std::string ToText(const SavedPlan& plan);
SavedPlan ParseSavedPlan(std::string_view text);
/// True if the text is a saved plan, so that its file may be overwritten by another one.
bool IsSavedPlan(std::string_view text);

/// The keys of its decisions; cuts are written as a script writes them.
Value KeysOf(const SavedPlan& plan);

/// Throws ConfigError that names the first layer in which the job differs from the plan.
void CheckFits(const SavedPlan& plan, const Job& job);

/// Text for the user: cuts, stages with their layers and parameters, degrees, schedule, batch.
std::string SavedPlanText(const SavedPlan& plan);

/// The differences between two plans of one list of layers: layers that moved, cuts, degrees,
/// schedule, batch; "the plans are equal" if there are none.
std::string DifferenceText(const SavedPlan& a, const SavedPlan& b);
/// {moved = [{layer, path, from, to}], changed = {key = {from, to}}}.
Value DifferenceValue(const SavedPlan& a, const SavedPlan& b);

}  // namespace strata
