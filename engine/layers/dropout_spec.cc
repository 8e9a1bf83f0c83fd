// Declarations of the dropouts: of elements, of whole channels, and for SELU networks.
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

TensorSpec Infer(const LayerSpec&, const TensorSpec& input) {
  ExpectFloating(input);
  return input;
}

double OfElements(const Traced& x) { return x.elements(); }
double OfChannels(const Traced& x) {
  return static_cast<double>(x.spec.shape[0] * x.spec.shape[1]);
}

/// The cost rule of a dropout. `factors` returns the number of random factors for an input.
/// `shifts` is for AlphaDropout, which also adds a tensor made of the factors.
CostRule Cost(double (*factors)(const Traced& x), bool shifts = false) {
  return
      [factors, shifts](LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                        const TensorSpecs&) -> std::vector<Traced> {
        const Traced& x = inputs[0];
        if (spec.Number("p") == 0) return {x};
        if (factors == OfElements && !shifts && !tape.host().is_cpu) return {DropOnGpu(tape, x)};
        const Traced mask = tape.Fresh(x, factors(x));
        tape.Keep(mask);
        const Traced y = tape.Fresh(x);
        TouchElements(tape, x, y);
        tape.Touch((shifts ? 6 : 3) * mask.bytes(), 0);  // the factors are drawn and scaled
        if (shifts) tape.Scratch(mask.bytes(), 0);
        return {y};
      };
}

LayerType Dropout(std::string name, const char* what, std::string help, CostRule cost) {
  return {.name = std::move(name),
          .fields = {Field::Number("p", Str("share of ", what, " set to 0"))
                         .AtLeast(0)
                         .AtMost(1)
                         .Default(0.5),
                     Field::Bool("inplace", "may overwrite its input").Default(false)},
          .help = std::move(help),
          .shapes = "(...) -> (...)",
          .infer = Unary(Infer),
          .cost = std::move(cost),
          .draws = [](const LayerSpec& spec) { return spec.Number("p") > 0; }};
}

LayerType ChannelDropout(size_t dims) {
  LayerType type = Dropout(
      Str("Dropout", dims, "d"), "channels",
      "in training sets random channels to 0 and scales the rest by 1 / (1 - p)", Cost(OfChannels));
  type.shapes = Str("(N, C, ", Spatial(dims).letters, ") -> (N, C, ", Spatial(dims).letters, ")");
  type.infer = Unary([dims](const LayerSpec& spec, const TensorSpec& input) {
    ExpectDims(input, dims + 2, Str("(batch, channels, ", Spatial(dims).words, ")"));
    return Infer(spec, input);
  });
  return type;
}

}  // namespace

std::vector<LayerType> DropoutTypes() {
  LayerType elements = Dropout(
      "Dropout", "elements",
      "in training sets random elements to 0 and scales the rest by 1 / (1 - p)", Cost(OfElements));
  elements.elementwise = true;  // AlphaDropout is not: its numbers are drawn for the whole tensor
  return {elements, ChannelDropout(1), ChannelDropout(2), ChannelDropout(3),
          Dropout("AlphaDropout", "elements",
                  "in training sets random elements to SELU's lower limit and keeps mean and "
                  "variance",
                  Cost(OfElements, /*shifts=*/true))};
}

}  // namespace strata::layers
