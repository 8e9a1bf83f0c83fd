// The loop of steps.
#include "launcher/job/trainer.h"

#include <cmath>

#include "engine/base/error.h"

namespace strata::launcher {

int64_t TotalSteps(const Job& job, const Engine& engine) {
  if (job.steps > 0) return job.steps;
  const int64_t per_epoch = engine.steps_per_epoch();
  if (per_epoch == 0) throw ConfigError("epochs: this data has no end; give steps instead");
  return std::max<int64_t>(1, std::llround(std::ceil(job.epochs * static_cast<double>(per_epoch))));
}

bool Train(const Job& job, Engine& engine, TrainObserver& observer) {
  const int64_t steps = TotalSteps(job, engine);
  const auto evaluate = [&](int64_t done) {
    if (job.test_data.kind.empty()) return;
    observer.OnEvalStart();
    observer.OnEval(done, engine.EvaluateTestData(), done == steps);
  };
  const auto save = [&] {
    if (!job.save.dir.empty()) observer.OnSave(engine.Save());
  };
  observer.OnStart(steps, engine.start());
  for (int64_t done = engine.start().step; done < steps;) {
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
    if (done < steps && job.eval.every > 0 && done % job.eval.every == 0) evaluate(done);
  }
  evaluate(steps);
  return true;
}

}  // namespace strata::launcher
