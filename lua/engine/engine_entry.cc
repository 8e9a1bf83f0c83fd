// The implementation of EngineApi, and the entry function of libstrata_engine.so.

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/ops/cat.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/tensors/copy_on_write.h"
#include "engine/base/tensors/threads.h"
#include "engine/base/text.h"
#include "engine/comm/cuda/use_device.h"
#include "engine/comm/transports/make_transport.h"
#include "engine/layers/cuda/launch.h"
#include "engine/layers/documents.h"
#include "engine/layers/kept_tokens.h"
#include "engine/layers/random/random.h"
#include "engine/layers/training_scope.h"
#include "engine/runtime/engine_tensors.h"
#include "engine/runtime/make_engine.h"
#include "engine/runtime/measure_links.h"
#include "engine/runtime/profiler.h"
#include "engine/runtime/watch/stack.h"
#include "lua/core/binding.h"
#include "lua/core/calls.h"
#include "lua/core/core.h"
#include "lua/engine/comm.h"
#include "lua/engine/tensor_script.h"
#include "lua/host/engine_api.h"
#include "lua/tensors/plain_tensors.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

TensorScript& ScriptOf(State& state) { return static_cast<TensorScript&>(*state.core().tensors); }

/// The decisions of a plan that depend on more than the job, such as a file of costs or a function.
Value DecisionsOf(const Plan& plan) {
  std::vector<int64_t> segments;
  for (const LayerPlan& layer : plan.layers) segments.push_back(layer.segment);
  std::vector<double> seconds;
  if (plan.costs && plan.costs->is_measured()) {
    for (const LayerCost& layer : plan.costs->layers) seconds.push_back(layer.forward.seconds);
  }
  const std::vector<int> ranks = plan.stage_ranks();
  Value value;
  value.Set("cuts", Value::IntList({plan.bounds.begin(), plan.bounds.end()}));
  value.Set("ranks", Value::IntList({ranks.begin(), ranks.end()})).Set("schedule", plan.schedule);
  return value.Set("recomputed", Value::IntList(segments))
      .Set("costs", Value::List(seconds.begin(), seconds.end()));
}

/// Checks that all ranks train the same job. A script may read files that differ between machines,
/// so its plan and program may differ as well. If a rank has another job, every rank throws the
/// same error, so that none waits for ranks that have left.
void CompareJobs(const Job& job, const Plan& plan, ProvedPrograms* programs, Transport& transport) {
  const std::string mine = job.ToValue()
                               .Set("plan", DecisionsOf(plan))
                               .Set("program", programs ? programs->TrainingDigest() : "")
                               .ToJson();
  const std::string theirs = transport.Broadcast(mine, 0);
  const bool differs = theirs != mine;
  if (transport.AllReduceSum({differs ? 1. : 0.})[0] == 0) return;
  // Both sides are compared as JSON, in which functions are told apart by their digests.
  const std::vector<std::string> differences = transport.Gather(
      differs ? FirstDifference(Value::FromJson(mine), Value::FromJson(theirs)) : "");
  for (size_t rank = 0; rank < differences.size(); ++rank) {
    if (differences[rank].empty()) continue;
    throw ConfigError(
        Str("the script gives rank ", rank, " another job than rank 0: ", differences[rank]));
  }
}

/// Increase this after a change to our layers that makes seconds measured by earlier versions
/// wrong.
constexpr int kKernels = 4;

/// Seeds the default generator, so that numbers drawn outside of layers, losses and data are the
/// same in each run and on every rank: those that follow torch.manual_seed(0).
void SeedScripts() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(0);
}

/// Adds the fact "kernels": DescribeKernels() of the first GPU, or the error that it throws.
void SetKernels(Value& facts) {
  try {
    facts.Set("kernels", DescribeKernels(0));
  } catch (const Error& error) {
    facts.Set("kernels_trouble", error.what());
  }
}

class Api : public EngineApi {
 public:
  Api() {
    InstallAllocator();
    RandomScope(0);  // registers its kernels before there are threads
  }

  /// Loads CUDA if there are GPUs, since the script may train on a GPU later.
  void InstallTensors(State& state) const override {
    if (state.core().tensors) return;  // reading samples calls this too
    LoadCudaBesideGpus();
    Install(state);
  }

  static void Install(State& state) {
    if (state.core().tensors) return;
    SeedScripts();
    Session session(state);
    session.Run([](lua_State* L) {
      OpenTensors(L);
      OpenComm(L);
    });
    state.core().is_training = IsTraining;
    SetScriptStack(ScriptCalls, CallsHere);
    state.core().token_position = [] {
      if (!CurrentDocuments()) return TokenPosition();
      throw ConfigError(
          "strata.position() is one place for all rows, but packed rows have several documents: "
          "strata.positions(x) gives the place of each token");
    };
    state.core().tensors = std::make_shared<TensorScript>(state);
  }

  std::unique_ptr<Engine> OpenThreads(const Job& job, const Plan& plan, State& state,
                                      std::span<FlightRing> flight) const override {
    InstallTensors(state);
    UseDevice(plan.device, 0);
    return MakeThreadsEngine(job, plan, ScriptOf(state), flight);
  }

  std::unique_ptr<Engine> OpenRank(const Job& job, const Plan& plan, State& state,
                                   const RankPlace& place,
                                   std::shared_ptr<ProvedPrograms> programs) const override {
    Install(state);
    UseDevice(plan.device, place.local_rank);
    auto transport =
        MakeTransport(plan.transport, place, LinksOf(plan), GroupsOf(plan), job.timeout);
    CompareJobs(job, plan, programs.get(), *transport);
    return MakeRankEngine(job, plan, ScriptOf(state), std::move(transport), place,
                          std::move(programs));
  }

  std::shared_ptr<MicroBatches> PullMicroBatches(lua_State* L, int index,
                                                 int64_t count) const override {
    CheckFunction(L, index, "a function that gives input and target");
    auto batches = std::make_shared<MicroBatches>();
    for (int64_t i = 0; i < count; ++i) {
      const int top = lua_gettop(L);
      lua_pushvalue(L, index);
      CallNested(L, 0, 2);
      if (lua_isnil(L, top + 1)) {
        lua_settop(L, top);
        break;
      }
      MicroBatch& batch = batches->list.emplace_back();
      // The iterator may write to these tensors for the next micro-batch.
      batch.input =
          CopyOnWrite(TensorsArgument(L, top + 1, "the input, a tensor or a list of tensors"));
      batch.target =
          CopyOnWrite(TensorsArgument(L, top + 2, "the target, a tensor or a list of tensors"));
      lua_settop(L, top);
    }
    if (batches->list.empty()) throw ConfigError("the iterator gave no micro-batch");
    return batches;
  }

  std::shared_ptr<MicroBatches> CutInputs(lua_State* L, int index, int64_t rows) const override {
    const Tensors inputs = TensorsArgument(L, index, "the samples, a tensor or a list of tensors");
    const int64_t samples = inputs[0].dim() == 0 ? 0 : inputs[0].size(0);
    for (const at::Tensor& input : inputs) {
      if (samples > 0 && input.dim() > 0 && input.size(0) == samples) continue;
      throw ConfigError(
          Str("expected samples along dim 0, as many in each tensor, got ", DescribeTensor(input)));
    }
    auto batches = std::make_shared<MicroBatches>();
    for (int64_t first = 0; first < samples; first += rows) {
      MicroBatch& batch = batches->list.emplace_back();
      for (const at::Tensor& input : inputs) {
        batch.input.push_back(input.narrow(0, first, std::min(rows, samples - first)));
      }
    }
    return batches;
  }

  void PushRows(lua_State* L, const MicroBatches& inputs, const Outputs& outputs) const override {
    Tensors rows;
    for (size_t k = 0; k < outputs.list.front().size(); ++k) {
      Tensors parts;
      for (size_t i = 0; i < outputs.list.size(); ++i) {
        const at::Tensor& part = parts.emplace_back(outputs.list[i].at(k));
        const int64_t samples = inputs.list[i].input[0].size(0);
        if (outputs.list.size() == 1 || (part.dim() > 0 && part.size(0) == samples)) continue;
        throw ConfigError(
            Str("predict joins micro-batches by a row for each sample; the last layer ",
                "gives a tensor ", DescribeTensor(part), " for ", Plural(samples, "sample"),
                ": a function behind it may put the ",
                "samples first, and eval.batch says how many are one micro-batch"));
      }
      rows.push_back(outputs.list.size() == 1 ? parts[0].clone() : at::cat(parts));
    }
    PushTensors(L, rows);
  }

  std::shared_ptr<Outputs> MakeOutputs() const override { return std::make_shared<Outputs>(); }

  void PushOutputs(lua_State* L, const Outputs& outputs) const override {
    lua_createtable(L, static_cast<int>(outputs.list.size()), 0);
    for (size_t i = 0; i < outputs.list.size(); ++i) {
      PushTensors(L, outputs.list[i]);
      lua_rawseti(L, -2, static_cast<int>(i) + 1);
    }
  }

  int PushSample(lua_State* L, const PlainSample& sample) const override {
    InstallTensors(State::Of(L));
    PushHalf(L, sample.input);
    PushHalf(L, sample.target);
    return 2;
  }

  Profile MeasureLayers(const MeasureTask& task, const KnownSeconds& known, State& state,
                        const ProfileProgress& progress,
                        const LayersMeasured& measured) const override {
    InstallTensors(state);
    return strata::MeasureLayers(task, known, ScriptOf(state), progress, measured);
  }

  LinkTable MeasureLinks(const std::string& transport, const RankPlace& place,
                         const std::string& host) const override {
    constexpr double kSeconds = 1, kMostWait = 60;
    SetThreads(1);  // a forked process lacks its parent's pool of threads
    const at::Device device = UseDevice(transport == "nccl" ? "cuda" : "cpu", place.local_rank);
    const auto links =
        MakeTransport(transport, place, LinksBetweenAll(place.world_size), {}, kMostWait);
    LinkTable table = strata::MeasureLinks(*links, host, device, kSeconds);
    links->Barrier();  // no rank leaves while another still receives
    return table;
  }

  void ReleaseFreeMemory() const override { strata::ReleaseFreeMemory(); }

  std::string Version() const override {
    return Str("LibTorch ", TORCH_VERSION, " ", at::get_cpu_capability(), " kernels ", kKernels);
  }

  Value Doctor() const override {
    Value facts;
    facts.Set("libtorch", TORCH_VERSION);
    facts.Set("blas", at::hasMKL() ? "MKL" : "OpenBLAS or none");
    facts.Set("mkldnn", at::hasMKLDNN());
    facts.Set("cpu_capability", at::get_cpu_capability());
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {  // the second one has priority
      if (const char* chosen = std::getenv(name)) facts.Set("waiting", Str(name, "=", chosen));
    }
    Value::List devices;
    std::string trouble;
    if (GpuCount() > 0) {
      try {
        const int count = DeviceCount("cuda");
        for (int i = 0; i < count; ++i) devices.push_back(Str("cuda:", i));
        if (count > 0) SetKernels(facts);
      } catch (const Error& error) {
        trouble = error.what();
      }
    }
    facts.Set("cuda", !devices.empty());
    facts.Set("devices", devices);
    if (!trouble.empty()) facts.Set("cuda_trouble", trouble);
    return facts;
  }

  [[noreturn]] void Quit(int code) const override {
    std::fflush(nullptr);
    _exit(code);
  }
};

}  // namespace

extern "C" const EngineApi* strata_engine_api() {
  static const Api api;
  return &api;
}

}  // namespace strata::lua
