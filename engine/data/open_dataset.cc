#include "engine/data/open_dataset.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/sources.h"
#include "engine/data/steps.h"

namespace strata {
namespace {

struct Source {
  const char* kind;
  std::unique_ptr<Dataset> (*open)(const DataSpec&, const DatasetContext&);
};

constexpr Source kSources[] = {
    {"digits", data::OpenDigits},   {"cifar10", data::OpenCifar10},
    {"text", data::OpenText},       {"images", data::OpenImages},
    {"tokens", data::OpenTokens},   {"image_folder", data::OpenImageFolder},
    {"csv", data::OpenCsv},         {"npy", data::OpenNpy},
    {"npz", data::OpenNamedArrays}, {"safetensors", data::OpenNamedArrays},
    {"idx", data::OpenIdx},         {"token_file", data::OpenTokenFile},
    {"jsonl", data::OpenRecords},   {"parquet", data::OpenRecords},
    {"arrow", data::OpenRecords},   {"webdataset", data::OpenRecords},
    {"chat", data::OpenChat},       {"dataset", data::OpenOwn},
};

struct Step {
  const char* kind;
  std::unique_ptr<Dataset> (*open)(const Value& options, data::StepInputs of,
                                   const DatasetContext&);
};

constexpr Step kSteps[] = {
    {"part", data::OpenPart},           {"take", data::OpenTake},
    {"concat", data::OpenConcat},       {"shuffled", data::OpenShuffled},
    {"cache", data::OpenCache},         {"map", data::OpenMap},
    {"pack", data::OpenPack},           {"filter", data::OpenFilter},
    {"resize", data::OpenResize},       {"random_crop", data::OpenRandomCrop},
    {"flip", data::OpenFlip},           {"jitter", data::OpenJitter},
    {"normalise", data::OpenNormalise}, {"to_float", data::OpenToFloat},
    {"one_hot", data::OpenOneHot},      {"mix_up", data::OpenMixUp},
};

/// Opens a source of the option `of` of a step.
std::shared_ptr<const Dataset> OpenOf(const Value& source, const DatasetContext& context) {
  DatasetContext own = context;
  // The job's input describes the result of the last step only.
  own.input.reset();
  return OpenDataset({source["source"].as_string(), source, {}, ""}, own);
}

constexpr uint64_t kOfParts = 4;  // purpose for SampleSeed()

/// Opens the sources that a step is made from. Each of several gets its own seed, since they may be
/// the same data and should draw different numbers.
data::StepInputs OpenParts(const Value& of, const DatasetContext& context) {
  if (of.is_map()) return {OpenOf(of, context)};
  data::StepInputs parts;
  for (const Value& source : of.as_list()) {
    DatasetContext own = context;
    const auto number = static_cast<int64_t>(parts.size());
    const auto seed = static_cast<uint64_t>(context.seed);
    if (number > 0) own.seed = static_cast<int64_t>(SampleSeed(seed, number, kOfParts));
    parts.push_back(OpenOf(source, own));
  }
  return parts;
}

/// Opens the data with its own class numbers.
std::unique_ptr<Dataset> OpenAsItIs(const DataSpec& spec, const DatasetContext& context) {
  std::vector<std::string> kinds;
  for (const Source& source : kSources) {
    if (spec.kind == source.kind) return source.open(spec, context);
    kinds.push_back(source.kind);
  }
  for (const Step& step : kSteps) {
    if (spec.kind != step.kind) continue;
    DatasetContext below = context;
    below.documents = below.documents || spec.kind == "pack";
    return step.open(spec.options, OpenParts(spec.options["of"], below), context);
  }
  throw ConfigError(Str("no data source \"", spec.kind, "\"", DidYouMean(spec.kind, kinds)));
}

}  // namespace

std::unique_ptr<Dataset> OpenDataset(const DataSpec& spec, const DatasetContext& context) {
  std::unique_ptr<Dataset> data = OpenAsItIs(spec, context);
  const Value* given = spec.options.Find("class_names");
  if (!given) return data;
  std::vector<std::string> names;
  for (const Value& name : given->as_list()) names.push_back(name.as_string());
  if (!data::HasOtherClasses(*data, names)) return data;
  return data::WithClasses(std::move(data), {"data.train", names, {}}, "data.test");
}

}  // namespace strata
