// InferLayers() and CheckLoss() of layer_types.h, CheckTargets() of targets.h: the shapes of a list
// of layers, with messages that name the layers which do not fit each other.
#include <algorithm>
#include <utility>

#include "engine/base/text.h"
#include "engine/layers/connections.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"
#include "engine/layers/rules.h"
#include "engine/layers/targets.h"

namespace strata {
namespace {

/// The layer as messages show it: `layer 3 Linear(64, 10)`, or `layer 3 "head" Linear(64, 10)` if
/// it has a name.
std::string Title(const std::vector<LayerSpec>& layers, size_t index) {
  const LayerSpec& layer = layers[index];
  const int number = LayerNumber(layers, static_cast<int>(index));
  const bool has_name = !layer.name.empty() && layer.name != Str(number);
  return Str("layer ", number, " ", has_name ? Str('"', layer.name, "\" ") : "", layer.ToString());
}

/// The inputs of layer `index`: the outputs of the layer before it, and for a join the kept
/// tensors.
TensorSpecs InputsOf(int index, const TensorSpecs& inputs, const std::vector<TensorSpecs>& outputs,
                     const std::vector<Connection>& connections) {
  TensorSpecs all = index == 0 ? inputs : outputs.back();
  const auto taken = std::ranges::find_if(connections, [&](const Connection& connection) {
    return connection.to == index && !connection.of_documents;
  });
  if (taken == connections.end()) return all;
  const TensorSpecs& kept = outputs.at(taken->from);
  all.insert(all.end(), kept.begin(), kept.end());
  return all;
}

}  // namespace

TensorSpecs WithType(TensorSpecs specs, DType from, DType to) {
  for (TensorSpec& spec : specs) {
    if (spec.dtype == from) spec.dtype = to;
  }
  return specs;
}

std::vector<TensorSpecs> InferLayers(const std::vector<LayerSpec>& layers,
                                     const TensorSpecs& inputs, Script* script, DType compute) {
  const std::vector<Connection> connections = FindConnections(layers);
  std::vector<TensorSpecs> outputs;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string place = Place(layers[i].where);
    try {
      const TensorSpecs taken = InputsOf(static_cast<int>(i), inputs, outputs, connections);
      outputs.push_back(InferLayer(layers[i], taken, script));
    } catch (const ShapeError& error) {
      const std::string source = i == 0 ? "the input" : Str("the output of ", Title(layers, i - 1));
      throw ConfigError(Str(place, Title(layers, i), " cannot take ", source, ": ", error.what()));
    } catch (const ConfigError& error) {
      throw ConfigError(Str(place, Title(layers, i), ": ", error.what()));
    }
  }
  for (TensorSpecs& output : outputs) {
    output = WithType(std::move(output), DType::kFloat32, compute);
  }
  return outputs;
}

TensorSpecs layers::InferInside(const LayerSpec& spec, const TensorSpecs& inputs, Script* script) {
  const std::vector<LayerSpec>& layers = spec.children;
  const ChildRange own = RangeOf(spec);
  TensorSpecs current = inputs;
  for (auto i = static_cast<size_t>(own.begin); i < static_cast<size_t>(own.end); ++i) {
    try {
      current = InferLayer(layers[i], current, script);
    } catch (const ShapeError& error) {
      if (i == 0) throw ShapeError(Str("its ", Title(layers, i), " ", error.what()));
      throw ConfigError(Str("its ", Title(layers, i), " cannot take the output of its ",
                            Title(layers, i - 1), ": ", error.what()));
    } catch (const ConfigError& error) {
      throw ConfigError(Str("its ", Title(layers, i), ": ", error.what()));
    }
  }
  return current;
}

void CheckLoss(const LayerSpec& loss, const std::vector<LayerSpec>& layers,
               const TensorSpecs& output, const TensorSpec& target) {
  CheckTargets(loss, layers, output, {target});
}

bool TakesSeveralTargets(const LayerSpec& loss) {
  return loss.type == "CTCLoss" || loss.type == "TripletMarginLoss";
}

void CheckTargets(const LayerSpec& loss, const std::vector<LayerSpec>& layers,
                  const TensorSpecs& output, const TensorSpecs& targets) {
  if (loss.scripted) return;
  TensorSpecs inputs = output;
  inputs.insert(inputs.end(), targets.begin(), targets.end());
  try {
    InferLayer(loss, inputs, nullptr);
  } catch (const ShapeError& error) {
    const std::string source =
        layers.empty() ? "the input" : Str("the output of ", Title(layers, layers.size() - 1));
    const char* with = targets.size() == 1 ? ", with the target " : ", with the targets ";
    throw ConfigError(Str(Place(loss.where), "the loss ", loss.ToString(), " cannot compare ",
                          source, ", ", ToString(output), with, ToString(targets), ": ",
                          error.what()));
  }
}

Value ToValue(const TensorSpec& spec) {
  return Value::MakeMap({{"shape", Value::IntList(spec.shape)}, {"dtype", DTypeName(spec.dtype)}});
}

Value ToValue(const TensorSpecs& specs) {
  Value::List list;
  for (const TensorSpec& spec : specs) list.push_back(ToValue(spec));
  return list;
}

}  // namespace strata
