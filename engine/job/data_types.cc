// The table of data sources: strata.data.NAME{...}.
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/data_source.h"

namespace strata {
namespace {

Field Split() {
  return Field::Choice("split", {"train", "test"}, "which part of the samples").Default("train");
}

Field Shuffle() {
  return Field::Bool("shuffle",
                     "another order in each epoch; none = for data.train, of split train")
      .Optional();
}

Field Samples() { return Field::Int("samples", "how many").AtLeast(1).Default(1024); }

Field Length() {
  return Field::Int("length", "tokens of a sample; none = by the job's input")
      .AtLeast(1)
      .Optional();
}

Field Tokenizer() {
  return Field::String("tokenizer",
                       "a Hugging Face tokenizer.json or a SentencePiece model; none = bytes")
      .NamedOnly()
      .Optional();
}

/// Files to predict for have no targets.
Field Targets() {
  return Field::Bool("targets", "false = the file has none; zeros stand for them")
      .NamedOnly()
      .Optional();
}

Field Pad(const char* help) { return Field::Int("pad", help).NamedOnly().AtLeast(0).Default(0); }

Field Path(const char* help) { return Field::String("path", help); }

TensorSpec Scalar(const Value&) { return {{}, DType::kInt64}; }

TensorSpec Tokens(const Value& options) { return {{options["length"].as_int()}, DType::kInt64}; }

void FitLength(Value& options, const TensorSpec& input) {
  if (options["length"].is_null() && input.shape.size() == 1) {
    options.Set("length", input.shape[0]);
  }
}

DataSourceType Digits() {
  return {.name = "digits",
          .fields = {Split(), Shuffle(),
                     Field::String("path", "the file; none = where the set-up put it").Optional()},
          .help = "UCI digits: images of 8x8, 10 classes",
          .input =
              [](const Value&) {
                return TensorSpec{{1, 8, 8}, DType::kFloat32};
              },
          .target = Scalar,
          .classes = [](const Value&) { return int64_t{10}; }};
}

void FitImageSize(Value& options, const TensorSpec& input) {
  const bool square = input.shape.size() == 3 && input.shape[1] == input.shape[2];
  if (options["size"].is_null() && square) options.Set("size", input.shape[1]);
}

DataSourceType Cifar10() {
  return {
      .name = "cifar10",
      .fields = {Field::String("path", "folder of the binary files"), Split(), Shuffle(),
                 Field::Int("size", "images are resized to it; none = by the job's input, or 32")
                     .AtLeast(1)
                     .Optional()},
      .help = "CIFAR-10 in its binary form: colour images, 10 classes",
      .fit = FitImageSize,
      .input =
          [](const Value& options) {
            const int64_t size = options["size"].is_null() ? 32 : options["size"].as_int();
            return TensorSpec{{3, size, size}, DType::kFloat32};
          },
      .target = Scalar,
      .classes = [](const Value&) { return int64_t{10}; }};
}

DataSourceType Text() {
  return {.name = "text",
          .fields = {Field::String("path",
                                   "a file, or a folder of files; none = the licence texts "
                                   "of this machine")
                         .Optional(),
                     Field::Choice("split", {"train", "test", "all"},
                                   "which part of the samples: test is every tenth piece")
                         .Default("train"),
                     Shuffle(), Length(), Tokenizer(),
                     Field::Bool("targets",
                                 "false = predictions are made of all pieces; zeros stand for them")
                         .NamedOnly()
                         .Optional()},
          .help = "text as bytes or tokens; the target is the next one",
          .fit = FitLength,
          .input = Tokens,
          .target = Tokens,
          .classes =
              [](const Value& options) {
                return options["tokenizer"].is_null() ? int64_t{256} : int64_t{0};
              },
          .paths = {"path", "tokenizer"},
          .needs = {"length"}};
}

void FitImageShape(Value& options, const TensorSpec& input) {
  if (options["shape"].is_null()) options.Set("shape", Value::IntList(input.shape));
}

DataSourceType Images() {
  return {
      .name = "images",
      .fields = {Field::Shape("shape", "of an image; none = the job's input").AtLeast(1).Optional(),
                 Field::Int("classes", "how many").AtLeast(1).Default(10), Samples(), Split(),
                 Shuffle()},
      .help = "synthetic images with classes, always the same ones",
      .fit = FitImageShape,
      .input =
          [](const Value& options) {
            return TensorSpec{options["shape"].as_ints(), DType::kFloat32};
          },
      .target = Scalar,
      .classes = [](const Value& options) { return options["classes"].as_int(); },
      .needs = {"shape"}};
}

DataSourceType SyntheticTokens() {
  return {.name = "tokens",
          .fields = {Field::Int("vocabulary", "how many tokens there are").AtLeast(1), Length(),
                     Samples(), Split(), Shuffle()},
          .help = "synthetic sequences, always the same ones; the target is the next token",
          .fit = FitLength,
          .input = Tokens,
          .target = Tokens,
          .classes = [](const Value& options) { return options["vocabulary"].as_int(); },
          .needs = {"length"}};
}

// ---- Sources whose shapes, classes and number of samples are known only after opening them

DataSourceType ImageFolder() {
  return {.name = "image_folder",
          .fields = {Path("a folder with a sub-folder of JPEG and PNG files for each class"),
                     Field::Int("size",
                                "images are resized to it, the shorter side, and cropped in the "
                                "middle; none = by the job's input")
                         .AtLeast(1)
                         .AtMost(8192)
                         .Optional(),
                     Field::Int("channels", "3 = colour, 1 = grey").AtLeast(1).AtMost(3).Default(3),
                     Field::Choice("broken", {"error", "skip"},
                                   "what becomes of files that are no whole image; in place of a "
                                   "skipped one the next whole one is read")
                         .NamedOnly()
                         .Default("error"),
                     Targets(), Shuffle()},
          .help = "images with values from 0 to 1; the classes are the sub-folders by name",
          .fit = FitImageSize,
          .needs = {"size"}};
}

DataSourceType Csv() {
  return {
      .name = "csv",
      .fields = {Path("the file"),
                 Field::Any("target", "the column to be predicted, by name; none = the last one")
                     .Optional(),
                 Field::Any("columns", "names of the input's columns; none = all but the target")
                     .Optional(),
                 Field::Bool("normalise", "numbers of the input get mean 0 and deviation 1")
                     .NamedOnly()
                     .Default(false),
                 Field::Choice("task", {"auto", "classes", "numbers"},
                               "what the target is; auto = classes where it has words")
                     .NamedOnly()
                     .Default("auto"),
                 Field::Choice("missing", {"error", "mean"},
                               "an empty cell (or NA, NaN, null, ?) of the input: mean = the "
                               "column's mean, of words none")
                     .NamedOnly()
                     .Default("error"),
                 Field::Choice("unknown", {"error", "none"},
                               "a word of the input that the training has not: none = as if no "
                               "word stood there")
                     .NamedOnly()
                     .Default("error"),
                 Field::String("like",
                               "the file whose words, means and deviations hold: that of the "
                               "training, for test data")
                     .NamedOnly()
                     .Optional(),
                 Field::Bool("header",
                             "the first line has names; else they are \"1\", \"2\", ...; none = "
                             "it has, and no numbers among them")
                     .NamedOnly()
                     .Optional(),
                 Field::String(
                     "separator",
                     "between cells; \"tab\" is a tab; none = a tab for .tsv, else a comma")
                     .NamedOnly()
                     .Optional(),
                 Targets(), Shuffle()},
      .help = "rows of a table; words become a 0 or 1 for each of them",
      .paths = {"path", "like"}};
}

Field Target(const char* help) { return Field::String("target", help).Optional(); }

DataSourceType Npy() {
  return {
      .name = "npy",
      .fields = {Field::String("input", "the file of the inputs; dim 0 counts the samples"),
                 Target("the file of the targets; none = the input itself"), Targets(), Shuffle()},
      .help = "arrays of NumPy, mapped into memory",
      .paths = {"input", "target"}};
}

DataSourceType ArraysIn(const char* name, const char* help) {
  return {.name = name,
          .fields = {Path("the file"),
                     Field::String("input", "name of the inputs' array; dim 0 counts the samples")
                         .Default("x"),
                     Target("name of the targets' array; none = the input itself"), Targets(),
                     Shuffle()},
          .help = help};
}

DataSourceType Idx() {
  return {.name = "idx",
          .fields = {Field::String("images", "the file of the images, .gz too"),
                     Field::String("labels", "the file of the labels, .gz too"), Shuffle()},
          .help = "MNIST's files: grey images with values from 0 to 1, and their labels",
          .paths = {"images", "labels"}};
}

DataSourceType TokenFile() {
  return {.name = "token_file",
          .fields = {Path("the file: nothing but tokens, little-endian"),
                     Field::Choice("dtype", {"uint16", "uint8", "int32", "int64"}, "of a token")
                         .Default("uint16"),
                     Length(),
                     Field::Int("vocabulary", "how many tokens there are; none = not told")
                         .NamedOnly()
                         .AtLeast(1)
                         .Optional(),
                     Shuffle()},
          .help = "tokens in a file, mapped into memory; the target is the next token",
          .fit = FitLength,
          .needs = {"length"}};
}

void FitRecords(Value& options, const TensorSpec& input) {
  options["image"].is_null() ? FitLength(options, input) : FitImageSize(options, input);
}

/// Records with named fields, in files of one of several formats.
DataSourceType Records(const char* name, const char* path, const char* help) {
  return {
      .name = name,
      .fields = {Path(path), Field::String("text", "the field of the text").Default("text"),
                 Field::String("target",
                               "the field of the class: a word or a whole number; none = of texts "
                               "the next token")
                     .Optional(),
                 Length(), Tokenizer(),
                 Field::String("like", "the file whose words are the classes: that of the training")
                     .NamedOnly()
                     .Optional(),
                 Pad("the token behind a text that is shorter than length"), Targets(), Shuffle(),
                 Field::String("tokens", "the field of a list of tokens, in place of a text")
                     .NamedOnly()
                     .Optional(),
                 Field::Any("columns",
                            "names of fields of numbers, or of lists of equal shapes, as the input")
                     .NamedOnly()
                     .Optional(),
                 Field::String("image",
                               "the field of a JPEG or PNG as the input; of a tar "
                               "\"jpg;png\" is the first that a sample has")
                     .NamedOnly()
                     .Optional(),
                 Field::Int("size",
                            "images are resized to it, the shorter side, and cropped in "
                            "the middle; none = by the job's input")
                     .NamedOnly()
                     .AtLeast(1)
                     .AtMost(8192)
                     .Optional(),
                 Field::Int("channels", "3 = colour, 1 = grey")
                     .NamedOnly()
                     .AtLeast(1)
                     .AtMost(3)
                     .Default(3),
                 Field::Choice("task", {"classes", "numbers"}, "what the target is")
                     .NamedOnly()
                     .Default("classes"),
                 Field::Int("window",
                            "samples that are shuffled among each other, for disks that read far "
                            "places slowly and images in Parquet; none = all samples")
                     .NamedOnly()
                     .AtLeast(1)
                     .Optional()},
      .help = help,
      .fit = FitRecords,
      .paths = {"path", "like", "tokenizer"},
      .needs = {"length", "size"}};
}

DataSourceType Chat() {
  return {
      .name = "chat",
      .fields =
          {Path("a file, folder or pattern of jsonl, parquet, arrow or webdataset; records have "
                "{\"messages\": [{\"role\":, \"content\":}]} or ShareGPT's {\"conversations\": "
                "[{\"from\":, \"value\":}]}"),
           Field::Any("template",
                      "\"llama3\", \"qwen2.5\", \"mistral\", \"chatml\", or a "
                      "function(messages) -> a list of parts {text=, train=, special=}"),
           Length(), Tokenizer(),
           Field::Choice("train_on", {"answers", "all"},
                         "which tokens the loss counts: answers = the assistant's, and the "
                         "token that ends them; the others' targets are -100")
               .NamedOnly()
               .Default("answers"),
           Pad("the token behind a conversation that is shorter than length"), Shuffle()},
      .help = "conversations as tokens; the target is the next token of an answer",
      .fit = FitLength,
      .paths = {"path", "tokenizer"},
      .needs = {"length"}};
}

DataSourceType Own() {
  return {
      .name = "dataset",
      .fields = {Field::Int("length", "how many samples there are").AtLeast(1),
                 Field::Function("get", "function(i) -> input, target of sample i, from 0 on")
                     .NamedOnly()
                     .Optional(),
                 Field::Function("batch", "function(indices) -> inputs, targets; dim 0 counts them")
                     .NamedOnly()
                     .Optional(),
                 Field::Bool("ragged",
                             "dim 0 of tensors differs between samples, for collate = \"pad\"")
                     .NamedOnly()
                     .Default(false),
                 Shuffle()},
      .help = "samples that a function gives",
      .paths = {}};
}

}  // namespace

const std::vector<DataSourceType>& DataSourceTypes() {
  static const std::vector<DataSourceType> types = {
      Digits(),
      Cifar10(),
      Text(),
      Images(),
      SyntheticTokens(),
      ImageFolder(),
      Csv(),
      Npy(),
      ArraysIn("npz", "arrays of NumPy in one file"),
      ArraysIn("safetensors", "arrays of a safetensors file, mapped into memory"),
      Idx(),
      TokenFile(),
      Records("jsonl", "a file of JSON objects, one a line, or several: a folder, or a name with *",
              "records of JSON lines: texts as bytes or tokens, or numbers"),
      Records("parquet", "a .parquet file, or several: a folder, or a name with *",
              "records of Parquet files: texts, tokens, numbers or images"),
      Records("arrow", "a .arrow file, or several: a folder, or a name with *",
              "records of Arrow files, streams too, as Hugging Face's data sets write them"),
      Records("webdataset", "a .tar file, or several: a folder, or a name with *",
              "records of WebDataset's tars: files of one name up to the first dot"),
      Chat(),
      Own()};
  return types;
}

}  // namespace strata
