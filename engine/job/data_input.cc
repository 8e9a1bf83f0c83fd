// ReadingInput() walks a job's test data from the last step to the innermost source and rebuilds
// it: steps in kLeftOut are dropped, random_crop becomes a resize, other steps are kept, and the
// source gets the user's file. If the file is of another kind than the source, the source for its
// ending takes its place and inherits the options in kCarriedOver.
#include "engine/job/data_input.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/cifar10.h"
#include "engine/job/data_source.h"

namespace strata {
namespace {

/// Steps that choose samples, change them for training, or make targets. Predictions do without
/// them.
constexpr std::array kLeftOut = {"part",   "take", "concat", "shuffled", "filter",
                                 "mix_up", "flip", "jitter", "one_hot"};

/// Other steps that keep the shape of an input.
constexpr std::array kAlike = {"cache", "normalise", "to_float"};

/// Options that determine how a sample is made from a file and that several kinds of source share.
constexpr std::array kCarriedOver = {"tokenizer", "length", "size", "channels"};

/// The source that reads files with these endings. "" stands for a folder.
struct Reader {
  const char* source;
  const char* option;  // the option that names the file
  std::vector<std::string> endings;
};
const std::vector<Reader> kReaders = {
    {"csv", "path", {".csv", ".tsv"}},
    {"jsonl", "path", {".jsonl"}},
    {"parquet", "path", {".parquet"}},
    {"arrow", "path", {".arrow"}},
    {"webdataset", "path", {".tar"}},
    {"npy", "input", {".npy"}},
    {"npz", "path", {".npz"}},
    {"safetensors", "path", {".safetensors"}},
    {"text", "path", {".txt"}},
    {"token_file", "path", {".bin"}},
    {"image_folder", "path", {".jpg", ".jpeg", ".png", ""}},
};

/// Sources of records, which have the same options.
constexpr std::array kRecords = {"jsonl", "parquet", "arrow", "webdataset"};

bool IsOfRecords(const std::string& kind) {
  return std::ranges::find(kRecords, kind) != kRecords.end();
}

const Reader* ReaderOf(const std::string& path) {
  std::string ending = Lower(std::filesystem::path(path).extension().string());
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) ending = "";
  for (const Reader& reader : kReaders) {
    if (std::ranges::find(reader.endings, ending) != reader.endings.end()) return &reader;
  }
  return nullptr;
}

bool Has(const Value& source, const char* option) {
  const DataSourceType* const type = FindDataSource(source["source"].as_string());
  return std::ranges::find(type->fields, option, &Field::name) != type->fields.end();
}

/// Throws ConfigError if the job's table is normalised and `path` would be read by another source:
/// columns are scaled by the table's own means and deviations, which another source does not have.
void CheckScaled(const Value& source, const Reader& reader, const std::string& path,
                 const std::string& where) {
  const Value* const normalise = source.is_map() ? source.Find("normalise") : nullptr;
  if (!normalise || *normalise != Value(true) || source["source"] == Value(reader.source)) return;
  throw ConfigError(Str(Place(where), "input: the job's csv has normalise=true, and ", path,
                        " would be read by ", reader.source, ", which scales nothing; it must be ",
                        "a table (.csv, .tsv)"));
}

/// Adapts a source of images to a job trained on cifar10: images get the size and the normalisation
/// that the source cifar10 gives.
Value AsCifar10(const Value& cifar10, Value images, const TensorSpec* input,
                const std::string& where) {
  images.Set("size", cifar10["size"]);
  if (input) FindDataSource("image_folder")->fit(images, *input);
  if (images["size"].is_null()) images.Set("size", kCifar10Side);
  const Value mean = Value::List(kCifar10Mean.begin(), kCifar10Mean.end());
  const Value deviation = Value::List(kCifar10Deviation.begin(), kCifar10Deviation.end());
  return MakeDataStep("normalise", images, {}, {{"mean", mean}, {"std", deviation}}, where);
}

/// Gives images the size of the job's samples, and one channel if the samples have one.
void FitImages(Value& images, const TensorSpec& sample) {
  if (sample.shape.size() != 3) return;
  FindDataSource("image_folder")->fit(images, sample);
  if (sample.shape[0] == 1) images.Set("channels", 1);
}

/// Returns the innermost source with `path` in the place of its own file.
Value Replaced(const Value& source, const std::string& path, const std::string& where,
               const TensorSpec* input) {
  const std::string kind = source.is_map() ? source["source"].as_string() : "";
  const auto own = std::ranges::find(kReaders, kind, &Reader::source);
  const Reader* reader = ReaderOf(path);
  std::error_code unknown;
  const bool is_folder = reader && std::filesystem::is_directory(path, unknown);
  const bool reads_folders =
      kind == "text" || (IsOfRecords(kind) && FindOption(source, "image").is_null());
  if (own != kReaders.end() && (!reader || (is_folder && reads_folders))) reader = &*own;
  if (!reader) {
    std::vector<std::string> endings;
    for (const Reader& known : kReaders) {
      endings.insert(endings.end(), known.endings.begin(), known.endings.end());
    }
    std::erase(endings, "");
    throw ConfigError(Str(Place(where), "input: nobody knows how to read ", path,
                          "; it is a folder of images, or ends in ", Join(endings, ", ")));
  }
  CheckScaled(source, *reader, path, where);
  Value replaced = source;
  if (IsOfRecords(kind) && IsOfRecords(reader->source)) {
    replaced.Set("source", reader->source);
  } else if (kind != reader->source) {
    replaced = MakeDataSource(reader->source, {}, {{reader->option, path}}, where);
    for (const char* option : kCarriedOver) {
      const Value* const own_value = source.is_map() ? source.Find(option) : nullptr;
      if (own_value && Has(replaced, option)) replaced.Set(option, *own_value);
    }
    if (input && Has(replaced, "channels")) FitImages(replaced, *input);
  }
  if (Has(replaced, "like") && kind == reader->source && replaced["like"].is_null()) {
    replaced.Set("like", source[reader->option]);
  }
  replaced.Set(reader->option, path);
  if (Has(replaced, "shuffle")) replaced.Set("shuffle", false);
  if (Has(replaced, "split")) replaced.Set("split", "train");
  if (Has(replaced, "broken")) replaced.Set("broken", "error");  // no replacement
  if (Has(replaced, "targets")) replaced.Set("targets", false);
  // The job's targets belong to its own file.
  const bool are_arrays = Has(replaced, "input");
  if (are_arrays) replaced.Set("target", Value());
  return replaced;
}

}  // namespace

Value ReadingInput(const Value& source, const std::string& path, const std::string& where,
                   const TensorSpec* input) {
  const Value* of = source.is_map() ? source.Find("of") : nullptr;
  if (!of) {
    Value replaced = Replaced(source, path, where, input);
    const bool is_cifar10 = source.is_map() && source["source"] == Value("cifar10");
    if (!is_cifar10 || replaced["source"] != Value("image_folder")) return replaced;
    return AsCifar10(source, std::move(replaced), input, where);
  }
  const Value& first = of->is_list() ? of->as_list().at(0) : *of;
  const std::string& kind = source["source"].as_string();
  if (kind == "pack") {
    throw ConfigError(Str(Place(where), "input: the job's data is packed, so a row would hold ",
                          "several texts of ", path, "; name it in data.test, or let strata ",
                          "generate go on with each text"));
  }
  const bool is_left_out = std::ranges::find(kLeftOut, kind) != kLeftOut.end();
  const bool is_alike = is_left_out || std::ranges::find(kAlike, kind) != kAlike.end();
  Value inside = ReadingInput(first, path, where, is_alike ? input : nullptr);
  if (is_left_out) return inside;
  // The whole image at the size of the crop, instead of a random window.
  if (kind == "random_crop") {
    return MakeDataStep("resize", inside, {}, {{"size", source["size"]}}, where);
  }
  Value step = source;
  // Null means: as the source below, which was set to false above.
  return step.Set("of", std::move(inside)).Set("shuffle", Value());
}

}  // namespace strata
