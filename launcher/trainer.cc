#include "launcher/trainer.h"

#include <cmath>

#include "engine/base/error.h"

namespace strata::launcher {

int64_t TotalSteps(const Job& job, const Engine& engine) {
  if (job.steps > 0) return job.steps;
  const int64_t per_epoch = engine.steps_per_epoch();
  if (per_epoch == 0) throw ConfigError("epochs: this data has no end; give steps instead");
  return std::max<int64_t>(1, std::llround(std::ceil(job.epochs * static_cast<double>(per_epoch))));
}

void Train(const Job& job, Engine& engine, TrainObserver& observer) {
  const int64_t steps = TotalSteps(job, engine);
  const bool has_test_data = !job.test_data.kind.empty();
  observer.OnStart(steps);
  for (int64_t done = 1; done <= steps; ++done) {
    observer.OnStep(engine.TrainStep());
    const bool is_last = done == steps;
    const bool is_due = job.eval.every > 0 && done % job.eval.every == 0;
    if (!has_test_data || !(is_last || is_due)) continue;
    observer.OnEvalStart();
    observer.OnEval(done, engine.EvaluateTestData(), is_last);
  }
}

}  // namespace strata::launcher
