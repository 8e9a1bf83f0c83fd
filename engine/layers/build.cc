// BuildLayer() and BuildLoss(), and the tables of layers and losses. A new layer needs a line here,
// a maker in its family's file, and its fields in engine/spec.
#include <ATen/core/grad_mode.h>

#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/layers/axis/crossing.h"
#include "engine/layers/families.h"
#include "engine/layers/layer.h"
#include "engine/spec/layers/layers.h"

namespace strata {
namespace {

template <class Maker>
struct Entry {
  std::string_view type;
  Maker make;
};

constexpr Entry<LayerMaker> kLayers[] = {
    {"Linear", MakeLinear},
    {"Conv1d", MakeConv},
    {"Conv2d", MakeConv},
    {"ConvTranspose2d", MakeConv},
    {"Embedding", MakeEmbedding},
    {"LayerNorm", MakeNorm},
    {"RMSNorm", MakeNorm},
    {"BatchNorm2d", MakeNorm},
    {"GroupNorm", MakeNorm},
    {"ReLU", MakeActivation},
    {"GELU", MakeActivation},
    {"SiLU", MakeActivation},
    {"Tanh", MakeActivation},
    {"Sigmoid", MakeActivation},
    {"Softmax", MakeActivation},
    {"LeakyReLU", MakeActivation},
    {"Dropout", MakeDropout},
    {"MaxPool2d", MakePool},
    {"AvgPool2d", MakePool},
    {"AdaptiveAvgPool2d", MakePool},
    {"Flatten", MakeShape},
    {"Unflatten", MakeShape},
    {"Identity", MakeShape},
    {"skip", MakeConnection},
    {"join", MakeConnection},
    {"Sequential", MakeSequential},
    {"Residual", MakeResidual},
    {"MultiheadAttention", MakeAttention},
    {"TransformerEncoderLayer", MakeTransformer},
    {"TransformerDecoderLayer", MakeTransformer},
};

constexpr Entry<LossMaker> kLosses[] = {
    {"CrossEntropyLoss", MakeClassLoss},    {"NLLLoss", MakeClassLoss},
    {"MSELoss", MakeElementLoss},           {"L1Loss", MakeElementLoss},
    {"BCEWithLogitsLoss", MakeElementLoss},
};

template <class Table>
auto Find(const Table& table, const std::string& type) {
  for (const auto& entry : table) {
    if (entry.type == type) return entry.make;
  }
  return decltype(table[0].make)(nullptr);
}

void Freeze(Layer& layer) {
  for (Parameter& parameter : layer.parameters()) {
    parameter.frozen = true;
    parameter.value.requires_grad_(false);
  }
  layer.OnBound();
}

/// Reduces each shared parameter to this rank's share. Layers inside a container have done so
/// already.
void TakeShares(Layer& layer, const LayerSpec& spec, const AxisComm& axis) {
  if (SplitOf(spec).empty()) return;
  const at::NoGradGuard no_grad;
  auto parameter = layer.parameters().begin();
  for (const ParameterSpec& declared : ParametersOf(spec)) {
    STRATA_CHECK(!declared.buffer && parameter->name == declared.name) << declared.name;
    if (declared.share) {
      parameter->share = declared.share;
      parameter->value = TakeShare(parameter->value, *declared.share, axis.rank(), axis.size())
                             .set_requires_grad(true);
    } else {
      parameter->partial_grad = SplitOf(spec) == "sequence";
    }
    ++parameter;
  }
  layer.OnBound();
}

}  // namespace

std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec, LayerScript* script,
                                  std::shared_ptr<AxisComm> axis) {
  const LayerMaker make = spec.scripted ? nullptr : Find(kLayers, spec.type);
  STRATA_CHECK(spec.scripted ? script != nullptr : make != nullptr) << "no layer " << spec.type;
  std::unique_ptr<Layer> layer =
      spec.scripted ? script->BuildLayer(spec) : make(spec, {script, axis});
  if (axis && !spec.scripted) TakeShares(*layer, spec, *axis);
  if (!spec.tied_forward.where.empty()) {
    STRATA_CHECK(script) << "no script for the forward of " << spec.type;
    layer = script->WithForward(spec, std::move(layer));
  }
  if (spec.frozen) Freeze(*layer);
  return layer;
}

std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec, LayerScript* script,
                                std::shared_ptr<AxisComm> axis) {
  if (spec.scripted) {
    STRATA_CHECK(script) << "no script for the loss " << spec.type;
    return script->BuildLoss(spec);
  }
  const LossMaker make = Find(kLosses, spec.type);
  STRATA_CHECK(make) << "no loss " << spec.type;
  return make(spec, {script, std::move(axis)});
}

}  // namespace strata
