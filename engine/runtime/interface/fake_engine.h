// FakeEngine: an engine for tests that does no work and records its calls.
#pragma once

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/runtime/interface/engine.h"

namespace strata {

class FakeEngine : public Engine {
 public:
  StepResult TrainStep(MicroBatches*) override {
    calls.push_back(Str("step ", steps));
    if (steps == fail_at) throw WorldError("disk full");
    StepResult result;
    result.step = steps++;
    result.loss = 1.0 / static_cast<double>(steps);
    result.samples = 8;
    result.seconds = 0.5;
    result.stop = steps == stop_at;
    if (steps - 1 == untaken_at) {
      --steps;
      result.is_taken = false;
      result.nonfinite = NonFinite{"step 3 was not taken: nan", has_finite_weights};
    }
    if (result.is_taken && steps - 1 == noted_at) result.nonfinite = NonFinite{"nan", true};
    if (steps == save_at) result.save = SaveReport{.step = steps, .path = "runs/a"};
    return result;
  }
  EvalResult EvalBatch(MicroBatches&, Outputs*) override { return {}; }
  EvalResult EvaluateTestData() override {
    calls.push_back("eval");
    EvalResult result = {.loss = 0.25, .samples = 100, .metric = 0.975, .has_metric = true};
    result.is_best = steps == best_at;
    result.stop = steps == leave_at;
    if (steps == worse_at) result.why_stopped = "stopped: worse";
    return result;
  }
  void PredictBatch(MicroBatches&, Outputs&) override {}
  std::optional<Predicted> PredictTestData(int64_t part) override {
    calls.push_back(Str("predict ", part));
    return std::nullopt;
  }
  TextReport BeginTexts(const TextRequest& request) override {
    calls.push_back("texts");
    texts_left = static_cast<int64_t>(request.prompts.size());
    return {.note = text_note};
  }
  /// One for each text, '!'.
  std::vector<NewToken> NextTokens() override {
    if (texts_left == 0) return {};
    return {{--texts_left, '!', true}};
  }
  int64_t steps_per_epoch() const override { return per_epoch; }
  const StartReport& start() const override { return start_report; }
  SaveReport Save() override {
    calls.push_back(Str("save ", steps));
    return {.step = steps, .path = "runs/a"};
  }
  SaveReport SaveBest() override {
    calls.push_back(Str("save best ", steps));
    return {.step = steps, .path = "runs/a/best"};
  }
  RecutReport Recut(const std::vector<int>& cuts) override { return {.step = steps, .cuts = cuts}; }
  void RequestStop() override { calls.push_back("stop"); }
  void RequestSave() override { calls.push_back("save soon"); }
  void set_record_gradients(bool record) override { record_gradients = record; }
  std::vector<TensorDigest> Parameters() override { return parameters; }
  void ReadTensor(const std::string&, Kind, Outputs&) override {}
  void Abort(const std::string& why) override { calls.push_back("abort " + why); }
  std::string Position() const override { return "rank 0 (stage 0): 1F3"; }
  void Close() override { calls.push_back("close"); }

  int64_t steps = 0;
  int64_t per_epoch = 0;
  int64_t fail_at = -1;
  int64_t stop_at = -1;
  int64_t save_at = -1;
  int64_t untaken_at = -1;  ///< the step that is not finite, and ends the training
  int64_t noted_at = -1;    ///< the step that is not finite, and counts
  int64_t best_at = -1;     ///< the evaluation that is the best
  int64_t leave_at = -1;    ///< the evaluation that is left, as somebody asked to stop
  int64_t worse_at = -1;    ///< the evaluation after which the training stops
  int64_t texts_left = 0;
  std::string text_note;
  bool has_finite_weights = true;
  StartReport start_report;
  bool record_gradients = false;
  std::vector<TensorDigest> parameters;
  std::vector<std::string> calls;
};

}  // namespace strata
