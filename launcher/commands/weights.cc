// The commands `strata import` and `strata export`: published weights become a job's, and a save
// becomes published weights.
#include <unistd.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/checkpoint/weights/taking.h"
#include "engine/checkpoint/weights/write_weights.h"
#include "engine/spec/fields/quantity.h"
#include "engine/spec/flags/flags.h"
#include "engine/spec/layers/layers.h"
#include "engine/spec/layers/parts.h"
#include "launcher/command.h"
#include "launcher/job/script_job.h"

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

/// The job's parameters and buffers under the names that saves give them: a tied parameter has that
/// of its first use.
std::vector<WantedTensor> TensorsOf(const Job& job) {
  std::vector<WantedTensor> tensors;
  std::set<std::string> ties;
  const std::vector<LayerSpec> layers = InWhole(job.layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    const bool again = !layer.tied_key.empty() && !ties.insert(layer.tied_key).second;
    for (const ParameterSpec& parameter : ParametersOf(layer)) {
      const bool is_tied = std::ranges::count(layer.tied_weights, parameter.name) > 0;
      if (again && is_tied) continue;
      const std::string path = LayerPath(layer, static_cast<int>(i));
      tensors.push_back({Str(path, ".", parameter.name), {parameter.shape, parameter.dtype}});
    }
  }
  return tensors;
}

/// The map of the flag, else the script's, else none; and with it the job that the script
/// describes.
struct Mapping {
  std::vector<WantedTensor> tensors;
  WeightMap map;
  std::string prefix;
};

Mapping MappingOf(const Value& own, Flags& flags) {
  Mapping mapping;
  mapping.map = WeightMap::From(own["map"], nullptr);
  if (!own.Has("model")) return mapping;
  mapping.prefix = own["prefix"].as_string();
  lua::State state(StateOptionsOf(own));
  const Job job = state.LoadJob(ScriptPath(own["model"].as_string()), flags);
  mapping.tensors = TensorsOf(job);
  return mapping;
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
  const std::string& output = own["output"].as_string();
  WriteWeights(weights, tensors, output);
  std::string text = troubles.empty() ? "" : Join(troubles, "\n") + "\n";
  text += Str(output, ": ", Plural(static_cast<int64_t>(tensors.size()), "tensor"), " of ",
              source->path(), "\n");
  WriteAll(STDOUT_FILENO, text, "standard output");
  return 0;
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
  const auto source = Checkpoint::Open(flags.rest()[0]);
  const MappedWeights weights(*source, std::move(mapping.map));
  std::vector<MappedTensor> tensors = Exported(weights);
  int64_t averages = 0;
  for (MappedTensor& tensor : tensors) {
    averages += own["averages"].as_bool() && MapAverage(*source, tensor) ? 1 : 0;
  }
  const std::vector<std::string> files =
      WritePublished(weights, tensors, own["output"].as_string(), static_cast<int64_t>(shard));
  std::string text =
      Str(own["output"].as_string(), ": ", Plural(static_cast<int64_t>(tensors.size()), "tensor"),
          " of ", source->path(), " in ", Join(files, ", "), "\n");
  if (averages > 0) {
    text += Str(Plural(averages, "tensor"), " as their averages (ema), with which evaluations ",
                "compute; --averages=false takes the values\n");
  }
  WriteAll(STDOUT_FILENO, text, "standard output");
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
              "knows it. Without a map names stay. -o is short for --output.",
          .flags = {OutputField("the new folder"), MapField(),
                    Field::Any("shard", "the largest file: 5GB, 500MB, or bytes").Default("5GB"),
                    Field::Bool("averages", "those of a training with ema, where the save has them")
                        .Default(true)},
          .run = &Export};
}

}  // namespace strata::launcher
