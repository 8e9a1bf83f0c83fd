// Declaration of Dropout.
#include "engine/spec/layers/costs/cost_rules.h"
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

TensorSpec Infer(const LayerSpec&, const TensorSpec& input) {
  ExpectFloating(input);
  return input;
}

std::vector<Traced> Cost(LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                         const TensorSpecs&) {
  return {ApplyDropout(tape, inputs[0], spec.Number("p"))};
}

}  // namespace

std::vector<LayerType> DropoutTypes() {
  return {{
      .name = "Dropout",
      .fields = {Field::Number("p", "share of elements set to 0").AtLeast(0).AtMost(1).Default(0.5),
                 Field::Bool("inplace", "may overwrite its input").Default(false)},
      .help = "in training sets random elements to 0 and scales the rest by 1 / (1 - p)",
      .shapes = "(...) -> (...)",
      .elementwise = true,
      .infer = Unary(Infer),
      .cost = Cost,
  }};
}

}  // namespace strata::layers
