// Profiler: measures how long the layers of a job take on this machine, without ranks. Each
// distinct layer is built once and runs its forward, input gradient and weight gradient repeatedly.
// Layers take turns with their neighbours in the job, so that the caches are as cold as in a
// training step.
#pragma once

#include <functional>

#include "engine/cost/profile.h"
#include "engine/runtime/engine_script.h"

namespace strata {

/// Receives the progress, from 0 to 1, in the calling thread.
using ProfileProgress = std::function<void(double share)>;

/// Receives, in the calling thread, the times of some layers while others still wait, and the share
/// of that time (0 to 1) in which the measuring threads had the processor. A share below 1 means
/// that other programs were running: they also displaced caches and used the memory, which the
/// measured times include.
using LayersMeasured = std::function<void(const KnownSeconds& measured, double processor_share)>;

/// Measures layers and returns medians of several repetitions after a warm-up. A few distinct
/// layers are measured at a time; task.copies threads measure side by side, as the ranks of a
/// machine run side by side. `known`: times of layers (by LayerKey()) that need no measuring. May
/// be called from any thread, and does not change its number of threads. If task.most_seconds is
/// set, a round of layers is left out, and its times are 0, once the previous rounds predict that
/// the time will not suffice; the first round is always measured. Throws ConfigError as the layers
/// do, and WorldError if memory runs out.
Profile MeasureLayers(const MeasureTask& task, const KnownSeconds& known, EngineScript& script,
                      const ProfileProgress& progress, const LayersMeasured& measured);

}  // namespace strata
