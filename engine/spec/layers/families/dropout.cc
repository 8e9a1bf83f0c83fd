// Declaration of Dropout.
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

TensorSpec Infer(const LayerSpec&, const TensorSpec& input) {
  ExpectFloating(input);
  return input;
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
  }};
}

}  // namespace strata::layers
