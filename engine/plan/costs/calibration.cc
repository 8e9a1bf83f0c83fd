#include "engine/plan/costs/calibration.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/spec/job/job_fields.h"
#include "engine/spec/layers/layers.h"

namespace strata {
namespace {

struct Probe {
  const char* type;
  Value::List arguments;
  std::vector<int64_t> input;
  DType dtype = DType::kFloat32;
};

/// A job waits for them no longer, though a slow machine may not come to the last ones.
constexpr double kMostSeconds = 4;

/// Products of few rows are slow, those of a matrix that caches do not hold too. A pass of all
/// takes some 0.3 s on a core.
const std::vector<Probe>& Probes() {
  static const std::vector<Probe> kProbes = {
      {"Linear", {1024, 1024}, {1, 1024}},
      {"Linear", {1024, 1024}, {4, 1024}},
      {"Linear", {1024, 1024}, {16, 1024}},
      {"Linear", {1024, 1024}, {64, 1024}},
      {"Linear", {1024, 1024}, {256, 1024}},
      {"Linear", {4096, 2048}, {1, 4096}},
      {"Linear", {4096, 2048}, {8, 4096}},
      {"Linear", {4096, 2048}, {16, 4096}},
      {"Linear", {4096, 2048}, {64, 4096}},
      {"Conv2d", {3, 64, 11, 4, 2}, {2, 3, 224, 224}},
      {"Conv2d", {3, 32, 3, 1, 1}, {8, 3, 32, 32}},
      {"Conv2d", {64, 64, 3, 1, 1}, {4, 64, 32, 32}},
      {"Conv2d", {64, 192, 5, 1, 2}, {2, 64, 27, 27}},
      {"Conv2d", {256, 256, 3, 1, 1}, {4, 256, 13, 13}},
      {"Conv2d", {256, 64, 1}, {4, 256, 28, 28}},
      {"MaxPool2d", {3, 2}, {4, 64, 55, 55}},
      {"ReLU", {}, {4, 64, 55, 55}},
      {"ReLU", {}, {64, 512}},
      {"Tanh", {}, {256, 2048}},
      {"GELU", {}, {256, 2048}},
      {"Dropout", {0.1}, {64, 512}},
      {"Dropout", {0.1}, {256, 2048}},
      {"BatchNorm2d", {64}, {4, 64, 32, 32}},
      {"LayerNorm", {512}, {256, 512}},
      {"LogSoftmax", {-1}, {64, 10000}},
      {"Embedding", {10000, 512}, {32, 8}, DType::kInt64},
      {"TransformerEncoderLayer", {256, 4}, {64, 4, 256}},
      {"TransformerEncoderLayer", {512, 8}, {32, 4, 512}},
      {"TransformerDecoderLayer", {512, 8}, {32, 4, 512}},
  };
  return kProbes;
}

/// Adam with its defaults. Its step goes by bytes, as those of others do.
OptimizerSpec AnyOptimizer() {
  const auto adamw = std::ranges::find(OptimizerTypes(), "adamw", &OptionTable::name);
  return {.type = adamw->name, .options = Canonicalize(adamw->fields, {}), .groups = {}};
}

constexpr std::pair<Work LayerCost::*, double PassSeconds::*> kPasses[] = {
    {&LayerCost::forward, &PassSeconds::forward},
    {&LayerCost::input_grad, &PassSeconds::input_grad},
    {&LayerCost::weight_grad, &PassSeconds::weight_grad}};

/// Whether the layers are products of rows, other products, or none.
bool AreAlike(const LayerCost& a, const LayerCost& b) {
  return (a.forward.flops > 0) == (b.forward.flops > 0) &&
         (a.product_rows > 0) == (b.product_rows > 0);
}

/// How much a probe says about a layer (Shepard's inverse distances, of logarithms).
double Weight(const LayerCost& layer, const LayerCost& probe) {
  const auto intensity = [](const Work& work) {
    return std::log(0.01 + work.flops / (1 + work.bytes));
  };
  const auto size = [](const Work& work) { return std::log(1 + work.bytes); };
  const double by_intensity = intensity(layer.forward) - intensity(probe.forward);
  const double by_size = 0.3 * (size(layer.forward) - size(probe.forward));
  const double squared = 0.01 + by_intensity * by_intensity + by_size * by_size;
  return 1 / (squared * squared);
}

double Over(double measured, double nominal) {
  return measured > 0 && nominal > 0 ? measured / nominal : 1;
}

}  // namespace

Calibration::Calibration(const MeasureTask& like) {
  job_.optimizer = AnyOptimizer();
  job_.batch = {.size = 1, .micro_batches = 1, .micro_batch_size = 1};
  job_.precision = like.job->precision;
  std::vector<TensorSpecs> inputs;
  for (const Probe& probe : Probes()) {
    Job alone = job_;
    alone.layers = {MakeLayer(probe.type, probe.arguments, {}, {}, "")};
    inputs.push_back({TensorSpec{probe.input, probe.dtype}});
    task_.outputs = InferLayers(alone.layers, inputs.back(), nullptr);
    ModelCosts costs = CostsOf(alone, inputs.back(), task_.outputs, 1, nullptr);
    costs.layers.insert(costs.layers.begin(), nominal_.layers.begin(), nominal_.layers.end());
    nominal_ = std::move(costs);
    job_.layers.push_back(std::move(alone.layers.front()));
  }
  strata::SetSeconds(nominal_, NominalDevice(like.device));
  task_.job = &job_;
  task_.input = inputs.front();
  task_.outputs.insert(task_.outputs.begin(), inputs.begin() + 1, inputs.end());
  task_.batch = job_.batch;
  task_.device = like.device;
  task_.threads = like.threads;
  task_.copies = like.copies;
  task_.most_seconds = kMostSeconds;
}

void Calibration::SetSeconds(const Profile& measured, const std::vector<LayerSpec>& layers,
                             ModelCosts& costs) const {
  STRATA_CHECK(measured.layers.size() == job_.layers.size()) << measured.layers.size();
  strata::SetSeconds(costs, NominalDevice(task_.device));
  const auto correct = [&](std::string type, LayerCost& cost) {
    type = type.substr(0, type.find('.'));  // parts take after their whole
    const bool is_known =
        std::ranges::find(job_.layers, type, &LayerSpec::type) != job_.layers.end();
    for (const auto& [work, seconds] : kPasses) {
      double sum = 0, weights = 0;
      for (size_t i = 0; i < job_.layers.size(); ++i) {
        const LayerCost& probe = nominal_.layers[i];
        const double taken = measured.layers[i].*seconds, nominal = (probe.*work).seconds;
        const bool counts = is_known ? job_.layers[i].type == type : AreAlike(cost, probe);
        if (!counts || taken <= 0 || nominal <= 0) continue;
        const double weight = Weight(cost, probe);
        sum += weight * std::log(taken / nominal);
        weights += weight;
      }
      if (weights > 0) (cost.*work).seconds *= std::exp(sum / weights);
    }
  };
  for (size_t i = 0; i < layers.size(); ++i) correct(layers[i].type, costs.layers[i]);
  correct("", costs.loss);
  costs.update_seconds *= Over(measured.update, nominal_.update_seconds);
  costs.norm_seconds *= Over(measured.norm, nominal_.norm_seconds);
  costs.clear_seconds *= Over(measured.clear, nominal_.clear_seconds);
  costs.seconds_from = SecondsFrom::kMeasuredRates;
}

}  // namespace strata
