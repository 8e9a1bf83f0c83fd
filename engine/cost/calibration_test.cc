#include "engine/cost/calibration.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/layers/layer_types.h"

namespace strata {
namespace {

/// Estimates one layer on a machine where each probe takes `factor(spec, rows)` times its nominal
/// seconds. Only the first `measured` probes were measured in time.
template <class Factor>
class Machine {
 public:
  explicit Machine(Factor factor, size_t measured = 1000) : calibration_(OnCpu()) {
    const MeasureTask& task = calibration_.task();
    TensorSpecs input = task.input;
    for (size_t i = 0; i < task.job->layers.size(); ++i) {
      const LayerCost cost = Nominal(task.job->layers[i], input).layers[0];
      const double by = factor(task.job->layers[i], input[0].shape[0]);
      profile_.layers.push_back(
          {by * cost.forward.seconds, by * cost.input_grad.seconds, by * cost.weight_grad.seconds});
      input = task.outputs[i];
      if (i >= measured) profile_.layers.back() = {};
    }
    profile_.update = 28e-9;
  }

  /// The ratio of estimated to nominal seconds of a layer's forward.
  double Estimate(const LayerSpec& spec, const TensorSpec& input) const {
    const ModelCosts nominal = Nominal(spec, {input});
    ModelCosts costs = nominal;
    calibration_.SetSeconds(profile_, {spec}, costs);
    EXPECT_EQ(costs.seconds_from, SecondsFrom::kMeasured);
    EXPECT_NEAR(costs.update_seconds, costs.update_bytes * 1e-9, 1e-12);
    return costs.layers[0].forward.seconds / nominal.layers[0].forward.seconds;
  }

 private:
  static MeasureTask OnCpu() {
    static const Job job;
    MeasureTask task;
    task.job = &job;
    task.device = "cpu";
    return task;
  }

  static ModelCosts Nominal(const LayerSpec& spec, const TensorSpecs& input) {
    Job job;
    job.layers = {spec};
    job.optimizer = {"sgd", Value::MakeMap({{"momentum", 0.9}}), {}};
    ModelCosts costs = CostsOf(job, input, InferLayers(job.layers, input, nullptr), 1, nullptr);
    SetSeconds(costs, NominalDevice("cpu"));
    return costs;
  }

  const Calibration calibration_;
  Profile profile_;
};

LayerSpec Layer(const char* type, const Value::List& arguments) {
  return MakeLayer(type, arguments, {}, {}, "");
}

TEST(Calibration, ALayerTakesAfterTheNearestProbesOfItsType) {
  const Machine machine([](const LayerSpec& spec, int64_t rows) {
    return spec.type == "Linear" ? (rows <= 4 ? 9. : 2.) : 5.;
  });
  EXPECT_NEAR(machine.Estimate(Layer("Linear", {1024, 1024}), {{4, 1024}}), 9, 0.1);
  EXPECT_NEAR(machine.Estimate(Layer("Linear", {1024, 1024}), {{64, 1024}}), 2, 0.1);
  EXPECT_GT(machine.Estimate(Layer("Linear", {9216, 4096}), {{2, 9216}}), 6);
  EXPECT_LT(machine.Estimate(Layer("Linear", {512, 10}), {{128, 512}}), 5);
  EXPECT_NEAR(machine.Estimate(Layer("GELU", {}), {{7, 100}}), 5, 0.1);
}

// Regression: a first run that had time only for products of rows estimated convolutions 2.5 times
// too slow.
TEST(Calibration, TheFirstRoundHasSomethingOfEveryKind) {
  constexpr size_t kRound = 12;  // probes per round of the profiler
  const Machine machine(
      [](const LayerSpec& spec, int64_t) {
        const std::map<std::string, double> factors = {{"Linear", 2},      {"Conv2d", 3},
                                                       {"ReLU", 4},        {"Dropout", 5},
                                                       {"BatchNorm2d", 6}, {"Embedding", 7}};
        const auto found = factors.find(spec.type);
        return found == factors.end() ? 20. : found->second;
      },
      kRound);
  EXPECT_NEAR(machine.Estimate(Layer("Linear", {512, 512}), {{64, 512}}), 2, 0.1);
  EXPECT_NEAR(machine.Estimate(Layer("Conv2d", {64, 64, 3}), {{4, 64, 28, 28}}), 3, 0.1);
  EXPECT_NEAR(machine.Estimate(Layer("ReLU", {}), {{64, 512}}), 4, 0.1);
  EXPECT_NEAR(machine.Estimate(Layer("Dropout", {0.5}), {{64, 512}}), 5, 0.1);
  EXPECT_NEAR(machine.Estimate(Layer("BatchNorm2d", {64}), {{4, 64, 28, 28}}), 6, 0.1);
  EXPECT_NEAR(machine.Estimate(Layer("Embedding", {100, 64}), {{8, 8}, DType::kInt64}), 7, 0.1);
}

TEST(Calibration, OtherTypesTakeAfterThoseThatMultiplyAlike) {
  const Machine machine([](const LayerSpec& spec, int64_t) {
    if (spec.type == "Conv2d") return 3.;
    return spec.type == "Linear" || spec.type.starts_with("Transformer") ? 7. : 2.;
  });
  EXPECT_NEAR(machine.Estimate(Layer("ConvTranspose2d", {16, 8, 3}), {{4, 16, 12, 12}}), 3, 1e-6);
  EXPECT_NEAR(machine.Estimate(Layer("AvgPool2d", {2}), {{4, 16, 12, 12}}), 2, 1e-6);
}

TEST(Calibration, WhatHoldsLayersTakesWhatTheyTake) {
  const Machine machine([](const LayerSpec& spec, int64_t rows) {
    return spec.type == "Linear" ? (rows <= 4 ? 9. : 2.) : 5.;
  });
  const auto holding = [&](const LayerSpec& layer) {
    return MakeLayer("Sequential", {}, {}, {layer}, "");
  };
  for (const int64_t rows : {4, 64}) {
    const LayerSpec linear = Layer("Linear", {1024, 1024});
    EXPECT_NEAR(machine.Estimate(holding(linear), {{rows, 1024}}),
                machine.Estimate(linear, {{rows, 1024}}), 1e-6);
  }
  EXPECT_NEAR(machine.Estimate(holding(Layer("GELU", {})), {{256, 2048}}), 5, 0.1);
}

TEST(Calibration, WhatNoPartExplainsIsTheTypes) {
  // The whole layer is three times as slow as its parts.
  const Machine machine([](const LayerSpec& spec, int64_t) {
    return spec.type == "TransformerDecoderLayer" ? 6. : 2.;
  });
  const LayerSpec decoder = Layer("TransformerDecoderLayer", {512, 8});
  EXPECT_NEAR(machine.Estimate(decoder, {{32, 4, 512}}), 6, 0.05) << "as its probe";
  EXPECT_NEAR(machine.Estimate(decoder, {{32, 16, 512}}), 6, 1);
  EXPECT_NEAR(machine.Estimate(Layer("Linear", {512, 512}), {{128, 512}}), 2, 0.1);
}

TEST(Calibration, PartsMayTakeLessTogetherThanAlone) {
  const Machine machine([](const LayerSpec& spec, int64_t) {
    return spec.type == "TransformerDecoderLayer" ? 2. : 3.;
  });
  const LayerSpec decoder = Layer("TransformerDecoderLayer", {512, 8});
  EXPECT_NEAR(machine.Estimate(decoder, {{32, 4, 512}}), 2, 0.05) << "as its probe";
}

}  // namespace
}  // namespace strata
