// Declarations of strata.skip and strata.join, which carry a value past some layers.
#include <algorithm>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// The outputs along the chain; the kept copy is not listed.
TensorSpecs InferSkip(const LayerSpec&, const TensorSpecs& inputs, Script*) { return inputs; }

TensorSpec Added(const TensorSpec& chain, const TensorSpec& kept) {
  if (chain == kept) return chain;
  throw ShapeError(Str("adds the kept ", kept.ToString(), ", got ", chain.ToString()));
}

TensorSpec Joined(const TensorSpec& chain, const TensorSpec& kept, int64_t dim_given) {
  const int64_t dim = WrapDim(dim_given, chain, "dim");
  TensorSpec expected = chain;
  if (kept.shape.size() == chain.shape.size()) expected.shape[dim] = kept.shape[dim];
  if (expected != kept) {
    throw ShapeError(Str("puts the kept ", kept.ToString(), " behind it in dim ", dim, ", got ",
                         chain.ToString()));
  }
  expected.shape[dim] = chain.shape[dim] + kept.shape[dim];
  return expected;
}

/// `inputs` are the tensors of the chain, followed by the kept ones.
TensorSpecs InferJoin(const LayerSpec& spec, const TensorSpecs& inputs, Script*) {
  const std::string& how = spec.args["how"].as_string();
  if (how == "pass") return inputs;
  const size_t count = inputs.size() / 2;
  if (inputs.size() % 2 != 0) {
    throw ShapeError(Str("with how = \"", how, "\" expects as many tensors as were kept, got ",
                         "both together: ", ToString(inputs)));
  }
  TensorSpecs outputs;
  for (size_t i = 0; i < count; ++i) {
    outputs.push_back(how == "add" ? Added(inputs[i], inputs[count + i])
                                   : Joined(inputs[i], inputs[count + i], spec.Int("dim")));
  }
  return outputs;
}

std::vector<Traced> CostOfSkip(LayerTape&, const LayerSpec&, const std::vector<Traced>& inputs,
                               const TensorSpecs&) {
  return inputs;
}

std::vector<Traced> CostOfJoin(LayerTape& tape, const LayerSpec& spec,
                               const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  if (spec.args["how"] == Value("pass")) return inputs;
  std::vector<Traced> joined;
  for (const TensorSpec& output : outputs) {
    joined.push_back(tape.Fresh(output));
    tape.Touch(2 * joined.back().bytes(), joined.back().bytes());
  }
  return joined;
}

TensorSpecs InferDocuments(const LayerSpec&, const TensorSpecs& inputs, Script*) {
  const auto is_like_tokens = [&](const TensorSpec& input) {
    return input.shape.size() == 2 && input == TensorSpec{inputs[0].shape, DType::kInt64};
  };
  if (inputs.size() <= 2 && std::ranges::all_of(inputs, is_like_tokens)) return {inputs[0]};
  throw ShapeError(Str("expects int64 tokens (N, L), and of packed data their places in the ",
                       "documents, of the same shape; got ", ToString(inputs)));
}

std::vector<Traced> CostOfDocuments(LayerTape&, const LayerSpec&, const std::vector<Traced>& inputs,
                                    const TensorSpecs&) {
  return {inputs[0]};
}

Field Key(const char* help) { return Field::String("key", help); }

}  // namespace

std::vector<LayerType> ConnectionTypes() {
  return {
      {.name = "skip",
       .fields = {Key("what strata.join calls it")},
       .help = "keeps its input for a later strata.join, on whatever stage, and passes it on",
       .shapes = "(...) -> (...)",
       .library = "strata",
       .infer = InferSkip,
       .cost = CostOfSkip},
      {.name = "join",
       .fields = {Key("what strata.skip called it"),
                  Field::Choice("how", {"add", "cat", "pass"},
                                "adds what was kept, puts it behind in `dim`, or passes it on as "
                                "further inputs of the next layer")
                      .Default("add"),
                  Field::Int("dim", "for cat; -1 is the last").AtLeast(-kLargestSize).Default(1)},
       .help = "brings back what strata.skip kept",
       .shapes = "add: (...) -> (...); cat: dim is the sum of both; pass: both, as they are",
       .library = "strata",
       .infer = InferJoin,
       .cost = CostOfJoin},
      {.name = "documents",
       .fields = {},
       .help = "the first layer of a job whose data is packed: for all later layers, on whatever "
               "stage, attention sees each document alone, and positions begin anew. Tokens that "
               "are not packed pass",
       .shapes = "(N, L) and, packed, (N, L) -> (N, L)",
       .library = "strata",
       .infer = InferDocuments,
       .cost = CostOfDocuments,
       .is_token_wise = Always},
  };
}

}  // namespace strata::layers
