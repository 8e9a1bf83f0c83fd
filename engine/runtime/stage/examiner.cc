// Keeps the smallest of all findings in the order of Finding.
#include "engine/runtime/stage/examiner.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

/// Formats a number with six digits.
std::string Short(const at::Tensor& number) { return Str(number.to(at::kDouble).item<double>()); }

}  // namespace

bool IsFinite(const at::Tensor& tensor) {
  return !tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>();
}

std::string Statistics(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach();
  const at::Tensor finite = at::isfinite(values);
  const int64_t nans = at::isnan(values).sum().item<int64_t>();
  const int64_t others = finite.sum().item<int64_t>();
  std::string text =
      Str(ToString(SpecsOf({values})), ", ", nans, " NaN and ", values.numel() - nans - others,
          " Inf of ", Plural(values.numel(), "value"));
  if (others == 0) return text;
  const at::Tensor rest = values.masked_select(finite);
  return Str(text, ", the others from ", Short(rest.min()), " to ", Short(rest.max()), ", mean ",
             Short(rest.mean(at::kDouble)));
}

void Examiner::Enters(const std::string& who, int place, int stage, int m, const Tensors& inputs) {
  for (const at::Tensor& input : inputs) {
    if (!input.requires_grad()) continue;
    input.register_hook([this, who, place, stage, m](const at::Tensor& gradient) {
      Note(true, m, -place, who, stage, "a gradient of its input", gradient);
    });
  }
}

void Examiner::Leaves(StageLayer& layer, int stage, int m, const Tensors& outputs) {
  for (const at::Tensor& output : outputs) {
    if (IsFinite(output)) continue;
    std::string what = "an output";
    for (const Parameter& parameter : layer.layer->parameters()) {
      const at::Tensor& value = parameter.packed ? parameter.packed->scales() : parameter.value;
      if (IsFinite(value)) continue;
      what = Str("by its parameter ", layer.path, ".", parameter.name, " (", Statistics(value),
                 ") an output");
      break;
    }
    Note(false, m, layer.index, layer.label, stage, what, output);
  }
}

void Examiner::LeavesLoss(const std::string& who, int place, int stage, int m,
                          const LossValue& loss, const Tensors& target) {
  for (const at::Tensor& tensor : target) {
    Note(false, m, place, data_, stage, "a target", tensor);
  }
  Note(false, m, place, who, stage, "a value", loss.sum);
}

void Examiner::ComesIn(int m, const Tensors& inputs) {
  for (const at::Tensor& input : inputs) Note(false, m, -1, data_, 0, "an input", input);
}

void Examiner::Accumulated(const FlatParameters& parameters, const std::vector<StageLayer>& layers,
                           int stage, int m) {
  for (const PlacedParameter& parameter : parameters.parameters()) {
    const at::Tensor& gradient = parameter.gradient;
    if (!gradient.defined() || !HasMemory(gradient) || IsFinite(gradient)) continue;
    const auto layer = std::ranges::find(layers, parameter.layer, &StageLayer::index);
    Note(true, m, -parameter.layer, layer->label, stage,
         Str("a gradient of ", parameter.path, ", summed up to here,"), parameter.gradient);
  }
}

void Examiner::Note(bool is_gradient, int m, int64_t place, const std::string& who, int stage,
                    const std::string& what, const at::Tensor& tensor) {
  if (!tensor.defined() || IsFinite(tensor)) return;
  Finding finding = {is_gradient, first_micro_batch_ + m, place, ""};
  if (first_ && !(finding < Finding{first_->is_gradient, first_->micro_batch, first_->place, ""})) {
    return;
  }
  finding.text = Str(who, " (stage ", stage, ", micro-batch ", finding.micro_batch, ") gives ",
                     what, " that is not finite: ", Statistics(tensor));
  first_ = std::move(finding);
}

}  // namespace strata
