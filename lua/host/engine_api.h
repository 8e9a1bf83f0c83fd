// EngineApi: the engine's shared library (LibTorch and everything on it), behind a torch-free
// facade. Whoever only plans never loads it: it costs 0.3 s and 120 MB.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/base/value.h"
#include "engine/comm/place.h"
#include "engine/cost/profile.h"
#include "engine/data/data_script.h"
#include "engine/forecast/proved_programs.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/watch/flight.h"
#include "lua/core/state.h"

namespace strata::lua {

/// One per process, never unloaded. No exception of LibTorch's leaves it, only strata's.
class EngineApi {
 public:
  virtual ~EngineApi() = default;

  /// Fills strata.F and lets the state's functions meet tensors. Done by the state itself when a
  /// script first touches a tensor, and by Open*(); a second time does nothing.
  virtual void InstallTensors(State& state) const = 0;

  /// All ranks of the plan as threads of this process. `state` must outlive the engine. `flight`:
  /// where each rank notes what it does; empty: for itself alone.
  virtual std::unique_ptr<Engine> OpenThreads(const Job& job, const Plan& plan, State& state,
                                              std::span<FlightRing> flight = {}) const = 0;

  /// This process as one rank of several, over plan.transport. Collective. `state` must outlive
  /// the engine. `programs`: the plan's, as far as they were proved before; null: none.
  virtual std::unique_ptr<Engine> OpenRank(
      const Job& job, const Plan& plan, State& state, const RankPlace& place,
      std::shared_ptr<ProvedPrograms> programs = nullptr) const = 0;

  // For the bindings of job:start{...}, which meet tensors but include no torch.

  /// Calls the function at `index` up to `count` times for (input, target), until it gives nil;
  /// each a tensor or a list of tensors. Throws ConfigError for anything else.
  virtual std::shared_ptr<MicroBatches> PullMicroBatches(lua_State* L, int index,
                                                         int64_t count) const = 0;
  /// Cuts the tensor at `index`, or the list of tensors with as many rows each, into micro-batches
  /// of `rows` rows (the last may have fewer), without targets. Throws ConfigError for anything
  /// else.
  virtual std::shared_ptr<MicroBatches> CutInputs(lua_State* L, int index, int64_t rows) const = 0;
  /// Pushes the outputs of all micro-batches behind each other: one tensor, or a list of them.
  /// Throws ConfigError where several have not a row for each sample of their inputs.
  virtual void PushRows(lua_State* L, const MicroBatches& inputs, const Outputs& outputs) const = 0;
  virtual std::shared_ptr<Outputs> MakeOutputs() const = 0;
  /// Pushes a list with the output of each micro-batch, a tensor or a list of tensors.
  virtual void PushOutputs(lua_State* L, const Outputs& outputs) const = 0;

  /// Pushes a sample's input and target, each a tensor or a list of tensors, or nil.
  virtual int PushSample(lua_State* L, const PlainSample& sample) const = 0;

  /// Measures the layers of a job (engine/runtime/profiler.h) in this process. The caller may be
  /// within a call of `state`; others get their turns meanwhile. `progress` is told a share from 0
  /// to 1, `measured` each layer's seconds as soon as they are known, and in which share of the
  /// time those that measured had the processor.
  virtual Profile MeasureLayers(
      const MeasureTask& task, const KnownSeconds& known, State& state,
      const std::function<void(double share)>& progress,
      const std::function<void(const KnownSeconds& layers, double processor_share)>& measured)
      const = 0;

  /// What messages take between all ranks (engine/runtime/measure_links.h), of which this
  /// process is one, on the machine `host`. Collective.
  virtual LinkTable MeasureLinks(const std::string& transport, const RankPlace& place,
                                 const std::string& host) const = 0;

  /// What the speed of layers depends on: LibTorch's version and the instructions that it uses.
  virtual std::string Version() const = 0;

  /// What this machine's LibTorch offers, for `strata doctor`: a map with "libtorch", "blas",
  /// "mkldnn", "cpu_capability", "waiting" (how long threads poll), "cuda" (a boolean), "devices"
  /// (a list).
  virtual Value Doctor() const = 0;

  /// Ends the process at once with this exit code, after flushing the standard streams: LibTorch's
  /// destructors would take 0.2 s.
  [[noreturn]] virtual void Quit(int code) const = 0;
};

/// The engine, loaded by the first call (from any thread): $STRATA_ENGINE, or libstrata_engine.so
/// beside the executable, where Bazel builds both, or among the executable's Bazel runfiles; with
/// the LibTorch of $LIBTORCH, where that is set. Throws WorldError that says where it was looked
/// for and what the loader said.
const EngineApi& LoadEngine();

/// The engine where it is loaded already, else null. For leaving: EngineApi::Quit().
const EngineApi* LoadedEngine();

}  // namespace strata::lua
