// Declarations of the activation layers.
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

TensorSpec InferFloating(const LayerSpec&, const TensorSpec& input) {
  ExpectFloating(input);
  return input;
}

TensorSpec InferSoftmax(const LayerSpec& spec, const TensorSpec& input) {
  ExpectFloating(input);
  if (!spec.args["dim"].is_null()) WrapDim(spec.Int("dim"), input, "dim");
  return input;
}

TensorSpec InferGlu(const LayerSpec& spec, const TensorSpec& input) {
  ExpectFloating(input);
  TensorSpec output = input;
  int64_t& size = output.shape[WrapDim(spec.Int("dim"), input, "dim")];
  if (size % 2 != 0) RefuseShape(Str("an even size in dim ", spec.Int("dim")), input);
  size /= 2;
  return output;
}

TensorSpec InferPRelu(const LayerSpec& spec, const TensorSpec& input) {
  ExpectParameterDType(input);
  const int64_t count = spec.Int("num_parameters");
  const int64_t channels = input.shape.size() < 2 ? 1 : input.shape[1];
  if (count != 1 && count != channels) RefuseShape(Str("(batch, ", count, ", ...)"), input);
  return input;
}

std::vector<ParameterSpec> PReluParameters(const LayerSpec& spec) {
  return {{.name = "weight", .shape = {spec.Int("num_parameters")}}};
}

/// In addition to an elementwise function, the backward computes each element's contribution to the
/// weight gradient, a tensor of x's size.
std::vector<Traced> PReluCost(LayerTape& tape, const LayerSpec& spec,
                              const std::vector<Traced>& inputs, const TensorSpecs&) {
  const Traced& x = inputs[0];
  tape.Scratch(0, x.bytes());
  tape.Touch(0, 0, spec.frozen ? 0 : 2 * x.bytes());
  return {Apply(tape, x, /*keeps_output=*/false)};
}

void CheckHardtanh(LayerSpec& spec) {
  if (spec.Number("min_val") < spec.Number("max_val")) return;
  throw ConfigError(
      Str("min_val ", spec.Number("min_val"), " is not below max_val ", spec.Number("max_val")));
}

void CheckCelu(LayerSpec& spec) {
  if (spec.Number("alpha") == 0) throw ConfigError("alpha must not be 0");
}

/// The type of a layer that applies one function to each element. `more` is the number of tensors
/// that its backward reads in addition to the one that it `keeps`.
LayerType Elementwise(std::string name, FieldTable fields, Keeps keeps, std::string help,
                      int more = 0) {
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = "(...) -> (...)",
          .elementwise = true,
          .keeps = keeps,
          .infer = Unary(InferFloating),
          .cost = CallCost(more)};
}

LayerType Softmax(std::string name, std::string help) {
  Field dim = Field::Int("dim", "the dim that sums to 1; none: 0 for 1 or 3 dims, else 1");
  LayerType type = Elementwise(std::move(name), {dim.Optional()}, Keeps::kOutput, std::move(help));
  type.elementwise = false;
  type.infer = Unary(InferSoftmax);
  return type;
}

LayerType Checked(LayerType type, void (*finish)(LayerSpec&)) {
  type.finish = finish;
  return type;
}

Field InPlace() { return Field::Bool("inplace", "may overwrite its input").Default(false); }

LayerType Glu() {
  return {.name = "GLU",
          .fields = {Field::Int("dim", "the dim that is halved").Default(-1)},
          .help = "a times sigmoid(b) of the halves a and b of the input",
          .shapes = "(..., N) -> (..., N / 2) with the default",
          .infer = Unary(InferGlu),
          .cost = CallCost()};
}

LayerType PRelu() {
  return {.name = "PReLU",
          .fields = {Field::Int("num_parameters", "learned factors: 1, or one for each channel")
                         .AtLeast(1)
                         .Default(1),
                     Number("init", 0.25, "what the factors start at"), Device(), OwnDType()},
          .help = "max(x, 0) + weight min(x, 0) with learned factors",
          .shapes = "(...) -> (...)",
          .parameters = PReluParameters,
          .infer = Unary(InferPRelu),
          .cost = PReluCost};
}

}  // namespace

std::vector<LayerType> ActivationTypes() {
  const Field approximate =
      Field::Choice("approximate", {"none", "tanh"}, "how the error function is computed")
          .Default("none");
  const Field lambd = Number("lambd", 0.5, "half the width of what becomes 0");
  return {
      Elementwise("ReLU", {InPlace()}, Keeps::kOutput, "max(x, 0)"),
      Elementwise("GELU", {approximate}, Keeps::kInput,
                  "x times the normal distribution's share below x"),
      Elementwise("SiLU", {InPlace()}, Keeps::kInput, "x times sigmoid(x)"),
      Elementwise("Tanh", {}, Keeps::kOutput, "hyperbolic tangent"),
      Elementwise("Sigmoid", {}, Keeps::kOutput, "1 / (1 + exp(-x))"),
      Softmax("Softmax", "exp(x) divided by its sum"),
      Elementwise("LeakyReLU", {Number("negative_slope", 0.01, "factor below 0"), InPlace()},
                  Keeps::kEither, "max(x, 0) + negative_slope min(x, 0)"),
      Elementwise("ELU", {Number("alpha", 1, "the limit below 0 is -alpha"), InPlace()},
                  Keeps::kInput, "x above 0, else alpha (exp(x) - 1)"),
      Elementwise("SELU", {InPlace()}, Keeps::kInput,
                  "1.0507 times an ELU with alpha 1.6733, which keeps mean 0 and variance 1"),
      Checked(Elementwise("CELU", {Number("alpha", 1, "the limit below 0 is -alpha"), InPlace()},
                          Keeps::kInput, "x above 0, else alpha (exp(x / alpha) - 1)"),
              CheckCelu),
      Elementwise("Softplus",
                  {Number("beta", 1, "steepness around 0"),
                   Number("threshold", 20, "above beta x = threshold it gives x")},
                  Keeps::kInput, "log(1 + exp(beta x)) / beta"),
      Elementwise("Softsign", {}, Keeps::kInput, "x / (1 + |x|)", /*more=*/1),
      Elementwise("Hardswish", {InPlace()}, Keeps::kInput, "x times Hardsigmoid(x)"),
      Elementwise("Hardsigmoid", {InPlace()}, Keeps::kInput, "x / 6 + 1 / 2, within 0 and 1"),
      Checked(Elementwise("Hardtanh",
                          {Number("min_val", -1, "the least output"),
                           Number("max_val", 1, "the largest output"), InPlace(),
                           Field::Refused("min_value", "use min_val"),
                           Field::Refused("max_value", "use max_val")},
                          Keeps::kEither, "x within min_val and max_val"),
              CheckHardtanh),
      Elementwise("ReLU6", {InPlace()}, Keeps::kEither, "x within 0 and 6"),
      Elementwise("Mish", {InPlace()}, Keeps::kInput, "x times tanh(Softplus(x))"),
      Softmax("LogSoftmax", "the logarithm of Softmax"),
      Elementwise("LogSigmoid", {}, Keeps::kInput, "the logarithm of Sigmoid", /*more=*/1),
      Elementwise("Tanhshrink", {}, Keeps::kNothing, "x - tanh(x)", /*more=*/1),
      Elementwise("Softshrink", {Field(lambd).AtLeast(0)}, Keeps::kInput,
                  "x moved by lambd towards 0, which is not passed"),
      Elementwise("Hardshrink", {lambd}, Keeps::kInput, "x, but 0 within -lambd and lambd"),
      Elementwise("Threshold",
                  {Field::Number("threshold", "the largest input that is replaced"),
                   Field::Number("value", "what replaces it"), InPlace()},
                  Keeps::kInput, "x above threshold, else value"),
      Glu(),
      PRelu(),
  };
}

}  // namespace strata::layers
