// Declarations of the parts of Llama's blocks (Touvron et al., arXiv:2302.13971 and 2307.09288):
// RotaryEmbedding, GroupedQueryAttention and SwiGLU. PyTorch has no such layers; the names of the
// parameters are those of Hugging Face's Llama.
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// Sets the shares of the weights of linear layers without bias, if the layer is split: a rank has
/// some rows of every weight but the last, and some columns of the last.
std::vector<ParameterSpec> Projections(const LayerSpec& spec, std::vector<ParameterSpec> specs) {
  if (SplitOf(spec).empty()) return specs;
  ShareAll(specs, {.dim = 0});
  specs.back().share = {.dim = 1};
  return specs;
}

ParameterSpec Projection(const char* name, int64_t in, int64_t out) {
  return {.name = Str(name, ".weight"), .shape = {out, in}};
}

/// Records the crossings of a split layer: every rank takes the whole input and computes a summand
/// of the output.
void CrossHeads(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y) {
  if (SplitOn(tape, spec).empty()) return;
  tape.Cross(tape.Reduced(y.bytes()), tape.Reduced(x.bytes()));
}

double Ranks(const LayerTape& tape, const LayerSpec& spec) {
  return SplitOn(tape, spec).empty() ? 1 : tape.model();
}

Field Theta() {
  return Field::Number("rope_theta", "base of the rotary frequencies").Above(0).Default(10000.0);
}

Field Dim(const char* help) { return Field::Int("dim", help).AtLeast(1); }

// ---- RotaryEmbedding

TensorSpec InferRotary(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t dim = spec.Int("dim");
  if (input.shape.size() < 3 || input.shape.back() != dim) {
    RefuseShape(Str("(batch, ..., sequence, ", dim, ")"), input);
  }
  ExpectFloating(input);
  return input;
}

/// The cost of a rotary embedding. The backward keeps a cosine and a sine for each position and
/// pair.
Traced Rotate(LayerTape& tape, const Traced& x, double places) {
  const Traced y = tape.Fresh(x);
  tape.Touch(4 * x.bytes(), 4 * x.bytes());
  tape.Keep(tape.Fresh(x, places * x.last_dim()));
  tape.Scratch(2 * x.bytes(), 2 * x.bytes());
  return y;
}

LayerType RotaryEmbedding() {
  Field theta = Theta();
  theta.name = "theta";
  return {.name = "RotaryEmbedding",
          .fields = {Dim("features of a head, an even number"), theta},
          .help = "turns pairs of features by angles that grow along the sequence",
          .shapes = "(N, ..., T, dim) -> (N, ..., T, dim)",
          .keeps = Keeps::kNothing,
          .finish =
              [](LayerSpec& spec) {
                if (spec.Int("dim") % 2 != 0) throw ConfigError("dim must be even");
              },
          .infer = Unary(InferRotary),
          .cost = [](LayerTape& tape, const LayerSpec&, const std::vector<Traced>& inputs,
                     const TensorSpecs&) -> std::vector<Traced> {
            const Shape& shape = inputs[0].spec.shape;
            return {Rotate(tape, inputs[0], static_cast<double>(shape[shape.size() - 2]))};
          }};
}

// ---- GroupedQueryAttention

void FinishGrouped(LayerSpec& spec) {
  if (spec.args["num_kv_heads"].is_null()) spec.args.Set("num_kv_heads", spec.args["num_heads"]);
  ExpectDivisible(spec, "dim", "num_heads");
  ExpectDivisible(spec, "num_heads", "num_kv_heads");
  if (!spec.args["rope_theta"].is_null() && spec.Int("dim") / spec.Int("num_heads") % 2 != 0) {
    throw ConfigError("rotary positions need an even number of features in a head");
  }
}

int64_t KeyWidth(const LayerSpec& spec) {
  return spec.Int("dim") / spec.Int("num_heads") * spec.Int("num_kv_heads");
}

std::vector<ParameterSpec> GroupedParameters(const LayerSpec& spec) {
  const int64_t dim = spec.Int("dim"), keys = KeyWidth(spec);
  return Projections(spec, {Projection("q_proj", dim, dim), Projection("k_proj", dim, keys),
                            Projection("v_proj", dim, keys), Projection("o_proj", dim, dim)});
}

TensorSpec InferGrouped(const LayerSpec& spec, const TensorSpec& input) {
  if (input.shape.size() != 3 || input.shape[2] != spec.Int("dim")) {
    RefuseShape(Str("(batch, sequence, ", spec.Int("dim"), ")"), input);
  }
  ExpectParameterDType(input);
  return input;
}

std::vector<Traced> GroupedCost(LayerTape& tape, const LayerSpec& spec,
                                const std::vector<Traced>& inputs, const TensorSpecs&) {
  const Traced& x = inputs[0];
  const double width = spec.Number("dim"), ranks = Ranks(tape, spec);
  const double own = width / ranks, keys = static_cast<double>(KeyWidth(spec)) / ranks;
  const auto places = static_cast<double>(x.spec.shape[1]);
  Traced q = ApplyLinear(tape, spec, "q_proj.weight", x, width, own);
  Traced k = ApplyLinear(tape, spec, "k_proj.weight", x, width, keys);
  const Traced v = ApplyLinear(tape, spec, "v_proj.weight", x, width, keys);
  if (!spec.args["rope_theta"].is_null()) {
    q = Rotate(tape, q, places);
    k = Rotate(tape, k, places);
  }
  // If heads of queries share keys and values, copies of these are kept for each head of queries.
  const bool repeats = spec.Int("num_kv_heads") != spec.Int("num_heads");
  for (const Traced& kept : {q, repeats ? tape.Fresh(q) : k, repeats ? tape.Fresh(q) : v}) {
    tape.Keep(kept);
    tape.Touch(2 * kept.bytes(), 2 * kept.bytes());
  }
  tape.Multiply(4 * x.elements() / width * places * own, /*has_weight=*/false, false);
  const Traced mixed = tape.Fresh(q);
  tape.Keep(tape.Fresh(x, x.elements() / width * spec.Number("num_heads") / ranks));
  const Traced y = ApplyLinear(tape, spec, "o_proj.weight", mixed, own, width);
  CrossHeads(tape, spec, x, y);
  return {y};
}

LayerType GroupedQueryAttention() {
  Field causal = Causal();
  causal.Default(true);
  return {
      .name = "GroupedQueryAttention",
      .fields =
          {Dim("features of the input and the output"),
           Field::Int("num_heads", "heads of queries, each of dim / num_heads features").AtLeast(1),
           Field::Int("num_kv_heads",
                      "heads of keys and values, which queries share; none = num_heads")
               .AtLeast(1)
               .Optional(),
           Theta().OrNone(), causal},
      .help = "attention with rotary positions, of which groups of queries share keys and values",
      .shapes = "(N, T, dim) -> (N, T, dim)",
      .multiplies_linear = true,
      .splits = {"heads"},
      .finish = FinishGrouped,
      .parameters = GroupedParameters,
      .infer = Unary(InferGrouped),
      .cost = GroupedCost,
      .kept_of_token = [](const LayerSpec& spec) { return 2 * KeyWidth(spec); },
      .is_token_wise = [](const LayerSpec& spec) { return spec.Bool("causal"); }};
}

// ---- SwiGLU

std::vector<ParameterSpec> GatedParameters(const LayerSpec& spec) {
  const int64_t dim = spec.Int("dim"), hidden = spec.Int("hidden");
  return Projections(spec,
                     {Projection("gate_proj", dim, hidden), Projection("up_proj", dim, hidden),
                      Projection("down_proj", hidden, dim)});
}

TensorSpec InferGated(const LayerSpec& spec, const TensorSpec& input) {
  if (input.shape.size() < 2 || input.shape.back() != spec.Int("dim")) {
    RefuseShape(Str("last dim ", spec.Int("dim")), input);
  }
  ExpectParameterDType(input);
  return input;
}

std::vector<Traced> GatedCost(LayerTape& tape, const LayerSpec& spec,
                              const std::vector<Traced>& inputs, const TensorSpecs&) {
  const Traced& x = inputs[0];
  const double width = spec.Number("dim"), hidden = spec.Number("hidden") / Ranks(tape, spec);
  const Traced gate = ApplyLinear(tape, spec, "gate_proj.weight", x, width, hidden);
  const Traced up = ApplyLinear(tape, spec, "up_proj.weight", x, width, hidden);
  const Traced active = Apply(tape, gate, /*keeps_output=*/true);
  const Traced product = tape.Fresh(up);
  tape.Keep(gate);
  tape.Keep(up);
  tape.Touch(3 * up.bytes(), 4 * up.bytes());
  tape.Scratch(0, 2 * up.bytes());
  const Traced y = ApplyLinear(tape, spec, "down_proj.weight", product, hidden, width);
  CrossHeads(tape, spec, x, y);
  return {y};
}

LayerType SwiGlu() {
  return {.name = "SwiGLU",
          .fields = {Dim("features of the input and the output"),
                     Field::Int("hidden", "features between the linear layers").AtLeast(1)},
          .help = "down_proj(silu(gate_proj(x)) * up_proj(x))",
          .shapes = "(..., dim) -> (..., dim)",
          .multiplies_linear = true,
          .splits = {"hidden"},
          .parameters = GatedParameters,
          .infer = Unary(InferGated),
          .cost = GatedCost,
          .is_token_wise = Always};
}

}  // namespace

std::vector<LayerType> LlamaTypes() {
  return {RotaryEmbedding(), GroupedQueryAttention(), SwiGlu()};
}

}  // namespace strata::layers
