// The tables of layers and losses. A new one is a line here, its family's file, and its fields in
// engine/spec.
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/layers/families.h"
#include "engine/layers/layer.h"

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

}  // namespace

std::unique_ptr<Layer> BuildLayer(const LayerSpec& spec, LayerScript* script) {
  const LayerMaker make = spec.scripted ? nullptr : Find(kLayers, spec.type);
  STRATA_CHECK(spec.scripted ? script != nullptr : make != nullptr) << "no layer " << spec.type;
  std::unique_ptr<Layer> layer = spec.scripted ? script->BuildLayer(spec) : make(spec, script);
  if (!spec.tied_forward.where.empty()) {
    STRATA_CHECK(script) << "no script for the forward of " << spec.type;
    layer = script->WithForward(spec, std::move(layer));
  }
  if (spec.frozen) Freeze(*layer);
  return layer;
}

std::unique_ptr<Loss> BuildLoss(const LayerSpec& spec, LayerScript* script) {
  if (spec.scripted) {
    STRATA_CHECK(script) << "no script for the loss " << spec.type;
    return script->BuildLoss(spec);
  }
  const LossMaker make = Find(kLosses, spec.type);
  STRATA_CHECK(make) << "no loss " << spec.type;
  return make(spec);
}

}  // namespace strata
