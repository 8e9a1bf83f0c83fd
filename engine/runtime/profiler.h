// Profiler: measures what the layers of a job take on this machine, without ranks: each distinct
// layer is built once, and runs forward, input gradient and weight gradient again and again, in
// turn with its neighbours of the job, so that caches are as cold as in a step.
#pragma once

#include <functional>

#include "engine/cost/profile.h"
#include "engine/runtime/engine_script.h"

namespace strata {

/// Told how much is done, from 0 to 1, from the calling thread.
using ProfileProgress = std::function<void(double share)>;

/// Told what was measured of some layers, while others wait, from the calling thread; and in which
/// share of that time, from 0 to 1, those that measured had the processor. Below 1 other programs
/// had it too, which no clock takes out of caches and memory.
using LayersMeasured = std::function<void(const KnownSeconds& measured, double processor_share)>;

/// Medians of some repetitions after a warm-up, of a few distinct layers at a time. task.copies
/// threads measure side by side, as the ranks of a machine run side by side. `known`: keys that
/// need no measuring (LayerKey()). May be called from any thread; leaves the calling thread's
/// number of threads alone. With task.most_seconds a round of layers is left out, with 0 seconds,
/// where those before it tell that time will not suffice; the first is measured anyway. Throws
/// ConfigError as the layers do, and WorldError where memory runs out.
Profile MeasureLayers(const MeasureTask& task, const KnownSeconds& known, EngineScript& script,
                      const ProfileProgress& progress, const LayersMeasured& measured);

}  // namespace strata
