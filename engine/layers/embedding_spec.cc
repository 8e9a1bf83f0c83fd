// Declarations of Embedding, of its Megatron-LM name, and of EmbeddingBag.
#include <algorithm>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// Checks padding_idx, and replaces a negative one, which counts from the end, by the index that it
/// means.
void FinishPadding(LayerSpec& spec) {
  const Value& padding = spec.args["padding_idx"];
  if (padding.is_null()) return;
  const int64_t rows = spec.Int("num_embeddings");
  const int64_t index = padding.as_int();
  if (index < -rows || index >= rows) {
    throw ConfigError(Str("padding_idx ", index, " is outside of num_embeddings ", rows));
  }
  if (index < 0) spec.args.Set("padding_idx", index + rows);
}

/// Throws ConfigError for arguments that do not work with a split table: a rank that has a part of
/// the table has not all vectors, or no whole vectors.
void RefuseWithSplit(const LayerSpec& spec) {
  if (SplitOf(spec).empty()) return;
  if (!spec.args["max_norm"].is_null()) throw ConfigError("max_norm does not go with split");
  if (spec.Bool("scale_grad_by_freq")) {
    throw ConfigError("scale_grad_by_freq does not go with split");
  }
}

Field MaxNorm() {
  return Field::Number("max_norm", "longer vectors are shortened to this norm when they are used")
      .Above(0)
      .Optional();
}

Field NormType() {
  return Field::Any("norm_type", "which norm max_norm means: a number above 0, or math.huge")
      .Default(2.0);
}

Field ScaleByFrequency() {
  return Field::Bool("scale_grad_by_freq", "divides gradients by the index's count in the batch")
      .Default(false);
}

Field Sparse() {
  return Field::Refused("sparse", "gradients live in dense buffers that the engine owns");
}

Field GivenWeight() { return Field::Refused("_weight", "initial values come from the job's seed"); }

/// Checks norm_type. It is a Field::Any because Field::Number does not take infinity, which means
/// the maximum norm.
void FinishNormType(LayerSpec& spec) {
  const Value& given = spec.args["norm_type"];
  if (!given.is_number() || !(given.as_double() > 0)) {
    throw ConfigError(
        Str("norm_type expects a number above 0, or math.huge; got ", given.Describe()));
  }
  spec.args.Set("norm_type", given.as_double());
}

void Finish(LayerSpec& spec) {
  FinishPadding(spec);
  FinishNormType(spec);
  RefuseWithSplit(spec);
}

/// With split "row" each rank has some of the vectors; with "column" it has a part of every vector.
std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  std::vector<ParameterSpec> specs = {
      {.name = "weight", .shape = {spec.Int("num_embeddings"), spec.Int("embedding_dim")}}};
  const std::string split = SplitOf(spec);
  if (!split.empty()) ShareAll(specs, {.dim = split == "row" ? 0 : 1});
  return specs;
}

void ExpectIndices(const TensorSpec& input) {
  if (input.dtype == DType::kInt64 || input.dtype == DType::kInt32) return;
  throw ShapeError(Str("expects int64 or int32 indices, got ", input.ToString()));
}

TensorSpec Infer(const LayerSpec& spec, const TensorSpec& input) {
  ExpectIndices(input);
  TensorSpec output = {input.shape, DType::kFloat32};
  output.shape.push_back(spec.Int("embedding_dim"));
  return output;
}

std::vector<Traced> Cost(LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                         const TensorSpecs& outputs) {
  const Traced& indices = inputs[0];
  const std::string split = SplitOn(tape, spec);
  const int parts = split == "column" ? tape.model() : 1;
  Traced y = tape.Fresh(outputs[0], parts);
  tape.Touch(2 * y.bytes(), 0, spec.frozen ? 0 : 3 * y.bytes());
  if (!spec.frozen) tape.Defer(indices, y);
  const double rows = std::min(indices.elements(), spec.Number("num_embeddings"));
  tape.Scratch(0, 4 * rows * spec.Number("embedding_dim") / parts);
  if (split == "row") tape.Cross(tape.Reduced(y.bytes()), 0);
  if (split == "column" && !spec.output_shard) {
    y = tape.Fresh(y.spec);
    tape.Cross(tape.Gathered(y.bytes()), 0);
  }
  return {y};
}

FieldTable Fields() {
  return {
      Field::Int("num_embeddings", "number of vectors").AtLeast(1),
      Field::Int("embedding_dim", "size of each vector").AtLeast(1),
      Field::Int("padding_idx", "the index whose vector starts at 0 and never learns").Optional(),
      MaxNorm(),
      NormType(),
      ScaleByFrequency(),
      Sparse(),
      GivenWeight(),
      Field::Refused("_freeze", "use the job's freeze"),
      Device(),
      OwnDType(),
  };
}

// ---- EmbeddingBag

void FinishBag(LayerSpec& spec) {
  FinishPadding(spec);
  FinishNormType(spec);
  if (spec.args["mode"] == Value("max") && spec.Bool("scale_grad_by_freq")) {
    throw ConfigError("scale_grad_by_freq does not go with mode \"max\"");
  }
}

/// The inputs are indices (batch, length of a bag), and optionally a factor for each index in the
/// same shape.
TensorSpecs InferBag(const LayerSpec& spec, const TensorSpecs& inputs, Script*) {
  if (inputs.empty() || inputs.size() > 2) {
    throw ShapeError(Str("expects indices, or indices and their factors, got ", ToString(inputs)));
  }
  const TensorSpec& indices = inputs[0];
  ExpectIndices(indices);
  ExpectDims(indices, 2, "(batch, indices of a bag)");
  if (inputs.size() == 2) {
    if (spec.args["mode"] != Value("sum")) throw ShapeError("takes factors with mode \"sum\" only");
    if (inputs[1].shape != indices.shape) RefuseShape(FormatShape(indices.shape), inputs[1]);
    ExpectParameterDType(inputs[1]);
  }
  return {{{indices.shape[0], spec.Int("embedding_dim")}, DType::kFloat32}};
}

/// The backward keeps the inputs and the bag of each index. It computes the gradient of the whole
/// table before it is added to the sums.
std::vector<Traced> BagCost(LayerTape& tape, const LayerSpec& spec,
                            const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  const Traced& indices = inputs[0];
  const Traced y = tape.Fresh(outputs[0]);
  const double vectors = 4 * indices.elements() * spec.Number("embedding_dim");
  const double table = 4 * spec.Number("num_embeddings") * spec.Number("embedding_dim");
  tape.Touch(vectors + y.bytes(), 0, spec.frozen ? 0 : vectors + 3 * table);
  for (const Traced& input : inputs) tape.Keep(input);
  tape.Keep(tape.Fresh(indices));
  tape.Scratch(0, table);
  return {y};
}

bool TakesMaxima(const LayerSpec& spec) { return spec.args["mode"] == Value("max"); }

LayerType EmbeddingBag() {
  return {.name = "EmbeddingBag",
          .fields = {Field::Int("num_embeddings", "number of vectors").AtLeast(1),
                     Field::Int("embedding_dim", "size of each vector").AtLeast(1), MaxNorm(),
                     NormType(), ScaleByFrequency(),
                     Field::Choice("mode", {"sum", "mean", "max"}, "what a bag's vectors become")
                         .Default("mean"),
                     Sparse(), GivenWeight(),
                     Field::Refused("include_last_offset", "bags are the rows of the input"),
                     Field::Int("padding_idx", "an index that does not count and never learns")
                         .Optional(),
                     Device(), OwnDType()},
          .help =
              "the sum, the mean or the maximum of the vectors of each row of indices; with mode "
              "sum a second tensor may hold their factors",
          .shapes = "(N, L) of indices -> (N, embedding_dim)",
          .finish = FinishBag,
          .parameters = Parameters,
          .infer = InferBag,
          .cost = BagCost,
          .unordered_on_gpu = TakesMaxima};
}

}  // namespace

std::vector<LayerType> EmbeddingTypes() {
  const LayerType embedding = {.name = "Embedding",
                               .fields = Fields(),
                               .help = "the vector of each index",
                               .shapes = "(...) of indices -> (..., embedding_dim)",
                               .splits = {"column", "row"},
                               .finish = Finish,
                               .parameters = Parameters,
                               .infer = Unary(Infer),
                               .cost = Cost,
                               .is_token_wise = Always};
  return {embedding,
          ParallelType(embedding, "VocabParallelEmbedding", "row",
                       "an Embedding of which each rank of the model axis has some "
                       "vectors",
                       Fields()),
          EmbeddingBag()};
}

}  // namespace strata::layers
