// EngineApi: the interface, free of torch, to the engine's shared library (LibTorch and all code
// that uses it). A process that only plans never loads the library, which costs 0.3 s and 120 MB.
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

/// There is one per process, and it is never unloaded. Its methods throw only strata's exceptions,
/// not LibTorch's.
class EngineApi {
 public:
  virtual ~EngineApi() = default;

  /// Fills strata.F and lets the state's functions take tensors. The state calls it when a script
  /// first uses a tensor; Open*() call it as well. A second call does nothing.
  virtual void InstallTensors(State& state) const = 0;

  /// Runs all ranks of the plan as threads of this process. `state` must outlive the engine. Each
  /// rank records its actions in its element of `flight`; if that is empty, in a ring of its own.
  virtual std::unique_ptr<Engine> OpenThreads(const Job& job, const Plan& plan, State& state,
                                              std::span<FlightRing> flight = {}) const = 0;

  /// Runs this process as one rank of several, over plan.transport. Collective. `state` must
  /// outlive the engine. `programs` holds those programs of the plan that were already proved; null
  /// if there are none.
  virtual std::unique_ptr<Engine> OpenRank(
      const Job& job, const Plan& plan, State& state, const RankPlace& place,
      std::shared_ptr<ProvedPrograms> programs = nullptr) const = 0;

  // The following serve the bindings of job:start{...}, which handle tensors without including
  // torch.

  /// Calls the function at `index` up to `count` times, until it returns nil. Each call returns an
  /// input and a target, each a tensor or a list of tensors. Throws ConfigError for anything else.
  virtual std::shared_ptr<MicroBatches> PullMicroBatches(lua_State* L, int index,
                                                         int64_t count) const = 0;
  /// Cuts the tensor at `index`, or the list of tensors with as many rows each, into micro-batches
  /// of `rows` rows (the last may have fewer), without targets. Throws ConfigError for anything
  /// else.
  virtual std::shared_ptr<MicroBatches> CutInputs(lua_State* L, int index, int64_t rows) const = 0;
  /// Concatenates the outputs of all micro-batches along the rows and pushes the result: one tensor
  /// or a list of them. Throws ConfigError if there are several micro-batches and an output does
  /// not have one row for each sample of its input.
  virtual void PushRows(lua_State* L, const MicroBatches& inputs, const Outputs& outputs) const = 0;
  virtual std::shared_ptr<Outputs> MakeOutputs() const = 0;
  /// Pushes a list with the output of each micro-batch, a tensor or a list of tensors.
  virtual void PushOutputs(lua_State* L, const Outputs& outputs) const = 0;

  /// Pushes a sample's input and target, each a tensor or a list of tensors, or nil.
  virtual int PushSample(lua_State* L, const PlainSample& sample) const = 0;

  /// Measures the layers of a job (engine/runtime/profiler.h) in this process. The caller may be
  /// within a call of `state`; other threads get their turns meanwhile. `progress` gets the
  /// finished share, from 0 to 1. `measured` gets each layer's seconds as soon as they are known,
  /// and the share of that time in which the measuring threads had the processor.
  virtual Profile MeasureLayers(
      const MeasureTask& task, const KnownSeconds& known, State& state,
      const std::function<void(double share)>& progress,
      const std::function<void(const KnownSeconds& layers, double processor_share)>& measured)
      const = 0;

  /// Measures the time of messages between all ranks (engine/runtime/measure_links.h); this process
  /// is one rank, on the machine `host`. Collective.
  virtual LinkTable MeasureLinks(const std::string& transport, const RankPlace& place,
                                 const std::string& host) const = 0;

  /// Gives the memory of tensors that no longer exist back to the system.
  virtual void ReleaseFreeMemory() const = 0;

  /// The software that the speed of layers depends on: LibTorch's version and the instruction set
  /// it uses.
  virtual std::string Version() const = 0;

  /// Facts about this machine's LibTorch, for `strata doctor`: a map with "libtorch", "blas",
  /// "mkldnn", "cpu_capability", "waiting" (how long threads poll), "cuda" (a boolean), "devices"
  /// (a list).
  virtual Value Doctor() const = 0;

  /// Ends the process at once with this exit code, after flushing the standard streams: LibTorch's
  /// destructors would take 0.2 s.
  [[noreturn]] virtual void Quit(int code) const = 0;
};

/// The engine; the first call, from any thread, loads it. The library is $STRATA_ENGINE, or
/// libstrata_engine.so beside the executable, or where Bazel builds both, or among the executable's
/// Bazel runfiles. It uses the LibTorch of $LIBTORCH if that is set. Throws WorldError with the
/// searched paths or the loader's message.
const EngineApi& LoadEngine();

/// The engine if it is loaded, otherwise null. Used when the process ends: EngineApi::Quit().
const EngineApi* LoadedEngine();

}  // namespace strata::lua
