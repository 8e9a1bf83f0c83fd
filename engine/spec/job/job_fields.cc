#include "engine/spec/job/job_fields.h"

#include "engine/spec/job/data_source.h"
#include "engine/spec/job/job.h"

namespace strata {
namespace {

std::vector<const FieldTable*> SourceTables() {
  std::vector<const FieldTable*> tables;
  for (const DataSourceType& type : DataSourceTypes()) tables.push_back(&type.fields);
  return tables;
}

Field LearningRate() { return Field::Number("lr", "learning rate").AtLeast(0).Default(1e-3); }

Field Momentum() {
  return Field::Number("momentum", "share of the last step that goes on").AtLeast(0).Default(0.0);
}

Field WeightDecay(double fallback, const char* help) {
  return Field::Number("weight_decay", help).AtLeast(0).Default(fallback);
}

/// PyTorch's arguments that say how the update is executed (foreach, fused, ...).
Field HowItRuns(std::string name) {
  return Field::Refused(std::move(name), "the engine runs one fused update for each flat buffer");
}

void AddCommonOptions(FieldTable& fields, const std::vector<std::string>& ways_to_run) {
  fields.push_back(Field::Bool("maximize", "goes up the gradient instead of down")
                       .NamedOnly()
                       .Default(false)
                       .OnlyDefaultYet("going up the gradient"));
  for (const std::string& name : ways_to_run) fields.push_back(HowItRuns(name).NamedOnly());
  fields.push_back(
      Field::Any("groups", "{{layers=, parameters=REGEX, dims=, option=value ...}, ...}")
          .NamedOnly()
          .Optional());
}

FieldTable SgdFields() {
  FieldTable fields = {
      LearningRate(), Momentum(),
      Field::Number("dampening", "share of the gradient that momentum leaves out").Default(0.0),
      WeightDecay(0, "share of the parameter added to its gradient"),
      Field::Bool("nesterov", "looks ahead by the momentum").Default(false)};
  AddCommonOptions(fields, {"foreach", "differentiable", "fused"});
  return fields;
}

FieldTable AdamFields(double weight_decay, const char* weight_decay_help) {
  FieldTable fields = {
      LearningRate(),
      Field::Numbers("betas", 2, "shares of the old averages of gradient and square")
          .AtLeast(0)
          .Below(1)
          .Default(Value::List{0.9, 0.999}),
      Field::Number("eps", "added to the divisor").AtLeast(0).Default(1e-8),
      WeightDecay(weight_decay, weight_decay_help),
      Field::Bool("amsgrad", "divides by the largest average so far").Default(false)};
  AddCommonOptions(fields, {"foreach", "capturable", "differentiable", "fused"});
  return fields;
}

int SgdMoments(const Value& options) { return options["momentum"].as_double() == 0 ? 0 : 1; }

/// The averages of gradient and square, and the largest of the latter.
int AdamMoments(const Value& options) {
  return options.Has("amsgrad") && options["amsgrad"].as_bool() ? 3 : 2;
}

/// PyTorch's Adam, which can be AdamW as well.
FieldTable PlainAdamFields() {
  FieldTable fields = AdamFields(0, "share of the parameter added to its gradient");
  fields.push_back(Field::Refused("decoupled_weight_decay", "use adamw").NamedOnly());
  return fields;
}

Field WarmupSteps() {
  return Field::Int("warmup", "steps of linear rise before").NamedOnly().AtLeast(0).Default(0);
}

FieldTable DecayFields() {
  return {Field::Int("steps", "length of the decay in steps; none = the rest of the training")
              .AtLeast(1)
              .Optional(),
          Field::Number("final", "factor at its end").AtLeast(0).Default(0.0), WarmupSteps()};
}

FieldTable StepFields() {
  return {Field::Int("every", "steps between two drops").AtLeast(1),
          Field::Number("gamma", "factor of each drop").AtLeast(0).Default(0.1), WarmupSteps()};
}

}  // namespace

const FieldTable& InputFields() {
  static const FieldTable fields = {
      Field::Shape("shape", "of one sample, without the batch dim").AtLeast(1),
      Field::DType("dtype", "of its elements").Default("float32"),
  };
  return fields;
}

const FieldTable& ParallelFields() {
  static const FieldTable fields = {
      Field::Int("pipe", "ranks that share the list of layers").AtLeast(1).Optional(),
      Field::Int("data", "replicas of the pipeline; none = what the ranks allow")
          .AtLeast(1)
          .Optional(),
      Field::Int("model", "ranks that share each layer").AtLeast(1).Optional(),
  };
  return fields;
}

const FieldTable& BatchFields() {
  static const FieldTable fields = {
      Field::Int("size", "samples of a replica's batch").AtLeast(1).Optional(),
      Field::Int("micro_batches", "pieces that the batch is cut into").AtLeast(1).Optional(),
      Field::Int("micro_batch_size", "samples of each piece").AtLeast(1).Optional(),
  };
  return fields;
}

const FieldTable& RecomputeFields() {
  static const FieldTable fields = {
      Field::Int("every", "layers that run again at a time").AtLeast(1).AtMost(1e6),
  };
  return fields;
}

const FieldTable& EvalFields() {
  static const FieldTable fields = {
      Field::Int("every", "steps between two evaluations; 0 = only at the end")
          .AtLeast(0)
          .Default(0),
      Field::Int("batch", "samples of a micro-batch; none = as in training").AtLeast(1).Optional(),
      Field::Choice("metric", {"auto", "accuracy", "none"}, "auto = accuracy for class losses")
          .Default("auto"),
  };
  return fields;
}

const FieldTable& SaveFields() {
  static const FieldTable fields = {
      Field::String("dir", "the folder of saves; none = nothing is saved"),
      Field::Int("every", "steps between two saves; none = only at the end").AtLeast(1).Optional(),
      Field::Int("keep", "saves that stay, the newest; 0 = all").AtLeast(0).Default(2),
  };
  return fields;
}

const FieldTable& WeightsFields() {
  static const FieldTable fields = {
      Field::String("from",
                    "a save, a safetensors file, what torch.save() wrote, or a folder of shards"),
      Field::Any("map",
                 "how names and layouts meet: gpt2, resnet, ..., a table of rules, a function")
          .Optional(),
      Field::Any("except", "layers that keep their initial values: indices, names, type:REGEX")
          .Optional(),
      Field::String("prefix", "what all names there begin with").Default(""),
      Field::Bool("strict",
                  "true = all must fit, false = goes on without; none = true with a map, else what "
                  "is missing is listed")
          .Optional(),
  };
  return fields;
}

const FieldTable& DataFields() {
  static const FieldTable fields = {
      Field::Table("train", SourceTables(), "a source, or a function(i) -> input, target")
          .Optional(),
      Field::Table("test", SourceTables(), "a source with an end").Optional(),
      Field::Int("workers", "threads of a rank that read ahead; none = 1 for data in files")
          .AtLeast(0)
          .AtMost(64)
          .Optional(),
      Field::Choice("collate", {"stack", "pad"},
                    "pad = samples are filled up to the longest of a micro-batch, and a mask is a "
                    "further input")
          .Optional(),
      Field::Int("prefetch", "micro-batches that are read ahead; none = 2")
          .AtLeast(1)
          .AtMost(1024)
          .Optional(),
  };
  return fields;
}

const std::vector<OptionTable>& OptimizerTypes() {
  static const std::vector<OptionTable> types = {
      {"sgd", SgdFields(), SgdMoments},
      {"adam", PlainAdamFields(), AdamMoments},
      {"adamw", AdamFields(0.01, "share of the parameter taken off at each step, times lr"),
       AdamMoments},
  };
  return types;
}

const std::vector<OptionTable>& LrScheduleTypes() {
  static const std::vector<OptionTable> types = {
      {"constant", {}},
      {"warmup", {Field::Int("steps", "steps of linear rise to the full lr").AtLeast(1)}},
      {"linear", DecayFields()},
      {"cosine", DecayFields()},
      {"step", StepFields()},
  };
  return types;
}

const FieldTable& ParameterGroupFields() {
  static const FieldTable fields = {
      Field::Any("layers", "indices, names, type:REGEX; none = all").Optional(),
      Field::String("parameters",
                    "regular expression found in the parameter's name, as saves have it: 3.weight")
          .Default(""),
      Field::Any("dims", "how many dims the parameter has: a number, or <2, >=2, ==1").Optional(),
  };
  return fields;
}

}  // namespace strata
