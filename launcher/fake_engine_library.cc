// An engine library without LibTorch, for tests of the commands. It is used with
// $STRATA_ENGINE=launcher/libfake_engine.so, and its numbers are invented. $FAKE_ENGINE lists
// failures to simulate: "fail=1:2" (rank 1 throws in step 2), "crash=0:1" (rank 0 aborts in step
// 1), "differ=2:1" (with 2 ranks the loss of step 1 is different) and "measure=0:0" (measuring
// layers never ends). Loading the library writes to the file $FAKE_ENGINE_TOUCHES.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/host/engine_api.h"

namespace strata::launcher {
namespace {

/// True when $FAKE_ENGINE has `verb` for this rank and step.
bool Asked(const std::string& verb, int rank, int64_t step) {
  const char* words = std::getenv("FAKE_ENGINE");
  for (const std::string& word : Split(words ? words : "", ' ')) {
    if (word == Str(verb, "=", rank, ":", step)) return true;
  }
  return false;
}

class FakeEngine : public Engine {
 public:
  FakeEngine(const Job& job, const Plan& plan, int rank)
      : job_(job), ranks_(plan.topology.world_size()), rank_(rank) {}

  StepResult TrainStep(MicroBatches*) override {
    Compute();
    if (Asked("fail", rank_, step_)) throw WorldError("the fake engine fails");
    if (Asked("crash", rank_, step_)) std::abort();
    StepResult result;
    result.step = step_++;
    result.loss = 1.0 / static_cast<double>(step_);
    if (Asked("differ", ranks_, result.step)) result.loss += 1;
    result.grad_norm = 1;
    result.samples = job_.batch.size;
    result.seconds = 0.001;
    result.peak_memory = 1 << 20;
    result.stop = stop_;
    if (job_.losses) result.micro_batch_losses.assign(job_.batch.micro_batches, result.loss);
    if (record_gradients_) result.gradients = {{"1.weight", Str("gradient ", step_), 1}};
    return result;
  }
  EvalResult EvalBatch(MicroBatches&, Outputs*) override { return {}; }
  EvalResult EvaluateTestData() override {
    return {.loss = 0.25, .samples = 64, .metric = 0.975, .has_metric = true};
  }
  void PredictBatch(MicroBatches&, Outputs&) override {}
  std::optional<Predicted> PredictTestData(int64_t) override { return std::nullopt; }
  TextReport BeginTexts(const TextRequest&) override { return {}; }
  std::vector<NewToken> NextTokens() override { return {}; }
  int64_t steps_per_epoch() const override { return 8; }
  const StartReport& start() const override { return start_; }
  SaveReport Save() override { return {.step = step_, .path = job_.save.dir}; }
  SaveReport FinishSave() override { return Save(); }
  std::optional<SaveReport> WaitForSave() override { return std::nullopt; }
  SaveReport SaveBest() override { return Save(); }
  RecutReport Recut(const std::vector<int>& cuts) override { return {.step = step_, .cuts = cuts}; }
  void RequestStop() override { stop_ = true; }
  void RequestSave() override {}
  void set_record_gradients(bool record) override { record_gradients_ = record; }
  std::vector<TensorDigest> Parameters() override { return {{"1.weight", "parameter", 1}}; }
  void ReadTensor(const std::string&, Kind, Outputs&) override {}
  void Abort(const std::string& why) override {
    std::lock_guard lock(mutex_);
    why_ = why;
    woken_.notify_all();
  }
  std::string Position() const override { return Str("rank ", rank_, " (stage ", rank_, "): 0F0"); }
  void NoteStacks() override {}
  std::string CommReport() override { return ""; }
  schedule::Trace TakeTrace() override { return {}; }
  void Close() override {}

 private:
  /// Waits for a millisecond, or until Abort().
  void Compute() {
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, std::chrono::milliseconds(1), [&] { return !why_.empty(); });
    if (!why_.empty()) throw WorldError(why_);
  }

  Job job_;
  int ranks_;
  int rank_;
  int64_t step_ = 0;
  bool record_gradients_ = false;
  StartReport start_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::string why_;
};

class FakeApi : public lua::EngineApi {
 public:
  void InstallTensors(lua::State&) const override {}
  std::unique_ptr<Engine> OpenThreads(const Job& job, const Plan& plan, lua::State&,
                                      std::span<FlightRing>) const override {
    return std::make_unique<FakeEngine>(job, plan, 0);
  }
  std::unique_ptr<Engine> OpenRank(const Job& job, const Plan& plan, lua::State&,
                                   const RankPlace& place,
                                   std::shared_ptr<ProvedPrograms>) const override {
    return std::make_unique<FakeEngine>(job, plan, place.rank);
  }
  std::shared_ptr<MicroBatches> CutInputs(lua_State*, int, int64_t) const override {
    return nullptr;
  }
  void PushRows(lua_State*, const MicroBatches&, const Outputs&) const override {}
  std::shared_ptr<MicroBatches> PullMicroBatches(lua_State*, int, int64_t) const override {
    return nullptr;
  }
  std::shared_ptr<Outputs> MakeOutputs() const override { return nullptr; }
  void PushOutputs(lua_State*, const Outputs&) const override {}
  int PushSample(lua_State*, const PlainSample&) const override { return 0; }
  Profile MeasureLayers(const MeasureTask& task, const KnownSeconds&, lua::State&,
                        const std::function<void(double share)>&,
                        const std::function<void(const KnownSeconds&, double)>&) const override {
    if (Asked("measure", 0, 0)) {
      std::puts("measuring");
      std::fflush(stdout);
      for (;;) ::pause();
    }
    Profile profile;
    profile.layers.assign(task.job->layers.size(), {.forward = 1, .input_grad = 1});
    return profile;
  }

  /// Each pair of ranks gets a different bandwidth.
  LinkTable MeasureLinks(const std::string& transport, const RankPlace& place,
                         const std::string& host) const override {
    if (Asked("fail", place.rank, 0)) throw WorldError("the fake engine fails");
    std::vector<LinkRates> pairs;
    const auto ranks = static_cast<size_t>(place.world_size);
    for (size_t i = 0; i < ranks * (ranks - 1) / 2; ++i) {
      pairs.push_back({.latency = 2e-5, .bandwidth = 1e9 * static_cast<double>(i + 1)});
    }
    return {transport, std::vector<std::string>(ranks, host), std::move(pairs)};
  }

  void ReleaseFreeMemory() const override {}
  std::string Version() const override { return "fake"; }

  Value Doctor() const override {
    return Value::MakeMap(
        {{"libtorch", "fake"}, {"blas", "none"}, {"cpu_capability", "none"}, {"cuda", false}});
  }
  [[noreturn]] void Quit(int code) const override {
    std::fflush(nullptr);
    std::_Exit(code);
  }
};

}  // namespace
}  // namespace strata::launcher

extern "C" const strata::lua::EngineApi* strata_engine_api() {
  if (const char* path = std::getenv("FAKE_ENGINE_TOUCHES")) std::ofstream(path) << "touched";
  static const strata::launcher::FakeApi api;
  return &api;
}
