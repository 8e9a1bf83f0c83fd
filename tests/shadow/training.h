// Trainings on the shadow devices for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/testing_job.h"
#include "tests/shadow/device.h"
#include "tests/shadow/machine.h"

namespace strata::shadow {

/// The plan of a job on the CPU, for `device`: "shadow" is no device of a job's, only of a plan's.
inline Plan PlanOn(const std::string& device, const Job& job, EngineScript& script) {
  Device(0);  // registers them
  Plan plan = PlanJob(job, {}, &script);
  plan.device = device;
  return plan;
}

/// What a training gives whose bits must not depend on where it runs.
struct Bits {
  std::vector<double> numbers;
  std::vector<std::string> digests;
  bool operator==(const Bits&) const = default;

  void Add(const std::vector<TensorDigest>& tensors) {
    for (const TensorDigest& tensor : tensors) digests.push_back(tensor.path + tensor.digest);
  }
};

inline Bits Train(Engine& engine, int steps) {
  Bits bits;
  for (int step = 0; step < steps; ++step) {
    const StepResult result = engine.TrainStep();
    bits.numbers.push_back(result.loss);
    for (const double loss : result.micro_batch_losses) bits.numbers.push_back(loss);
  }
  bits.Add(engine.Parameters());
  engine.Close();
  return bits;
}

}  // namespace strata::shadow
