// ThreadsEngine: all ranks of a plan as threads of this process, behind the interface of one.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/given_batches.h"
#include "engine/runtime/interface/engine.h"
#include "engine/runtime/interface/engine_script.h"
#include "engine/runtime/rank_engine.h"

namespace strata {

/// What the caller and the rank threads share; see threads_engine.cc.
class Crew;

/// Calls go to all ranks; the results are rank 0's.
class ThreadsEngine : public Engine {
 public:
  ThreadsEngine(const Job& job, const Plan& plan, EngineScript& script,
                std::span<FlightRing> flight);
  ~ThreadsEngine() override;

  StepResult TrainStep(MicroBatches* batch) override;
  EvalResult EvalBatch(MicroBatches& batch, Outputs* outputs) override;
  EvalResult EvaluateTestData() override;
  void PredictBatch(MicroBatches& batch, Outputs& outputs) override;
  std::optional<Predicted> PredictTestData(int64_t part) override;
  TextReport BeginTexts(const TextRequest& request) override;
  std::vector<NewToken> NextTokens() override;
  int64_t steps_per_epoch() const override { return steps_per_epoch_; }
  const StartReport& start() const override { return start_; }
  SaveReport Save() override;
  SaveReport SaveBest() override;
  RecutReport Recut(const std::vector<int>& cuts) override;
  void RequestStop() override;
  void RequestSave() override;
  void set_record_gradients(bool record) override;
  std::vector<TensorDigest> Parameters() override;
  void ReadTensor(const std::string& path, Kind kind, Outputs& outputs) override;
  void Abort(const std::string& why) override;
  std::string Position() const override;
  void NoteStacks() override;
  std::string CommReport() override;
  schedule::Trace TakeTrace() override;
  void Close() override;

 private:
  GivenBatches given_;
  std::shared_ptr<Crew> crew_;
  std::unique_ptr<Watchdog> watchdog_;
  int64_t steps_per_epoch_ = 0;
  StartReport start_;
};

}  // namespace strata
