// Trainings of small models for tests, on the shadow devices or the CPU.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/runtime/testing_job.h"
#include "tests/shadow/fake_nccl.h"
#include "tests/shadow/machine.h"

namespace strata::shadow {

/// What trains: a model by name and how its ranks work together.
struct Case {
  const char* model =
      "dense";  ///< "dense", "large", "images", "tokens", "tied", "skips", "llama", "residuals"
  const char* schedule = "1f1b";
  int pipe = 1, data = 1, model_axis = 1;
  Value::Map more = {};                ///< keys of the job
  std::vector<LayerSpec> layers = {};  ///< in the place of the model's, if there are any

  std::string Name() const;
  int ranks() const { return pipe * data * model_axis; }
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.Name(); }

/// What a training gives.
struct Outcome {
  // The bits must not depend on where it runs.
  std::vector<double> losses;        ///< of steps and micro-batches, then of an evaluation
  std::vector<std::string> digests;  ///< of the parameters
  std::vector<double> norms;         ///< of gradients; on an accelerator they are summed otherwise
  /// On the shadow devices, of two steps after the first one, by what the ranks were at.
  std::map<std::string, Counts> counts;
};

/// Trains over the fake NCCL, or one made of it. Returns what the ranks threw, by rank. `wrap`:
/// makes another transport of each rank's.
using Wrap = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;
std::vector<std::string> TrainOver(FakeNccl& nccl, const Case& c, const std::string& device,
                                   Outcome& outcome, const Wrap& wrap = nullptr);

/// The id of a scripted layer that returns the second of its two inputs.
inline constexpr int kSecondOfTwo = 2;

std::vector<LayerSpec> LayersOf(const std::string& model);
Job JobOf(const Case& c);
testing::FakeScript ScriptOf();
/// The plan for `device`: "shadow" is a device of plans only, which no job can have.
Plan PlanOn(const std::string& device, const Job& job, EngineScript& script);

/// Trains three steps and evaluates. "threads": all ranks by one engine, over memory; "nccl": each
/// rank with its own engine, over the fake NCCL, of which nothing may be misused.
Outcome Train(const Case& c, const std::string& device, const std::string& transport = "threads");

}  // namespace strata::shadow
