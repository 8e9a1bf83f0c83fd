// Declarations of the recurrent layers: RNN, LSTM and GRU.
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// The number of gates of a cell. Each gate has a row of weights for every hidden feature.
int64_t Gates(const LayerSpec& spec) {
  return spec.type == "LSTM" ? 4 : spec.type == "GRU" ? 3 : 1;
}

/// The number of features of a cell's output: hidden_size, or an LSTM's proj_size.
int64_t OutputSize(const LayerSpec& spec) {
  const int64_t projected = spec.args.Has("proj_size") ? spec.Int("proj_size") : 0;
  return projected > 0 ? projected : spec.Int("hidden_size");
}

int64_t Directions(const LayerSpec& spec) { return spec.Bool("bidirectional") ? 2 : 1; }

/// Features of a layer's input.
int64_t InputSize(const LayerSpec& spec, int64_t layer) {
  return layer == 0 ? spec.Int("input_size") : Directions(spec) * OutputSize(spec);
}

void Finish(LayerSpec& spec) {
  if (spec.type == "LSTM" && spec.Int("proj_size") >= spec.Int("hidden_size")) {
    throw ConfigError(Str("proj_size ", spec.Int("proj_size"), " is not below hidden_size ",
                          spec.Int("hidden_size")));
  }
}

std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  const int64_t hidden = spec.Int("hidden_size"), rows = Gates(spec) * hidden;
  const int64_t out = OutputSize(spec);
  std::vector<ParameterSpec> specs;
  for (int64_t layer = 0; layer < spec.Int("num_layers"); ++layer) {
    for (int64_t direction = 0; direction < Directions(spec); ++direction) {
      const std::string suffix = Str("_l", layer, direction == 1 ? "_reverse" : "");
      specs.push_back({.name = "weight_ih" + suffix, .shape = {rows, InputSize(spec, layer)}});
      specs.push_back({.name = "weight_hh" + suffix, .shape = {rows, out}});
      if (spec.Bool("bias")) {
        specs.push_back({.name = "bias_ih" + suffix, .shape = {rows}});
        specs.push_back({.name = "bias_hh" + suffix, .shape = {rows}});
      }
      if (out != hidden) specs.push_back({.name = "weight_hr" + suffix, .shape = {out, hidden}});
    }
  }
  return specs;
}

/// The inputs are a sequence and optionally the states before it. The outputs are the sequence and
/// the states after it.
TensorSpecs Infer(const LayerSpec& spec, const TensorSpecs& inputs, Script*) {
  const bool batch_first = spec.Bool("batch_first"), has_cell = spec.type == "LSTM";
  if (inputs.size() != 1 && inputs.size() != (has_cell ? 3u : 2u)) {
    throw ShapeError(Str("expects a sequence, or a sequence and the first ",
                         has_cell ? "hidden and cell states" : "hidden states", ", got ",
                         ToString(inputs)));
  }
  const TensorSpec& x = inputs[0];
  if (x.shape.size() != 3 || x.shape[2] != spec.Int("input_size")) {
    RefuseShape(Str("(", batch_first ? "batch, sequence" : "sequence, batch", ", ",
                    spec.Int("input_size"), ")"),
                x);
  }
  if (x.elements() == 0) RefuseShape("a sequence with elements", x);
  ExpectParameterDType(x);
  const int64_t batch = x.shape[batch_first ? 0 : 1], out = OutputSize(spec);
  const int64_t cells = spec.Int("num_layers") * Directions(spec);
  TensorSpecs outputs = {x, {{cells, batch, out}, x.dtype}};
  if (has_cell) outputs.push_back({{cells, batch, spec.Int("hidden_size")}, x.dtype});
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i] == outputs[i]) continue;
    throw ShapeError(Str("expects states ", outputs[i].ToString(), ", got ", inputs[i].ToString()));
  }
  outputs[0].shape[2] = Directions(spec) * out;
  return outputs;
}

/// The cost of a recurrent layer. For each position the backward keeps a cell's gates and its state
/// (two numbers per hidden feature), and the input and output of every layer.
std::vector<Traced> Cost(LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                         const TensorSpecs& outputs) {
  const auto gates = static_cast<double>(Gates(spec) * spec.Int("hidden_size"));
  const auto out = static_cast<double>(OutputSize(spec));
  Traced x = inputs[0];
  const double rows = x.elements() / x.last_dim();
  for (int64_t layer = 0; layer < spec.Int("num_layers"); ++layer) {
    const auto in = static_cast<double>(InputSize(spec, layer));
    const Traced y = tape.Fresh(outputs[0]);
    for (int64_t direction = 0; direction < Directions(spec); ++direction) {
      double weights = gates * (in + out);
      if (out != spec.Number("hidden_size")) weights += out * spec.Number("hidden_size");
      Multiply(tape, spec, x, y, 2 * rows * weights, weights);
      const Traced of_cells = tape.Fresh(x, rows * (gates + 2 * spec.Number("hidden_size")));
      tape.Keep(of_cells);
      tape.Touch(2 * of_cells.bytes(), 3 * of_cells.bytes());
      tape.Scratch(of_cells.bytes(), of_cells.bytes() + 4 * weights);
    }
    tape.Keep(x);
    tape.Keep(y);
    const bool is_last = layer == spec.Int("num_layers") - 1;
    x = is_last ? y : ApplyDropout(tape, y, spec.Number("dropout"));
  }
  std::vector<Traced> given = {x};
  for (size_t i = 1; i < outputs.size(); ++i) given.push_back(tape.Fresh(outputs[i]));
  return given;
}

LayerType Recurrent(std::string name, std::string help) {
  FieldTable fields = {Field::Int("input_size", "features of the input").AtLeast(1),
                       Field::Int("hidden_size", "features of a cell's state").AtLeast(1),
                       LayerCount("num_layers", "layers, each on the one before").Default(1)};
  if (name == "RNN") {
    fields.push_back(
        Field::Choice("nonlinearity", {"tanh", "relu"}, "of the cells").Default("tanh"));
  }
  const FieldTable common = {
      Field::Bool("bias", "the cells have offsets").Default(true),
      Field::Bool("batch_first", "(batch, sequence, ...) instead of (sequence, batch, ...)")
          .Default(false),
      Field::Number("dropout", "share of elements between layers set to 0 in training")
          .AtLeast(0)
          .AtMost(1)
          .Default(0.0),
      Field::Bool("bidirectional", "a second cell reads the sequence from its end").Default(false)};
  fields.insert(fields.end(), common.begin(), common.end());
  if (name == "LSTM") {
    fields.push_back(
        Field::Int("proj_size", "features that states are projected to; 0 = they are not")
            .AtLeast(0)
            .Default(0));
  }
  fields.push_back(Device());
  fields.push_back(OwnDType());
  const char* states = name == "LSTM" ? "(cells, N, H), (cells, N, C)" : "(cells, N, H)";
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = Str("(T, N, input_size) and perhaps ", states, " -> (T, N, D H), ", states,
                        "; with batch_first N comes first in the sequence"),
          .gives_states = true,
          .finish = Finish,
          .parameters = Parameters,
          .infer = Infer,
          .cost = Cost};
}

}  // namespace

std::vector<LayerType> RecurrentTypes() {
  return {Recurrent("RNN", "recurrent cells; gives the sequence and the last states"),
          Recurrent("LSTM", "long short-term memory; gives the sequence and the last states"),
          Recurrent("GRU", "gated recurrent units; gives the sequence and the last states")};
}

}  // namespace strata::layers
