#include "engine/job/job_fields.h"

#include "engine/job/data_source.h"
#include "engine/job/job.h"

namespace strata {
namespace {

std::vector<const FieldTable*> SourceTables() {
  std::vector<const FieldTable*> tables;
  for (const DataSourceType& type : DataSourceTypes()) tables.push_back(&type.fields);
  return tables;
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

const FieldTable& CheckFields() {
  static const FieldTable fields = {
      Field::Int("every", "steps between two checked steps").AtLeast(1),
  };
  return fields;
}

const FieldTable& EvalFields() {
  static const FieldTable fields = {
      Field::Int("every", "steps between two evaluations, or epoch; 0 = only at the end")
          .AtLeast(0)
          .Or({"epoch"})
          .Default(0),
      Field::Int("batch", "samples of a micro-batch; none = as in training").AtLeast(1).Optional(),
      Field::Choice("metric", {"auto", "accuracy", "none"}, "auto = accuracy for class losses")
          .Default("auto"),
      Field::Int(
          "class_dim",
          "for a loss function: the dim of the output with the classes, -1 for the last one; "
          "none = the one that labels do not have")
          .Optional(),
      Field::Any("metrics", "further ones: {\"r2\", \"mae\", my=function(output, target) ... end}")
          .Optional(),
      Field::Any("samples",
                 "texts that a language model goes on with: {\"Once upon\", every=100, tokens=50}")
          .Optional(),
  };
  return fields;
}

const FieldTable& TextFields() {
  static const FieldTable fields = {
      Field::Int("tokens", "new ones of each text at most").AtLeast(1).Default(100),
      Field::Number("temperature", "scores are divided by it; 0 = always the likeliest token")
          .AtLeast(0)
          .Default(0.8),
      Field::Int("top_k", "choose among so many likeliest tokens; 0 = among all")
          .AtLeast(0)
          .Default(40),
      Field::Number("top_p", "and among the likeliest whose probabilities add up to it")
          .Above(0)
          .AtMost(1)
          .Default(0.95),
      Field::Int("seed", "of the draws").AtLeast(0).Default(1),
      Field::String("tokenizer",
                    "a tokenizer.json, a SentencePiece model, \"bytes\" or \"numbers\"; none = "
                    "that of the job's data")
          .Optional(),
      Field::Bool("chat",
                  "a prompt is a user's message in the template of the job's chats; its text ends "
                  "with the answer")
          .Default(false),
      Field::Bool("keep", "keep keys and values; else the whole text runs for every token")
          .Default(true),
  };
  return fields;
}

const FieldTable& StopFields() {
  static const FieldTable fields = {
      Field::String("monitor", "what gets no better: test.loss, or test.NAME of a metric")
          .Default("test.loss"),
      Field::Int(
          "patience",
          "it ends at the evaluation that is so many in a row without a better one; 0 is as 1")
          .AtLeast(0)
          .Default(5),
      Field::Number("min_delta", "a smaller change is none").AtLeast(0).Default(0.0),
      Field::Choice("mode", {"min", "max"}, "none = max for metrics of which more is better")
          .Optional(),
  };
  return fields;
}

const FieldTable& CallbackFields() {
  static const FieldTable fields = {
      Field::Function("on_step", "function(record) after each step").Optional(),
      Field::Function("on_eval", "function(record) after each evaluation").Optional(),
      Field::Function("on_epoch", "function{epoch=, step=} after each pass over data.train")
          .Optional(),
  };
  return fields;
}

const FieldTable& SaveFields() {
  static const FieldTable fields = {
      Field::String("dir", "the folder of saves; none = nothing is saved"),
      Field::Int("every", "steps between two saves, or epoch; none = only at the end")
          .AtLeast(1)
          .Or({"epoch"})
          .Optional(),
      Field::Int("keep", "saves that stay, the newest; 0 = all").AtLeast(0).Default(2),
      Field::String("best", "keeps also the best, by test.loss or test.NAME, in its folder best")
          .Optional(),
      Field::Choice("mode", {"min", "max"},
                    "which is the best; none = max for metrics of which more is better")
          .Optional(),
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
      Field::String("input",
                    "a file that data.test reads instead, without targets (strata predict --input)")
          .Optional(),
      Field::Int("workers", "threads of a rank that read ahead; none = 1 for data in files")
          .AtLeast(0)
          .AtMost(64)
          .Optional(),
      Field::Choice("collate", {"stack", "pad"},
                    "pad = samples are filled up to the longest of a micro-batch, and a mask is a "
                    "further input")
          .Optional(),
      Field::Int("prefetch",
                 "micro-batches that are read ahead; none = one more than workers, at least 2")
          .AtLeast(1)
          .AtMost(1024)
          .Optional(),
  };
  return fields;
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
