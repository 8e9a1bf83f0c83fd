// file: embedding.cc
// Trains a script's job within a program of our own: all ranks are threads of it.
#include <cstdio>
#include <memory>

#include "engine/base/error.h"
#include "engine/search/plan_job.h"
#include "lua/core/state.h"
#include "lua/host/engine_api.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    strata::lua::State state;
    strata::Flags flags({"--device=cpu", "--transport=threads", "--threads=1"}, {});
    const strata::Job job = state.LoadJob(argv[1], flags);
    const strata::Plan plan = strata::PlanJob(job, {}, &state.script());
    const strata::lua::EngineApi& api = strata::lua::LoadEngine();  // LibTorch, from here on
    const std::unique_ptr<strata::Engine> engine = api.OpenThreads(job, plan, state);
    for (int i = 0; i < 3; ++i) {
      const strata::StepResult step = engine->TrainStep();
      std::printf("step %d: loss %.4f\n", static_cast<int>(step.step), step.loss);
    }
    std::printf("test loss %.4f\n", engine->EvaluateTestData().loss);
    engine->Close();
    api.Quit(0);  // its destructors take long
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
