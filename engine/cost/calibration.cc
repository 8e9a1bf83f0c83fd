#include "engine/cost/calibration.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/job/job_fields.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

struct Probe {
  const char* type;
  Value::List arguments;
  std::vector<int64_t> input;
  DType dtype = DType::kFloat32;
};

/// The time limit for measuring the probes. A slow machine may not reach the last ones.
constexpr double kMostSeconds = 5;

/// The probes. Products of few rows are slow, and so are products with a matrix that does not fit
/// into caches; so both occur. The first twelve are measured in the first round and include every
/// kind, because the time may not suffice for more. Forward and backward of all probes take about
/// 0.3 s on one core.
const std::vector<Probe>& Probes() {
  static const std::vector<Probe> kProbes = {
      {"Linear", {1024, 1024}, {4, 1024}},
      {"Linear", {1024, 1024}, {256, 1024}},
      {"Linear", {4096, 2048}, {16, 4096}},
      {"Conv2d", {3, 64, 11, 4, 2}, {2, 3, 224, 224}},
      {"Conv2d", {64, 64, 3, 1, 1}, {4, 64, 32, 32}},
      {"Conv2d", {256, 256, 3, 1, 1}, {4, 256, 13, 13}},
      {"ReLU", {}, {4, 64, 55, 55}},
      {"Dropout", {0.1}, {256, 2048}},
      {"BatchNorm2d", {64}, {4, 64, 32, 32}},
      {"LogSoftmax", {-1}, {64, 10000}},
      {"Embedding", {10000, 512}, {32, 8}, DType::kInt64},
      {"TransformerEncoderLayer", {512, 8}, {32, 4, 512}},
      {"Linear", {1024, 1024}, {1, 1024}},
      {"Linear", {1024, 1024}, {16, 1024}},
      {"Linear", {1024, 1024}, {64, 1024}},
      {"Linear", {1024, 1024}, {128, 1024}},
      {"Linear", {1024, 1024}, {512, 1024}},
      {"Linear", {4096, 2048}, {1, 4096}},
      {"Linear", {4096, 2048}, {8, 4096}},
      {"Linear", {4096, 2048}, {64, 4096}},
      {"Conv2d", {3, 32, 3, 1, 1}, {8, 3, 32, 32}},
      {"Conv2d", {64, 192, 5, 1, 2}, {2, 64, 27, 27}},
      {"Conv2d", {256, 64, 1}, {4, 256, 28, 28}},
      {"MaxPool2d", {3, 2}, {4, 64, 55, 55}},
      {"ReLU", {}, {64, 512}},
      {"Tanh", {}, {256, 2048}},
      {"GELU", {}, {256, 2048}},
      {"Dropout", {0.1}, {64, 512}},
      {"LayerNorm", {512}, {256, 512}},
      {"MultiheadAttention", {512, 8, 0.1}, {128, 2, 512}},
      {"TransformerEncoderLayer", {256, 4}, {64, 4, 256}},
      {"TransformerDecoderLayer", {512, 8}, {32, 4, 512}},
      {"TransformerDecoderLayer", {512, 8}, {32, 16, 512}},
  };
  return kProbes;
}

/// Adam with its default options. The time of its step is scaled by bytes to those of other
/// optimizers.
OptimizerSpec AnyOptimizer() {
  const auto adamw = std::ranges::find(OptimizerTypes(), "adamw", &OptionTable::name);
  return {.type = adamw->name, .options = Canonicalize(adamw->fields, {}), .groups = {}};
}

constexpr std::pair<Work LayerCost::*, double PassSeconds::*> kPasses[] = {
    {&LayerCost::forward, &PassSeconds::forward},
    {&LayerCost::input_grad, &PassSeconds::input_grad},
    {&LayerCost::weight_grad, &PassSeconds::weight_grad}};

/// True if both layers are products of rows, both are other products, or both are no products.
bool AreAlike(const LayerCost& a, const LayerCost& b) {
  return (a.forward.flops > 0) == (b.forward.flops > 0) && a.multiplies_rows == b.multiplies_rows;
}

/// The weight of a probe for a layer: Shepard's inverse-distance weighting, with the logarithms of
/// size and of operations per byte as coordinates.
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

/// The nominal seconds of a pass without its messages along the model axis.
double ComputeSeconds(const Work& work, const DeviceRates& rates) {
  Work alone = work;
  alone.axis_bytes = 0;
  return Seconds(alone, rates);
}

/// A measurement of one kind of work.
struct Sample {
  std::string kind;
  LayerCost cost;
  PassSeconds taken;     ///< 0 = not known
  bool is_alone = true;  ///< false: derived by subtracting other parts
};

/// The measured samples, from which seconds of other work of the same kinds are estimated.
class Samples {
 public:
  explicit Samples(const DeviceRates& rates) : rates_(rates) {}

  void Add(Sample sample) { samples_.push_back(std::move(sample)); }

  /// Returns the seconds of one pass: its nominal seconds, multiplied by the weighted geometric
  /// mean of measured to nominal seconds of the samples of its kind. For a kind without samples all
  /// samples count that multiply in the same way. A part of a layer ("TransformerEncoderLayer.ff")
  /// uses the samples of the whole layer type.
  double Seconds(const std::string& given_kind, const LayerCost& cost, size_t pass) const {
    const auto& [work, seconds] = kPasses[pass];
    const std::string kind = given_kind.substr(0, given_kind.find('.'));
    const auto is_of_kind = [&](const Sample& sample) {
      return sample.kind == kind && (sample.cost.forward.flops > 0) == (cost.forward.flops > 0);
    };
    const bool is_known = std::ranges::any_of(samples_, is_of_kind);
    double sum = 0, weights = 0;
    for (const Sample& sample : samples_) {
      const double taken = sample.taken.*seconds;
      const double nominal = ComputeSeconds(sample.cost.*work, rates_);
      const bool counts =
          is_known ? is_of_kind(sample) : sample.is_alone && AreAlike(cost, sample.cost);
      if (!counts || taken <= 0 || nominal <= 0) continue;
      const double weight = Weight(cost, sample.cost);
      sum += weight * std::log(taken / nominal);
      weights += weight;
    }
    const double nominal = ComputeSeconds(cost.*work, rates_);
    return weights > 0 ? nominal * std::exp(sum / weights) : nominal;
  }

 private:
  const DeviceRates rates_;
  std::vector<Sample> samples_;
};

/// The parts of a layer's work by kind. A layer without parts is one part of its type's kind.
std::vector<LayerPart> PartsOf(const LayerCost& cost, const std::string& type) {
  if (!cost.parts.empty()) return cost.parts;
  LayerPart all = {.kind = type, .cost = cost};
  return {std::move(all)};
}

/// A probe with one part is a sample of that kind. For a probe with several parts, such as a
/// transformer layer, the estimated seconds of the other parts are subtracted; what remains is a
/// sample of the part that is the type's own.
Samples SamplesOf(const std::vector<LayerSpec>& probes, const ModelCosts& nominal,
                  const Profile& measured, const DeviceRates& rates) {
  Samples samples(rates);
  for (const bool alone : {true, false}) {
    for (size_t i = 0; i < probes.size(); ++i) {
      const std::vector<LayerPart> parts = PartsOf(nominal.layers[i], probes[i].type);
      if (alone != (parts.size() == 1)) continue;
      if (measured.layers[i] == PassSeconds()) continue;
      PassSeconds left = measured.layers[i];
      const LayerPart* own = nullptr;
      for (const LayerPart& part : parts) {
        if (part.kind == probes[i].type) own = &part;
        for (size_t pass = 0; pass < std::size(kPasses) && part.kind != probes[i].type; ++pass) {
          left.*kPasses[pass].second -= samples.Seconds(part.kind, part.cost, pass);
        }
      }
      // A small remainder of a difference is mostly measurement error, so it is dropped.
      constexpr double kLeast = 0.1;
      for (const auto& [work, seconds] : kPasses) {
        if (left.*seconds < kLeast * measured.layers[i].*seconds) left.*seconds = 0;
      }
      if (own != nullptr) samples.Add({probes[i].type, own->cost, left, alone});
    }
  }
  return samples;
}

/// The estimated seconds of one pass, summed over the parts.
double SumOf(const std::vector<LayerPart>& parts, const Samples& samples, size_t pass) {
  double sum = 0;
  for (const LayerPart& part : parts) sum += samples.Seconds(part.kind, part.cost, pass);
  return sum;
}

/// The factor by which a layer takes longer than the sum of its parts, from the probes of its type
/// that have several parts. 1 for other types.
double Unexplained(const LayerCost& layer, const std::string& type, size_t pass,
                   const std::vector<LayerSpec>& probes, const ModelCosts& nominal,
                   const Profile& measured, const Samples& samples) {
  double sum = 0, weights = 0;
  for (size_t i = 0; i < probes.size(); ++i) {
    if (probes[i].type != type) continue;
    const double taken = measured.layers[i].*kPasses[pass].second;
    const std::vector<LayerPart> parts = PartsOf(nominal.layers[i], probes[i].type);
    const double explained = SumOf(parts, samples, pass);
    if (parts.size() == 1 || taken <= 0 || explained <= 0) continue;
    const double weight = Weight(layer, nominal.layers[i]);
    sum += weight * std::log(taken / explained);
    weights += weight;
  }
  return weights > 0 ? std::exp(sum / weights) : 1;
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
  const DeviceRates rates = NominalDevice(task_.device);
  const Samples samples = SamplesOf(job_.layers, nominal_, measured, rates);
  const auto correct = [&](const std::string& type, LayerCost& cost) {
    for (size_t pass = 0; pass < std::size(kPasses); ++pass) {
      Work& work = cost.*kPasses[pass].first;
      const double sum = SumOf(PartsOf(cost, type), samples, pass);
      // `type` may be that of a part; `whole` is then the type of its layer.
      const std::string whole = type.substr(0, type.find('.'));
      work.seconds = AxisSeconds(work, measured.link, rates) +
                     sum * Unexplained(cost, whole, pass, job_.layers, nominal_, measured, samples);
    }
  };
  for (size_t i = 0; i < layers.size(); ++i) correct(layers[i].type, costs.layers[i]);
  correct("", costs.loss);
  costs.update_seconds *= Over(measured.update, nominal_.update_seconds);
  costs.norm_seconds *= Over(measured.norm, nominal_.norm_seconds);
  costs.clear_seconds *= Over(measured.clear, nominal_.clear_seconds);
  costs.link = measured.link;
  costs.seconds_from = SecondsFrom::kMeasured;
}

}  // namespace strata
