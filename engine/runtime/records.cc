// Converts results of the engine to maps.
#include "engine/runtime/records.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>
#include <utility>

#include "engine/base/text.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

/// Returns {layer: norm}. The layer of a parameter is its path without the last name.
Value GradientNorms(const std::vector<TensorDigest>& gradients) {
  Value norms = Value::MakeMap();
  for (const TensorDigest& gradient : gradients) {
    const std::string layer = gradient.path.substr(0, gradient.path.rfind('.'));
    const Value* others = norms.Find(layer);
    norms.Set(layer, std::hypot(gradient.norm, others ? others->as_double() : 0.0));
  }
  return norms;
}

Value RecutValue(const RecutReport& report, const std::vector<LayerSpec>& layers) {
  Value cuts = Value::IntList({report.cuts.begin(), report.cuts.end()});
  if (!layers.empty()) cuts = CutNames(layers).Numbers(report.cuts);
  return Value::MakeMap({{"cuts", std::move(cuts)},
                         {"moved", report.moves},
                         {"saving", report.saving},
                         {"bytes", report.bytes},
                         {"seconds", report.seconds}});
}

}  // namespace

std::string RecutText(const RecutReport& report) {
  std::string text = Str("step ", report.step, ": moved ",
                         report.moves.empty() ? "layers between stages of one rank" : report.moves);
  if (!report.why.empty()) text += Str(", for ", report.why);
  if (report.saving > 0) {
    text += Str(": a step should be ", std::lround(100 * report.saving), "% shorter");
  }
  return Str(text, " (", FormatBytes(static_cast<double>(report.bytes)), " in ",
             FormatSeconds(report.seconds), ")");
}

Value PartsValue(const PartMeans& parts) {
  Value value = Value::MakeMap();
  for (const auto& [name, mean] : parts) value.Set(name, mean);
  return value;
}

Value StepRecord(const StepResult& result, std::optional<double> bubble,
                 const std::vector<LayerSpec>& layers) {
  const double rate =
      result.seconds > 0 ? static_cast<double>(result.samples) / result.seconds : 0.0;
  Value record = Value::MakeMap({{"step", result.step},
                                 {"loss", result.loss},
                                 {"grad_norm", result.grad_norm},
                                 {"lr", result.lr},
                                 {"samples", result.samples},
                                 {"seconds", result.seconds},
                                 {"data_seconds", result.data_seconds},
                                 {"samples_per_second", rate},
                                 {"peak_memory", result.peak_memory}});
  if (bubble) record.Set("bubble", *bubble);
  if (result.idle_share >= 0) record.Set("bubble_measured", result.idle_share);
  if (!result.parts.empty()) record.Set("parts", PartsValue(result.parts));
  if (!result.gradients.empty()) record.Set("grad_norms", GradientNorms(result.gradients));
  if (result.skipped > 0) record.Set("skipped", result.skipped);
  if (result.loss_scale != 1) record.Set("loss_scale", result.loss_scale);
  if (!result.micro_batch_losses.empty()) {
    const auto& losses = result.micro_batch_losses;
    record.Set("micro_batch_losses", Value::List(losses.begin(), losses.end()));
  }
  if (result.recut) record.Set("recut", RecutValue(*result.recut, layers));
  return record;
}

Value EvalRecord(int64_t steps_done, const EvalResult& result) {
  Value record = Value::MakeMap(
      {{"step", steps_done - 1}, {"test_loss", result.loss}, {"test_samples", result.samples}});
  if (!result.parts.empty()) record.Set("test_parts", PartsValue(result.parts));
  if (result.has_metric) record.Set("accuracy", result.metric);
  if (!result.metrics.as_map().empty()) record.Set("metrics", result.metrics);
  if (result.is_best) record.Set("best", true);
  if (result.ends_training()) record.Set("stop", true);
  return record;
}

Value SamplesRecord(int64_t steps_done, const std::vector<std::string>& texts) {
  return Value::MakeMap(
      {{"step", steps_done - 1}, {"texts", Value::List(texts.begin(), texts.end())}});
}

std::vector<Value> HistogramsRecords(const StepNumbers& result) {
  if (result.histograms.is_null()) return {};
  constexpr size_t kMost = 1000;
  const Value::Map& all = result.histograms.as_map();
  std::vector<Value> records;
  for (size_t begin = 0; begin < all.size(); begin += kMost) {
    const auto part = std::span(all).subspan(begin, std::min(kMost, all.size() - begin));
    records.push_back(Value::MakeMap(
        {{"step", result.step}, {"histograms", Value::MakeMap({part.begin(), part.end()})}}));
  }
  return records;
}

Value DigestsValue(const std::vector<TensorDigest>& digests) {
  Value::List list;
  for (const TensorDigest& tensor : digests) {
    list.push_back(
        Value::MakeMap({{"path", tensor.path}, {"digest", tensor.digest}, {"norm", tensor.norm}}));
  }
  return list;
}

std::vector<TensorDigest> DigestsFrom(const Value& value) {
  std::vector<TensorDigest> digests;
  for (const Value& tensor : value.as_list()) {
    digests.push_back(
        {tensor["path"].as_string(), tensor["digest"].as_string(), NumberOf(tensor["norm"])});
  }
  return digests;
}

double NumberOf(const Value& value) {
  return value.is_string() ? std::strtod(value.as_string().c_str(), nullptr) : value.as_double();
}

}  // namespace strata
