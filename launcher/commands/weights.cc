// The commands `strata import`, which converts published weights to those of a job, and `strata
// export`, which converts a save to published weights.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "engine/base/error.h"
#include "engine/base/fields/quantity.h"
#include "engine/base/text.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/checkpoint/weights/low_rank_files.h"
#include "engine/checkpoint/weights/published_config.h"
#include "engine/checkpoint/weights/taking.h"
#include "engine/checkpoint/weights/write_weights.h"
#include "engine/job/flags/flags.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"
#include "launcher/command.h"
#include "launcher/commands/script_job.h"

namespace strata::launcher {
namespace {

using Arguments = std::vector<std::string>;

Flags FlagsOf(const Command& command, Arguments arguments) {
  for (std::string& argument : arguments) {
    if (argument == "-o") argument = "--output";
  }
  Flags flags(arguments, command.flags);
  if (flags.rest().size() != 1) {
    throw ConfigError(
        Str("expected one file or folder: strata ", command.name, " ", command.usage));
  }
  return flags;
}

/// The job's parameters and buffers with their names in saves, without low-rank parts, which no
/// weights have. A tied parameter has the name of its first use.
std::vector<WantedTensor> TensorsOf(const Job& job) {
  std::vector<WantedTensor> tensors;
  std::set<std::string> ties;
  const std::vector<LayerSpec> layers = InWhole(job.layers);
  const std::set<std::string> may_miss = TensorsThatMayMiss(layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    const bool again = !layer.tied_key.empty() && !ties.insert(layer.tied_key).second;
    for (const ParameterSpec& parameter : ParametersOf(layer)) {
      const bool is_tied = std::ranges::count(layer.tied_weights, parameter.name) > 0;
      const std::string name = Str(LayerPath(layer, static_cast<int>(i)), ".", parameter.name);
      const bool is_part = job.adapt.is_on() && IsPartName(name) && !job.adapt.IsBase(name);
      if ((again && is_tied) || is_part) continue;
      tensors.push_back({name, {parameter.shape, parameter.dtype}, may_miss.contains(name)});
    }
  }
  return tensors;
}

/// The weight map, from the flag or else from the script if it is for the same file, and the
/// script's job.
struct Mapping {
  std::unique_ptr<lua::State> state;  // needed to call a map that is a function
  std::vector<LayerSpec> layers;
  std::vector<WantedTensor> tensors;
  WeightMap map;
  std::string prefix;
};

Mapping MappingOf(const Value& own, Flags& flags) {
  Mapping mapping;
  mapping.map = WeightMap::From(own["map"], nullptr);
  if (!own.Has("model")) return mapping;
  mapping.prefix = own["prefix"].as_string();
  mapping.state = std::make_unique<lua::State>(StateOptionsOf(own));
  const Job job = mapping.state->LoadJob(ScriptPath(own["model"].as_string()), flags);
  mapping.layers = InWhole(job.layers);
  mapping.tensors = TensorsOf(job);
  std::error_code error;
  if (!std::filesystem::equivalent(job.weights.from, flags.rest()[0], error)) return mapping;
  if (mapping.prefix.empty()) mapping.prefix = job.weights.prefix;
  if (!own["map"].is_null()) return mapping;
  const Value map = job.weights.map;
  Script& script = mapping.state->script();
  mapping.map = WeightMap::From(map, [map, &script](const Value::List& arguments) {
    return script.Call(map.as_function(), arguments);
  });
  return mapping;
}

constexpr const char* kAsAverages = "as their averages (ema), with which evaluations compute";
constexpr const char* kForValues = "; --averages=false takes the values\n";

/// Replaces values by the averages of a training with ema, and returns a text about it; "" if there
/// are no averages.
std::string WithAverages(const Checkpoint& source, std::vector<MappedTensor>& tensors) {
  int64_t averages = 0;
  for (MappedTensor& tensor : tensors) averages += MapAverage(source, tensor) ? 1 : 0;
  if (averages == 0) return "";
  return Str(Plural(averages, "tensor"), " ", kAsAverages);
}

int Import(const Command& command, const Arguments& arguments) {
  Flags flags = FlagsOf(command, arguments);
  const Value& own = flags.own();
  Mapping mapping = MappingOf(own, flags);
  const auto source = Checkpoint::Open(flags.rest()[0]);
  const MappedWeights weights(*source, std::move(mapping.map), mapping.prefix);
  std::vector<MappedTensor> tensors;
  const Taken taken = Take(weights, mapping.tensors, tensors);
  const std::vector<std::string> troubles = TroublesWith(weights, taken);
  if (!troubles.empty() && own["strict"].as_bool()) {
    throw ConfigError(Str(source->path(), " does not fit ", own["model"].as_string(), ":\n",
                          Join(troubles, "\n"), "\n--strict=false goes on without"));
  }
  if (tensors.empty()) RefuseAll(weights, taken);
  weights.CheckCopies(tensors);
  const std::string averages = WithAverages(*source, tensors);
  const std::string& output = own["output"].as_string();
  WriteWeights(weights, tensors, output);
  std::string text;
  for (const auto& notes : {troubles, ConfigNotes(weights, mapping.layers)}) {
    for (const std::string& note : notes) text += note + "\n";
  }
  text += Str(output, ": ", Plural(static_cast<int64_t>(tensors.size()), "tensor"), " of ",
              source->path(), "\n");
  if (!averages.empty()) text += averages + "\n";
  Print(text);
  return 0;
}

/// The map of the weights beside which the save's low-rank parts were trained; none if it is a
/// function of the script, which a save does not hold.
Value MapOfBase(const Checkpoint& save) {
  const Value& map = save.manifest().training.job["weights"]["map"];
  return map.is_map() && map.Has("function") ? Value() : map;
}

/// Writes the low-rank parts of a save as a folder of PEFT.
int ExportParts(const Checkpoint& save, const WeightMap& map, bool averages,
                const std::string& output) {
  const int64_t count = WritePeft(save, map, averages, output);
  Print(Str(output, ": ", Plural(count, "tensor"), " of ", save.path(),
            " in adapter_model.safetensors, adapter_config.json\n",
            averages && HasAverages(save) ? Str(kAsAverages, kForValues) : ""));
  return 0;
}

/// A line about parts that are merged with other weights than the save names; "" if they are not.
std::string OtherBase(const Checkpoint& save, const std::string& merge) {
  const Value& from = save.manifest().training.job["weights"]["from"];
  const std::string before = from.is_string() ? from.as_string() : "";
  std::error_code error;
  if (before == merge || std::filesystem::equivalent(before, merge, error)) return "";
  return Str("note: the low-rank parts were trained beside ",
             before.empty() ? "initial values" : before, "; nothing checks that ", merge,
             " has the same values\n");
}

/// A line about parts that were trained beside weights in few bits; "" for others.
std::string TrainedAs(const Checkpoint& save) {
  const Value& base = save.manifest().training.job["adapt"]["options"]["base"];
  if (!base.is_string()) return "";
  return Str("note: the low-rank parts were trained beside these weights as ", base.as_string(),
             "; they are added to the weights as the file has them, as PEFT does\n");
}

int Export(const Command& command, const Arguments& arguments) {
  Flags flags = FlagsOf(command, arguments);
  flags.CheckAllTaken();
  for (const auto& [key, value] : flags.job().as_map()) {
    throw ConfigError(Str("export takes no job, and so no --", key));
  }
  const Value& own = flags.own();
  Mapping mapping = MappingOf(own, flags);
  const double shard = ParseBytes(own["shard"], "shard");
  if (!(shard >= 1 && shard < 0x1p62)) throw ConfigError("--shard must be at least a byte");
  const auto save = Checkpoint::Open(flags.rest()[0]);
  const std::string merge = own["merge"].is_null() ? "" : own["merge"].as_string();
  if ((own["adapter"].as_bool() || !merge.empty()) && own["map"].is_null()) {
    mapping.map = WeightMap::From(MapOfBase(*save), nullptr);
  }
  if (own["adapter"].as_bool()) {
    if (!merge.empty()) throw ConfigError("--adapter writes parts, --merge adds them: keep one");
    return ExportParts(*save, mapping.map, own["averages"].as_bool(), own["output"].as_string());
  }
  if (merge.empty() && !save->manifest().training.base.empty()) {
    throw ConfigError(Str(save->path(),
                          " holds the low-rank parts of a job with adapt and no other weights: "
                          "--adapter writes them as PEFT does, --merge=WEIGHTS adds them to the "
                          "weights beside which they were trained"));
  }
  const auto base = merge.empty() ? nullptr : Checkpoint::Open(merge);
  const Checkpoint* const source = base ? base.get() : save.get();
  // Published weights have their names already.
  const bool is_published = base && base->is_plain_file();
  const MappedWeights weights(*source, is_published ? WeightMap() : mapping.map);
  std::vector<MappedTensor> tensors = Exported(weights);
  const bool takes_averages = own["averages"].as_bool();
  const int64_t merged =
      base ? MergeParts(*save, LowRankOptionsOf(*save), mapping.map, takes_averages, tensors) : 0;
  // The parts were trained beside the values of the base.
  std::string averages;
  if (takes_averages && !base) averages = WithAverages(*source, tensors);
  if (takes_averages && base && HasAverages(*save)) averages = Str("the parts ", kAsAverages);
  const std::vector<std::string> files =
      WritePublished(weights, tensors, own["output"].as_string(), static_cast<int64_t>(shard));
  std::string text =
      Str(own["output"].as_string(), ": ", Plural(static_cast<int64_t>(tensors.size()), "tensor"),
          " of ", source->path(), " in ", Join(files, ", "), "\n");
  if (merged > 0) {
    text += Str(Plural(merged, "tensor"), " changed by the low-rank parts of ", save->path(), "\n",
                TrainedAs(*save), OtherBase(*save, merge));
  }
  if (!averages.empty()) text += averages + kForValues;
  Print(text);
  return 0;
}

Field MapField() {
  return Field::String("map",
                       "how names and layouts meet: gpt2, llama, bert, vit, resnet, convnext")
      .Optional();
}

Field OutputField(const char* help) { return Field::String("output", help); }

}  // namespace

Command ImportCommand() {
  return {
      .name = "import",
      .usage = "FILE|FOLDER --model=SCRIPT --output=OUT.safetensors [--map=gpt2]",
      .summary = "makes a job's weights of published ones",
      .details =
          "Takes a safetensors file, what torch.save() wrote of tensors, a folder of either with\n"
          "model.safetensors, pytorch_model.bin or an index of shards, or a save. Writes the\n"
          "parameters and buffers of the script's job, in its dtypes, under the names of its\n"
          "layers; --weights=OUT takes them. What is missing, left over or of another shape is\n"
          "listed. -o is short for --output.",
      .flags = {Field::String("model", "the script of the job"), OutputField("the new file"),
                MapField(),
                Field::String("prefix", "what all names in the source begin with").Default(""),
                Field::Bool("strict", "false: goes on where something does not fit").Default(true),
                ScriptTimeoutField(), AllowReadField()},
      .takes_job = true,
      .run = &Import};
}

Command ExportCommand() {
  return {.name = "export",
          .usage = "FILE|FOLDER --map=gpt2 --output=FOLDER",
          .summary = "makes published weights of a save",
          .details =
              "Takes what import takes. Writes a folder that transformers and torch load:\n"
              "model.safetensors, in shards above a size, and config.json of a save where the map\n"
              "knows it. Without a map names stay; those of low-rank parts are by the map of the\n"
              "training. --merge copies config.json and the tokenizer of its folder, too.\n"
              "-o is short for --output.",
          .flags = {OutputField("the new folder"), MapField(),
                    Field::Any("shard", "the largest file: 5GB, 500MB, or bytes").Default("5GB"),
                    Field::Bool("adapter", "writes a save of a job with adapt as PEFT's files")
                        .Default(false),
                    Field::String("merge",
                                  "the weights beside which a save of a job with adapt was "
                                  "trained: its low-rank parts are added to them")
                        .Optional(),
                    Field::Bool("averages", "those of a training with ema, where the save has them")
                        .Default(true)},
          .run = &Export};
}

}  // namespace strata::launcher
