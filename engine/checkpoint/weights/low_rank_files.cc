#include "engine/checkpoint/weights/low_rank_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/checkpoint/weights/write_weights.h"
#include "engine/layers/layer_spec.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";
constexpr std::string_view kBefore = "base_model.model.";
constexpr int64_t kLargest = 1 << 20;  // bytes of adapter_config.json
constexpr size_t kDeepest = 20;        // levels of JSON in it

/// A part's name in a save: the weight that it stands beside, and which matrix it is.
struct PartName {
  std::string weight;
  char matrix;
};

/// Undoes LowRankName(); none if it is not the name of a part.
std::optional<PartName> PartOf(std::string_view name) {
  for (const char matrix : {'A', 'B'}) {
    const std::string ending = LowRankName("weight", matrix);
    if (!name.ends_with(ending)) continue;
    std::string_view before = name.substr(0, name.size() - ending.size());
    if (before.ends_with("_weight.")) before.remove_suffix(1);
    return PartName{Str(before, before.ends_with("_weight") ? "" : "weight"), matrix};
  }
  return std::nullopt;
}

/// The rule for a weight, of which our whole matrix is one of theirs.
WeightMap::Found WholeRule(const WeightMap& map, const std::string& weight) {
  auto found = map.Find(weight);
  if (!found) throw ConfigError(Str("the map has no rule for ", QuotedName(weight)));
  if (found->theirs.size() == 1 && found->rule.parts == 1) return *std::move(found);
  throw ConfigError(Str("the low-rank part beside ", QuotedName(weight),
                        " has no place in the published model, which has this matrix ",
                        found->rule.parts > 1 ? "as a part of a tensor" : "in several tensors"));
}

/// The module of a weight: "h.0.attn.c_attn" of "h.0.attn.c_attn.weight".
std::string ModuleOf(const std::string& published) {
  constexpr std::string_view kEnd = ".weight";
  if (!published.ends_with(kEnd)) return published;
  return published.substr(0, published.size() - kEnd.size());
}

Value PeftSource(const WeightMap& map, const std::string& ours) {
  if (const auto part = PartOf(ours)) {
    const std::string published = WholeRule(map, part->weight).theirs[0].front();
    return Str(kBefore, ModuleOf(published), ".lora_", part->matrix, ".weight");
  }
  const auto found = map.Find(ours);
  if (!found || found->theirs.size() != 1 || found->rule.parts != 1) return {};
  return Value::MakeMap(
      {{"1", Str(kBefore, found->theirs[0].front())}, {"transpose", found->rule.transpose}});
}

/// The tensor itself, or its average if that is asked for and the save has it.
const SavedTensor& ValuesOrAverage(const Checkpoint& save, const SavedTensor& tensor,
                                   bool averages) {
  const SavedTensor* const average = averages ? AverageOf(save, tensor) : nullptr;
  return average ? *average : tensor;
}

const SavedTensor& Matrix(const Checkpoint& save, const std::string& weight, char matrix) {
  const SavedTensor* const found = save.manifest().Find(LowRankName(weight, matrix));
  if (found && found->spec.shape.size() == 2) return *found;
  throw ConfigError(Str(save.path(), " has no matrix ", QuotedName(LowRankName(weight, matrix))));
}

std::vector<double> Values(const Checkpoint& save, const SavedTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.spec.elements()));
  const MappedWeights weights(save, WeightMap());
  MappedTensor whole = {tensor.name, {tensor.spec.shape, DType::kFloat64}, {{&tensor, 0, 0}}};
  weights.Read(whole, Slice::Whole(tensor.spec.shape), values.data());
  return values;
}

/// Adds scale B A to `values`, which has the layout of the published weight.
void AddProduct(const Checkpoint& save, const SavedTensor& a, const SavedTensor& b, double scale,
                bool transpose, double* values) {
  const std::vector<double> of_a = Values(save, a), of_b = Values(save, b);
  const auto rank = static_cast<size_t>(a.spec.shape[0]), in = static_cast<size_t>(a.spec.shape[1]);
  const auto out = static_cast<size_t>(b.spec.shape[0]);
  std::vector<double> row(in);
  for (size_t i = 0; i < out; ++i) {
    std::ranges::fill(row, 0);
    for (size_t r = 0; r < rank; ++r) {
      const double factor = scale * of_b[i * rank + r];
      for (size_t j = 0; j < in; ++j) row[j] += factor * of_a[r * in + j];
    }
    for (size_t j = 0; j < in; ++j) values[transpose ? j * out + i : i * in + j] += row[j];
  }
}

MappedTensor& Among(std::vector<MappedTensor>& tensors, const std::vector<std::string>& names,
                    const Checkpoint& save) {
  for (const std::string& name : names) {
    const auto found = std::ranges::find(tensors, name, &MappedTensor::name);
    if (found != tensors.end()) return *found;
  }
  throw ConfigError(
      Str(save.path(), ": the weights to merge with have no tensor ", QuotedName(names.front())));
}

void ExpectShape(const MappedTensor& tensor, std::vector<int64_t> shape, bool transpose,
                 const Checkpoint& save) {
  if (transpose) std::swap(shape.at(0), shape.at(1));
  if (tensor.spec.shape == shape) return;
  throw ConfigError(Str(save.path(), ": tensor ", QuotedName(tensor.name), " is ",
                        tensor.spec.ToString(), " in the weights to merge with; for the low-rank ",
                        "parts it must be ", FormatShape(shape)));
}

bool IsTrained(const SavedTensor& tensor) { return tensor.kind != TensorKind::kMoment; }

}  // namespace

bool IsPartName(std::string_view name) { return PartOf(name).has_value(); }

WeightMap PeftMap(const WeightMap& map) {
  return WeightMap([map](const std::string& ours) { return PeftSource(map, ours); });
}

bool IsPeftFolder(const std::string& folder) {
  std::error_code error;
  return fs::is_regular_file(Str(folder, "/", kConfig), error);
}

std::string PeftTensors(const std::string& folder) { return Str(folder, "/", kTensors); }

LowRankOptions ReadPeftConfig(const std::string& folder) {
  const std::string path = Str(folder, "/", kConfig);
  return ParsePeftConfig(ReadSmallFile(path, kLargest), path);
}

LowRankOptions ParsePeftConfig(std::string_view text, const std::string& path) {
  const Value config = ParseStrictJson(text, kDeepest, path);
  const auto refuse = [&](const std::string& what) { throw ConfigError(Str(path, ": ", what)); };
  if (!config.is_map() || config["peft_type"] != Value("LORA")) {
    refuse(Str("peft_type must be \"LORA\", got ", config["peft_type"].Describe()));
  }
  for (const char* name : {"use_dora", "use_rslora", "lora_bias"}) {
    if (config[name] == Value(true)) refuse(Str(name, " is true, which adapt does not compute"));
  }
  const Value& bias = config["bias"];
  if (!bias.is_null() && bias != Value("none")) refuse(Str("bias is ", bias.Describe()));
  for (const char* name : {"rank_pattern", "alpha_pattern"}) {
    const Value& pattern = config[name];
    const bool is_empty = pattern.is_null() || (pattern.is_map() && pattern.as_map().empty()) ||
                          (pattern.is_list() && pattern.as_list().empty());
    if (!is_empty) refuse(Str(name, " is given, and adapt has one rank and alpha for all parts"));
  }
  for (const char* name : {"r", "lora_alpha"}) {
    if (!config[name].is_number()) refuse(Str(name, " must be a number"));
  }
  if (!config["r"].is_int() || config["r"].as_int() < 1) refuse("r must be at least 1");
  const Value& dropout = config["lora_dropout"];
  return {config["r"].as_int(), config["lora_alpha"].as_double(),
          dropout.is_number() ? dropout.as_double() : 0};
}

LowRankOptions LowRankOptionsOf(const Checkpoint& save) {
  const Value& adapt = save.manifest().training.job["adapt"];
  if (!adapt.is_map()) {
    throw ConfigError(
        Str(save.path(), " is no save of a job with adapt: it has no low-rank parts"));
  }
  const Value& options = adapt["options"];
  return {options["rank"].as_int(), options["alpha"].as_double(), options["dropout"].as_double()};
}

int64_t WritePeft(const Checkpoint& save, const WeightMap& map, bool averages,
                  const std::string& folder) {
  const LowRankOptions options = LowRankOptionsOf(save);
  const WeightMap peft = PeftMap(map);
  std::vector<MappedTensor> tensors;
  Value::List targets;
  Value::List besides;
  bool transposes = false;
  for (const SavedTensor& saved : save.manifest().tensors) {
    if (!IsTrained(saved)) continue;
    const auto found = peft.Find(saved.name);
    if (!found) throw ConfigError(Str("the map has no rule for ", QuotedName(saved.name)));
    const std::string& name = found->theirs[0].front();
    const SavedTensor& source = ValuesOrAverage(save, saved, averages);
    MappedTensor& tensor = tensors.emplace_back(
        MappedTensor{name, saved.spec, {{&source, 0, 0}}, 0, found->rule.transpose});
    if (tensor.transpose) std::swap(tensor.spec.shape.at(0), tensor.spec.shape.at(1));
    tensor.pieces[0].size = tensor.spec.shape.empty() ? 1 : tensor.spec.shape[0];
    const auto part = PartOf(saved.name);
    if (!part) {
      // PEFT names the modules, whatever of them was trained.
      const std::string module = name.substr(kBefore.size(), name.rfind('.') - kBefore.size());
      if (!std::ranges::count(besides, Value(module))) besides.push_back(module);
    } else if (part->matrix == 'A') {
      const WeightMap::Found rule = WholeRule(map, part->weight);
      targets.push_back(ModuleOf(rule.theirs[0].front()));
      transposes |= rule.rule.transpose;
    }
  }
  const Value& from = save.manifest().training.job["weights"]["from"];
  const Value config = Value::MakeMap({{"peft_type", "LORA"},
                                       {"task_type", Value()},
                                       {"base_model_name_or_path", from},
                                       {"r", options.rank},
                                       {"lora_alpha", options.alpha},
                                       {"lora_dropout", options.dropout},
                                       {"target_modules", targets},
                                       {"modules_to_save", besides.empty() ? Value() : besides},
                                       {"bias", "none"},
                                       {"fan_in_fan_out", transposes},
                                       {"inference_mode", true}});
  WriteWithConfig(MappedWeights(save, WeightMap()), tensors, folder, kTensors, kConfig, config);
  return std::ssize(tensors);
}

int64_t MergeParts(const Checkpoint& save, const LowRankOptions& options, const WeightMap& map,
                   bool averages, std::vector<MappedTensor>& tensors) {
  const double scale = options.alpha / static_cast<double>(options.rank);
  int64_t changed = 0;
  for (const SavedTensor& saved : save.manifest().tensors) {
    const auto part = PartOf(saved.name);
    if (!IsTrained(saved) || (part && part->matrix == 'B')) continue;
    ++changed;
    const WeightMap::Found found = WholeRule(map, part ? part->weight : saved.name);
    const bool transpose = found.rule.transpose;
    MappedTensor& tensor = Among(tensors, found.theirs[0], save);
    if (!part) {
      ExpectShape(tensor, saved.spec.shape, transpose, save);
      tensor.from = &save;
      tensor.pieces = {{&ValuesOrAverage(save, saved, averages), 0,
                        tensor.spec.shape.empty() ? 1 : tensor.spec.shape[0]}};
      tensor.dim = 0;
      tensor.transpose = transpose;
      continue;
    }
    const SavedTensor& a = ValuesOrAverage(save, saved, averages);
    const SavedTensor& b = ValuesOrAverage(save, Matrix(save, part->weight, 'B'), averages);
    ExpectShape(tensor, {b.spec.shape[0], a.spec.shape[1]}, transpose, save);
    tensor.change = [&save, &a, &b, scale, transpose](double* values) {
      AddProduct(save, a, b, scale, transpose, values);
    };
  }
  return changed;
}

}  // namespace strata
