// The table of data steps: data:NAME{...} makes data from other data.
#include "engine/job/data_source.h"

namespace strata {
namespace {

using Of = DataSourceType::Of;

Field Seed() { return Field::Int("seed", "of the random numbers").AtLeast(0).Default(0); }

DataSourceType Step(const char* name, FieldTable fields, const char* help, Of of = Of::kOne) {
  fields.push_back(Field::Bool("shuffle", "another order in each epoch; none = as what it is of")
                       .NamedOnly()
                       .Optional());
  return {.name = name, .fields = std::move(fields), .help = help, .of = of, .paths = {}};
}

Field Chance(const char* name, const char* help) {
  return Field::Number(name, help).AtLeast(0).AtMost(1).Default(0.5);
}

}  // namespace

const std::vector<DataSourceType>& DataStepTypes() {
  static const std::vector<DataSourceType> types = {
      Step("part",
           {Field::Int("begin", "first sample").AtLeast(0), Field::Int("end", "behind the last"),
            Field::Int("seed", "of the order; none = as they come").AtLeast(0).Optional(),
            Field::Int("counted", "samples that split found; none = not told").Optional()},
           "samples begin to end - 1; data:split{...} makes them"),
      Step("take", {Field::Int("count", "how many samples").AtLeast(1)},
           "the first samples, or all where there are fewer"),
      Step("concat", {}, "the samples of all, behind each other", Of::kSeveral),
      Step("shuffled", {Seed()}, "in another order, always the same one; data:shuffle(seed)"),
      Step("cache", {}, "every sample is read once and kept in memory"),
      Step("map", {Field::Function("f", "function(input, target) -> input, target of a sample")},
           "what a function makes of each sample"),
      Step("pack",
           {Field::Int("length", "tokens of a row").AtLeast(1),
            Field::Choice("long", {"refuse", "split"},
                          "what becomes of a document that is longer than a row: an error, or "
                          "several documents")
                .Default("refuse"),
            Seed()},
           "several documents of tokens in each row, which do not see each other"),
      Step("filter", {Field::Function("f", "function(input, target) -> true for samples to keep")},
           "the samples that a function keeps; it sees each once, before the training"),
      Step("resize", {Field::Size("size", 2, "height and width, or both in one").AtLeast(1)},
           "images of another size (bilinear, over all pixels that a new one covers)"),
      Step("random_crop",
           {Field::Size("size", 2, "height and width, or both in one").AtLeast(1),
            Field::Int("padding", "zeros around the image before").AtLeast(0).Default(0)},
           "a random window of each image"),
      Step("flip", {Chance("chance", "of a flip")}, "images mirrored left to right, at random"),
      Step("jitter",
           {Field::Number("brightness", "factors from 1 - x to 1 + x").AtLeast(0).Default(0.0),
            Field::Number("contrast", "likewise, around the image's mean").AtLeast(0).Default(0.0)},
           "images of random brightness and contrast"),
      Step("normalise",
           {Field::Numbers("mean", 0, "of each channel, or of all in one"),
            Field::Numbers("std", 0, "deviation of each channel, or of all in one")},
           "(x - mean) / std of each channel, dim 0"),
      Step("to_float",
           {Field::Number("scale", "a factor; none = 1/255 for uint8, else 1").Optional()},
           "inputs as float32"),
      Step("one_hot",
           {Field::Int("classes", "how many; none = as the data tells").AtLeast(1).Optional()},
           "the class as a 1 among zeros, float32"),
      Step("mix_up",
           {Field::Number("alpha", "of the beta distribution of the shares").Above(0).Default(0.2)},
           "each sample mixed with a random other one, the targets (one_hot) likewise"),
  };
  return types;
}

}  // namespace strata
