// The loop of steps.
#include "engine/runtime/interface/trainer.h"

#include <cmath>

#include "engine/base/error.h"

namespace strata {

int64_t TotalSteps(const Job& job, const Engine& engine) {
  if (job.steps > 0) return job.steps;
  const int64_t per_epoch = engine.steps_per_epoch();
  if (per_epoch == 0) throw ConfigError("epochs: this data has no end; give steps instead");
  return std::max<int64_t>(1, std::llround(std::ceil(job.epochs * static_cast<double>(per_epoch))));
}

bool Train(const Job& job, Engine& engine, TrainObserver& observer) {
  const int64_t steps = TotalSteps(job, engine);
  // Whether the training ends here.
  const auto evaluate = [&](int64_t done) {
    if (job.test_data.kind.empty()) return false;
    observer.OnEvalStart();
    const EvalResult result = engine.EvaluateTestData();
    observer.OnEval(done, result, done == steps || result.stop);
    if (result.is_best) observer.OnSave(engine.SaveBest());
    return result.stop;
  };
  const auto save = [&] {
    if (!job.save.dir.empty()) observer.OnSave(engine.Save());
  };
  observer.OnStart(steps, engine.start());
  int64_t done = engine.start().step;
  if (done > 0 && done < steps && engine.start().owes_evaluation && evaluate(done)) return true;
  while (done < steps) {
    const StepResult result = engine.TrainStep();
    if (!result.is_taken) {
      if (result.nonfinite->has_finite_weights && done > engine.start().step) save();
      result.CheckTaken();
    }
    ++done;
    if (result.nonfinite && !result.nonfinite->report.empty()) {
      observer.OnNonFinite(result.nonfinite->report);
    }
    observer.OnStep(result);
    if (result.save) observer.OnSave(*result.save);
    if (done == steps || result.stop) save();
    if (result.stop) return false;
    const bool is_due = job.eval.every > 0 && done % job.eval.every == 0;
    if (done < steps && is_due && evaluate(done)) {
      save();
      return true;
    }
  }
  evaluate(steps);
  return true;
}

}  // namespace strata
