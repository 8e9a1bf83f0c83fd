#include "engine/job/build_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/base/text.h"
#include "engine/job/data_input.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kPlace = "net.lua:3: ";

std::string BuildError(Value::Map keys, const Value& overrides = {}) {
  return ErrorOf([&] { Build(std::move(keys), overrides); });
}

/// The error of CheckTrainable() for a job that has data to train on unless `keys` says otherwise.
std::string TrainError(Value::Map keys) {
  const bool has_data =
      std::ranges::any_of(keys, [](const auto& key) { return key.first == "data"; });
  if (!has_data) keys.emplace_back("data", Digits());
  keys.emplace_back("batch", Ints({32, 4}));
  return ErrorOf([&] { CheckTrainable(Build(std::move(keys))); });
}

Value Over(const Value::Map& keys) { return Overrides(Value::MakeMap(keys), "net.lua:20"); }

// ---- whole jobs ----

TEST(BuildJob, DefaultsAreTheDesigns) {
  const Job job = Build();
  EXPECT_EQ(job.name, "net");
  EXPECT_EQ(job.layers.size(), 4u);
  EXPECT_EQ(job.partition.method, "auto");
  EXPECT_EQ(job.parallel.pipe, 0);
  EXPECT_EQ(job.parallel.data, 0);
  EXPECT_EQ(job.parallel.model, 0);
  EXPECT_EQ(job.schedule.name, "auto");
  EXPECT_EQ(job.stages_per_rank, 0);  // 0 = "auto"
  EXPECT_EQ(job.batch.size, 0);
  EXPECT_EQ(job.optimizer.type, "sgd");
  EXPECT_EQ(job.optimizer.options["lr"], Value(1e-3));
  EXPECT_EQ(job.lr_schedule.type, "constant");
  EXPECT_EQ(job.clip, 0);
  EXPECT_EQ(job.seed, 1234);
  EXPECT_EQ(job.device, "");
  EXPECT_EQ(job.transport, "");
  EXPECT_EQ(job.threads, 0);
  EXPECT_EQ(job.timeout, 1800);
  EXPECT_EQ(job.hang_timeout, 0);
  EXPECT_EQ(job.log, "");
  EXPECT_EQ(job.trace, "");
  EXPECT_EQ(job.eval.every, 0);
  EXPECT_EQ(job.eval.batch, 0);
  EXPECT_FALSE(job.losses);
  EXPECT_FALSE(job.input.has_value());
  EXPECT_EQ(job.train_data.kind, "");
  EXPECT_EQ(job.steps, 0);
  EXPECT_EQ(job.epochs, 0);
}

TEST(BuildJob, TakesTheDesignsExample) {
  const Job job = Build({
      {"name", "alexnet"},
      {"input", MapOf({{"shape", Ints({1, 8, 8})}, {"dtype", "float"}})},
      {"partition", "uniform"},
      {"parallel", MapOf({{"pipe", 2}, {"data", 1}, {"model", 1}})},
      {"schedule", "gpipe"},
      {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})},
      {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.01}, {"momentum", 0.9}})},
      {"data", MapOf({{"train", Digits()}, {"test", Digits("test")}})},
      {"steps", 200},
  });
  EXPECT_EQ(job.name, "alexnet");
  EXPECT_EQ(job.input->ToString(), "float32 (1, 8, 8)");
  EXPECT_EQ(job.partition.method, "uniform");
  EXPECT_EQ(job.parallel.pipe, 2);
  EXPECT_EQ(job.parallel.data, 1);
  EXPECT_EQ(job.schedule.name, "gpipe");
  EXPECT_EQ(job.batch.size, 32);
  EXPECT_EQ(job.optimizer.options["lr"], Value(0.01));
  EXPECT_EQ(job.optimizer.options["nesterov"], Value(false));
  EXPECT_EQ(job.train_data.kind, "digits");
  EXPECT_EQ(job.train_data.options["split"], Value("train"));
  EXPECT_EQ(job.test_data.options["split"], Value("test"));
  EXPECT_EQ(job.steps, 200);
  EXPECT_EQ(job.epochs, 0);
}

TEST(BuildJob, AJobAtThePromptHasNoName) {
  RawJob raw = SmallJob();
  raw.script = "";
  EXPECT_EQ(BuildJob(raw, {}).name, "");
}

TEST(BuildJob, KeysWithoutNamesAreRefused) {
  RawJob raw = SmallJob();
  raw.keys = Ints({1, 2});
  EXPECT_EQ(ErrorOf([&] { BuildJob(raw, {}); }),
            "net.lua:3: the job takes at most 0 keys by position, got 2");
}

TEST(BuildJob, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_EQ(BuildError({{"optimiser", "sgd"}}),
            "net.lua:3: the job has no key \"optimiser\"; did you mean \"optimizer\"?");
  EXPECT_EQ(BuildError({{"batches", 3}}),
            "net.lua:3: the job has no key \"batches\"; did you mean \"batch\"?");
}

// ---- layers ----

std::string LayersError(RawLayer layers) {
  RawJob raw = SmallJob();
  raw.layers = std::move(layers);
  return ErrorOf([&] { BuildJob(raw, {}); });
}

TEST(Layers, ThereMustBeSome) {
  EXPECT_EQ(LayersError(Items({})),
            "net.lua:3: the job needs layers: a list with at least one layer");
  EXPECT_EQ(LayersError(Items({Items({}), Items({Items({})})})),
            "net.lua:3: the job needs layers: a list with at least one layer");
}

TEST(Layers, TiesMustFit) {
  LayerSpec tied = Layer("Embedding", {10, 4});
  tied.tied_key = "embed";
  EXPECT_EQ(LayersError(Item(tied)), "");
  tied.tied_weights = {"weigh"};
  EXPECT_EQ(LayersError(Item(tied)),
            "strata.tied{\"embed\"}: layer 0 Embedding(10, 4) has no parameter \"weigh\"; did you "
            "mean \"weight\"?");
}

TEST(Layers, NamesAreNoIndices) {
  EXPECT_EQ(LayersError(Item(Layer("ReLU", {}, {{"name", "3"}}))),
            "layer 0 ReLU(): the name \"3\" looks like a layer's index");
  RawJob raw = SmallJob();
  raw.layers = Item(Layer("ReLU", {}, {{"name", "block.3"}}));
  EXPECT_EQ(BuildJob(raw, {}).layers[0].name, "block.3");
}

// ---- cuts ----

RawJob CutJob(std::vector<RawLayer> items, Value::Map keys = {}) {
  RawJob raw = SmallJob(std::move(keys));
  raw.layers = Items(std::move(items));
  return raw;
}

const RawLayer kRelu = Item(Layer("ReLU"));

TEST(Cuts, TheCommandLineHoldsOverMarks) {
  const Job job = BuildJob(CutJob({kRelu, Cut(), kRelu}), Over({{"partition", "uniform"}}));
  EXPECT_EQ(job.partition.method, "uniform");
  EXPECT_THAT(job.partition.bounds, IsEmpty());
}

TEST(Cuts, MarksAndAMethodContradict) {
  EXPECT_EQ(ErrorOf([] {
              BuildJob(CutJob({kRelu, Cut(), kRelu}, {{"partition", "uniform"}}), {});
            }),
            "net.lua:3: the job: partition and strata.cut() both say where to cut; keep one of "
            "them");
}

TEST(Cuts, MarksStandBetweenLayers) {
  const auto error = [](std::vector<RawLayer> items) {
    return ErrorOf([&] { BuildJob(CutJob(std::move(items)), {}); });
  };
  EXPECT_EQ(error({Cut(), kRelu}), "net.lua:3: layers: strata.cut() stands before the first layer");
  EXPECT_EQ(error({kRelu, Cut()}), "net.lua:3: layers: strata.cut() stands behind the last layer");
  EXPECT_EQ(error({kRelu, Cut(), Cut(), kRelu}),
            "net.lua:3: layers: strata.cut() stands twice at one place");
  EXPECT_EQ(error({Cut()}), "net.lua:3: the job needs layers: a list with at least one layer");
}

// ---- partition, schedule ----

TEST(Partition, TakesNamesListsAndFunctions) {
  EXPECT_EQ(Build({{"partition", "type:linear|conv"}}).partition.method, "type:linear|conv");
  const PartitionSpec cuts = Build({{"partition", Ints({0, 2, 4})}}).partition;
  EXPECT_EQ(cuts.method, "cuts");
  EXPECT_THAT(cuts.bounds, ElementsAre(0, 2, 4));
  const PartitionSpec function = Build({{"partition", Function("net.lua:9")}}).partition;
  EXPECT_EQ(function.method, "function");
  EXPECT_EQ(function.function.where, "net.lua:9");
}

TEST(Partition, RefusesOthers) {
  EXPECT_EQ(BuildError({{"partition", 3}}),
            "net.lua:3: the job: partition expects a method's name, cuts such as {0, 19, 22} or a "
            "function; got the number 3");
  EXPECT_THAT(BuildError({{"partition", Value::List{0, "a"}}}),
              HasSubstr("partition expects an integer or a list of integers, at least 0"));
  EXPECT_THAT(BuildError({{"partition", Value::List{0, -1}}}), HasSubstr("partition expects"));
  EXPECT_THAT(BuildError({{"partition", Value::List{0, 1e18}}}), HasSubstr("partition expects"));
}

TEST(Schedule, TakesNamesAndFunctions) {
  EXPECT_EQ(Build({{"schedule", "gpipe"}}).schedule.name, "gpipe");
  const ScheduleSpec spec = Build({{"schedule", Function("net.lua:9")}}).schedule;
  EXPECT_EQ(spec.name, "function");
  EXPECT_EQ(spec.function.where, "net.lua:9");
  EXPECT_EQ(BuildError({{"schedule", 3}}),
            "net.lua:3: the job: schedule expects a schedule's name, a CSV file or a function; got "
            "the number 3");
  EXPECT_EQ(BuildError({{"schedule", "csv"}}),
            "net.lua:3: the job: there is no schedule \"csv\"; a file's name ends in .csv, a "
            "function is given as it is");
  for (const char* path : {"../mine.csv", "/mine.csv"}) {
    EXPECT_THAT(BuildError({{"schedule", path}}), HasSubstr("below the script's folder"));
  }
}

TEST(Schedule, ReadsACsvFileBesideTheScript) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "csv_schedule";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "mine.csv") << "0F0,0B0\n";
  RawJob raw = SmallJob({{"schedule", "mine.csv"}});
  raw.script = (folder / "net.lua").string();
  const ScheduleSpec spec = BuildJob(raw, {}).schedule;
  EXPECT_EQ(spec.name, "csv");
  EXPECT_EQ(spec.source, "0F0,0B0\n");
  std::filesystem::remove(folder / "mine.csv");
  const std::string error =
      "net.lua:3: the job: schedule: cannot read the file " + (folder / "mine.csv").string();
  EXPECT_EQ(ErrorOf([&] { BuildJob(raw, {}); }), error);
  std::filesystem::create_directories(folder / "mine.csv");
  EXPECT_EQ(ErrorOf([&] { BuildJob(raw, {}); }), error) << "a folder is no file";
  std::filesystem::remove_all(folder);
}

TEST(Recompute, TakesWholeStagesSegmentsLayersAndFunctions) {
  using Method = RecomputeSpec::Method;
  const auto read = [](Value value) { return Build({{"recompute", value}}).recompute; };
  EXPECT_EQ(Build({}).recompute.method, Method::kNone);
  EXPECT_EQ(read(false).method, Method::kNone);
  EXPECT_EQ(read(true).method, Method::kStages);
  EXPECT_EQ(read(MapOf({{"every", 2}})).method, Method::kEvery);
  EXPECT_EQ(read(MapOf({{"every", 2}})).every, 2);
  EXPECT_EQ(read("every:3").every, 3);
  EXPECT_EQ(read("auto").method, Method::kAuto);
  EXPECT_EQ(read(Value::List{0, "type:Linear"}).method, Method::kLayers);
  EXPECT_EQ(read("type:relu").layers.items.size(), 1u);
  EXPECT_EQ(read(Function("net.lua:9")).function.where, "net.lua:9");
}

TEST(Recompute, RefusesWhatItIsNot) {
  EXPECT_THAT(BuildError({{"recompute", MapOf({{"every", 0}})}}), HasSubstr("every"));
  EXPECT_THAT(BuildError({{"recompute", MapOf({{"evry", 2}})}}),
              HasSubstr("did you mean \"every\"?"));
  EXPECT_THAT(BuildError({{"recompute", "every:x"}}), HasSubstr("every"));
  EXPECT_THAT(BuildError({{"recompute", Value::List{99}}}), HasSubstr("recompute"));
  EXPECT_THAT(BuildError({{"recompute", "type:Conv"}}), HasSubstr("recompute"));
}

TEST(Check, TakesAnIntervalOrAShareOfTheTime) {
  EXPECT_FALSE(Build({}).check.is_on());
  EXPECT_EQ(Build({{"check", MapOf({{"every", 100}})}}).check.every, 100);
  EXPECT_EQ(Build({}, MapOf({{"check", "every:7"}})).check.every, 7);
  EXPECT_EQ(Build({{"check", 0.02}}).check.share, 0.02);
  for (const Value& wrong : {Value(0.0), Value(1.5), Value(true), Value("often"), MapOf({}),
                             MapOf({{"every", 0}}), MapOf({{"evry", 2}})}) {
    EXPECT_THAT(BuildError({{"check", wrong}}), HasSubstr("check")) << wrong.ToLua();
  }
  EXPECT_THAT(BuildError({{"check", 0.1}, {"parallel", MapOf({{"model", 2}})}}),
              HasSubstr("check does not repeat layers that the model axis divides"));
}

TEST(Memory, TakesBytesAndWhatPeopleWrite) {
  EXPECT_EQ(Build({}).memory, 0);
  EXPECT_EQ(Build({{"memory", "80GB"}}).memory, 80'000'000'000);
  EXPECT_EQ(Build({{"memory", 4096}}).memory, 4096);
  EXPECT_EQ(Build({{"memory", "80GB"}}, MapOf({{"memory", "512MiB"}})).memory, 512 << 20);
  EXPECT_THAT(BuildError({{"memory", "much"}}),
              AllOf(HasSubstr("net.lua:3: the job: memory: expected"), HasSubstr("80GB")));
  for (const Value& none : {Value(0), Value("0.1B"), Value("1e30GB")}) {
    EXPECT_THAT(BuildError({{"memory", none}}), HasSubstr("at least a byte")) << none.Describe();
  }
  EXPECT_THAT(BuildError({{"memory", -1}}), HasSubstr("memory: expected"));
}

// Like a schedule's file, but on the command line the path is relative to the current folder.
TEST(CostsAndLinks, AreFilesBesideTheScript) {
  for (const auto& [key, member] :
       {std::pair("costs", &Job::costs), std::pair("links", &Job::links)}) {
    RawJob raw = SmallJob({{key, "a/file.json"}});
    EXPECT_EQ(BuildJob(raw, {}).*member, "models/a/file.json");
    EXPECT_EQ(BuildJob(raw, MapOf({{key, "file.json"}})).*member, "file.json");
    raw = SmallJob({{key, "/tmp/file.json"}});
    EXPECT_EQ(BuildJob(raw, {}).*member, "/tmp/file.json");
    EXPECT_EQ(Build({}).*member, "");
  }
}

// ---- tables ----

TEST(Batch, TwoSizesSuffice) {
  const Batch batch = Build({{"batch", MapOf({{"size", 32}, {"micro_batches", 4}})}}).batch;
  EXPECT_EQ(batch.micro_batch_size, 8);
  EXPECT_EQ(Build({{"batch", Ints({32, 4})}}).batch.micro_batch_size, 8) << "by position";
}

TEST(Batch, RefusesContradictions) {
  EXPECT_EQ(BuildError({{"batch", MapOf({{"size", 32}})}}),
            "net.lua:3: the job: batch needs two of size, micro_batches and micro_batch_size: "
            "batch = {micro_batches = 4, micro_batch_size = 8}");
  EXPECT_EQ(BuildError({{"batch", Ints({32, 5, 8})}}),
            "net.lua:3: the job: batch: size 32 is not micro_batches 5 * micro_batch_size 8; two "
            "of the three suffice");
  EXPECT_EQ(BuildError({{"batch", MapOf({{"micro_batch", 3}})}}),
            "net.lua:3: the job's batch has no key \"micro_batch\"; did you mean "
            "\"micro_batches\"?");
}

TEST(Input, HasShapeAndType) {
  EXPECT_EQ(Build({{"input", MapOf({{"shape", 5}, {"dtype", "long"}})}}).input->ToString(),
            "int64 (5,)");
  EXPECT_THAT(BuildError({{"input", MapOf({{"dtype", "long"}})}}),
              HasSubstr("the job's input needs shape"));
  EXPECT_THAT(BuildError({{"input", MapOf({{"shape", Ints({3, 0})}})}}),
              HasSubstr("shape expects an integer or a list of integers, at least 1"));
}

TEST(Loss, MayBeAFunction) {
  RawJob raw = SmallJob({{"loss", Function("net.lua:11")}});
  raw.loss.reset();
  const LayerSpec loss = BuildJob(raw, {}).loss;
  EXPECT_TRUE(loss.scripted);
  EXPECT_EQ(loss.type, "function");
  EXPECT_EQ(loss.forward.where, "net.lua:11");
}

TEST(Loss, MustBeALoss) {
  RawJob raw = SmallJob();
  raw.loss = Layer("Linear", {3, 4});
  EXPECT_EQ(ErrorOf([&] { BuildJob(raw, {}); }),
            "net.lua:3: the job: loss expects a loss such as nn.CrossEntropyLoss{}; got the layer "
            "Linear(3, 4)");
  raw.loss.reset();
  raw.keys = MapOf({{"loss", "mse"}});
  EXPECT_THAT(ErrorOf([&] { BuildJob(raw, {}); }), HasSubstr("got the string \"mse\""));
}

TEST(Eval, MetricFollowsTheLoss) {
  EXPECT_EQ(Build().eval.metric, "accuracy");
  RawJob raw = SmallJob();
  raw.loss = Layer("MSELoss");
  EXPECT_EQ(BuildJob(raw, {}).eval.metric, "none");
  raw.keys = MapOf({{"eval", MapOf({{"every", 10}, {"metric", "accuracy"}, {"batch", 64}})}});
  const EvalSpec eval = BuildJob(raw, {}).eval;
  EXPECT_EQ(eval.metric, "accuracy");
  EXPECT_EQ(eval.every, 10);
  EXPECT_EQ(eval.batch, 64);
  EXPECT_EQ(Build({{"eval", MapOf({{"metric", "none"}})}}).eval.metric, "none");
  const Value dim = MapOf({{"class_dim", -1}});
  EXPECT_THAT(BuildError({{"eval", dim}}),
              HasSubstr("eval.class_dim is for losses that are functions; write "
                        "nn.CrossEntropyLoss{class_dim = -1}"));
  raw.keys = MapOf({{"eval", dim}});
  EXPECT_THAT(ErrorOf([&] { BuildJob(raw, {}); }), HasSubstr("the loss MSELoss() has no classes"));
  raw.loss.reset();
  raw.keys = MapOf({{"eval", dim}, {"loss", Function("net.lua:3")}});
  EXPECT_EQ(BuildJob(raw, {}).eval.class_dim, -1);
}

// ---- optimizer, learning rate ----

TEST(Optimizer, TakesPyTorchsPositions) {
  const OptimizerSpec sgd = Build({{"optimizer", Value::List{"sgd", 0.1, 0.9}}}).optimizer;
  EXPECT_EQ(sgd.options["lr"], Value(0.1));
  EXPECT_EQ(sgd.options["momentum"], Value(0.9));
  const OptimizerSpec adam =
      Build({{"optimizer", MapOf({{"1", "adamw"}, {"betas", Value::List{0.8, 0.95}}})}}).optimizer;
  EXPECT_EQ(adam.options["betas"], Value(Value::List{0.8, 0.95}));
  EXPECT_EQ(adam.options["weight_decay"], Value(0.01));
  EXPECT_EQ(Build({{"optimizer", "adam"}}).optimizer.options["weight_decay"], Value(0.0));
}

TEST(Optimizer, Errors) {
  EXPECT_EQ(BuildError({{"optimizer", "adma"}}),
            "net.lua:3: the job: there is no optimizer \"adma\"; did you mean \"adam\"?");
  EXPECT_THAT(BuildError({{"optimizer", "wxyz"}}),
              HasSubstr("net.lua:3: the job: there is no optimizer \"wxyz\""));
  EXPECT_THAT(BuildError({{"lr_schedule", "CosineAnnealingLR"}}),
              HasSubstr("; it is one of constant, warmup, linear, cosine, "));
  EXPECT_THAT(BuildError({{"lr_schedule", MapOf({{"1", "cosine"}, {"T_max", 9}})}}),
              HasSubstr("has no option \"T_max\"; did you mean \"steps\"?"));
  for (const char* name : {"params", "name"}) {
    const Value group = MapOf({{name, "bias"}});
    EXPECT_THAT(BuildError({{"optimizer", MapOf({{"1", "sgd"}, {"groups", Value::List{group}}})}}),
                HasSubstr("did you mean \"parameters\"?"));
  }
  EXPECT_THAT(BuildError({{"data", MapOf({{"train", Digits()}, {"val", Digits()}})}}),
              HasSubstr("did you mean \"test\"?"));
  EXPECT_THAT(BuildError({{"batch", MapOf({{"batch_size", 8}})}}),
              HasSubstr("did you mean \"size\"?"));
  EXPECT_THAT(BuildError({{"data", MapOf({{"train", Digits()}, {"drop_last", true}})}}),
              HasSubstr("did you mean \"data:take(n)\"?"));
  EXPECT_THAT(BuildError({{"optimizer", MapOf({{"lr", 0.1}})}}),
              HasSubstr("net.lua:3: the job: optimizer needs a type first: one of sgd, adam, "));
  EXPECT_EQ(BuildError({{"optimizer", 0.1}}),
            "net.lua:3: the job: optimizer expects a type first, such as {\"TYPE\", option=value}; "
            "got the number 0.1");
  EXPECT_EQ(BuildError({{"optimizer", MapOf({{"1", "sgd"}, {"beta", 0.1}})}}),
            "net.lua:3: the optimizer sgd has no option \"beta\"; it is one of lr, momentum, "
            "dampening, weight_decay, nesterov, maximize, groups");
  EXPECT_EQ(BuildError({{"optimizer", MapOf({{"1", "sgd"}, {"lr", -0.1}})}}),
            "net.lua:3: the optimizer sgd: lr expects a number, at least 0; got the number -0.1");
  EXPECT_EQ(BuildError({{"optimizer", MapOf({{"1", "adam"}, {"betas", Ints({0, 1})}})}}),
            "net.lua:3: the optimizer adam: betas expects a list of 2 numbers, at least 0, below "
            "1; got the list {0, 1}");
  EXPECT_EQ(BuildError({{"optimizer", MapOf({{"1", "sgd"}, {"nesterov", true}})}}),
            "net.lua:3: the job: optimizer sgd: nesterov needs a momentum and no dampening");
  EXPECT_EQ(BuildError({{"optimizer", MapOf({{"1", "adam"}, {"fused", true}})}}),
            "net.lua:3: the optimizer adam does not take fused: the engine runs one update for "
            "each flat buffer");
}

Value WithGroups(Value::List groups) {
  return MapOf({{"1", "sgd"}, {"lr", 0.1}, {"groups", std::move(groups)}});
}

TEST(Optimizer, GroupsKeepWhatTheyOverride) {
  const OptimizerSpec spec =
      Build({{"optimizer",
              WithGroups({MapOf({{"parameters", "bias"}, {"weight_decay", 0}}),
                          MapOf({{"layers", Value::List{1, "type:linear"}}, {"lr", 1}})})}})
          .optimizer;
  EXPECT_FALSE(spec.options.Has("groups"));
  ASSERT_EQ(spec.groups.size(), 2u);
  EXPECT_EQ(spec.groups[0].parameters, "bias");
  EXPECT_EQ(spec.groups[0].options, MapOf({{"weight_decay", 0.0}}));
  EXPECT_EQ(spec.groups[1].layers.items.size(), 2u);
  EXPECT_EQ(spec.groups[1].options, MapOf({{"lr", 1.0}}));
}

TEST(Optimizer, GroupErrors) {
  const auto error = [](const Value& group) {
    return BuildError({{"optimizer", WithGroups({group})}});
  };
  EXPECT_EQ(error(MapOf({{"lr", 1}})),
            "net.lua:3: the job: a group of the optimizer needs layers, parameters or dims, to say "
            "what it holds for");
  EXPECT_EQ(error(MapOf({{"parameters", "bias"}, {"eps", 1}})),
            "net.lua:3: a group of the optimizer has no key \"eps\"; it is one of layers, "
            "parameters, dims, lr, momentum, dampening, weight_decay, nesterov, maximize");
  EXPECT_EQ(error(MapOf({{"layers", 9}})),
            "net.lua:3: the job: optimizer.groups: there is no layer 9; the layers are 0 to 3");
  EXPECT_THAT(error(MapOf({{"parameters", "(bias"}})),
              HasSubstr("optimizer.groups: \"(bias\" is not a regular expression"));
  EXPECT_EQ(error(MapOf({{"parameters", "bias"}, {"nesterov", true}})),
            "net.lua:3: the job: optimizer sgd: nesterov needs a momentum and no dampening");
  EXPECT_THAT(error("bias"), HasSubstr("there is no optimizer \"bias\""));
  EXPECT_THAT(BuildError({{"optimizer", MapOf({{"1", "sgd"}, {"groups", "bias"}})}}),
              HasSubstr("optimizer.groups expects a list of groups; got the string \"bias\""));
}

TEST(LrSchedule, Errors) {
  EXPECT_EQ(BuildError({{"lr_schedule", "cosin"}}),
            "net.lua:3: the job: there is no lr_schedule \"cosin\"; did you mean \"cosine\"?");
  EXPECT_EQ(BuildError({{"lr_schedule", "step"}}),
            "net.lua:3: the lr_schedule step needs every: steps between two drops (an integer, at "
            "least 1)");
  EXPECT_EQ(BuildError({{"lr_schedule", MapOf({{"1", "constant"}, {"warmup", 3}})}}),
            "net.lua:3: the lr_schedule constant has no option \"warmup\"; it takes no options");
}

TEST(LrSchedule, ChainsHoldSchedules) {
  const Value warmup = MapOf({{"1", "warmup"}, {"steps", 5}});
  const auto error = [&](Value schedule) {
    return BuildError({{"lr_schedule", std::move(schedule)}});
  };
  EXPECT_THAT(error(MapOf({{"1", "chain"}, {"schedules", Value::List{warmup, "cosin"}}})),
              HasSubstr("there is no lr_schedule \"cosin\"; did you mean \"cosine\"?"));
  EXPECT_THAT(error(MapOf({{"1", "chain"}, {"schedules", "warmup"}})),
              HasSubstr("schedules expects a list of schedules; got the string"));
  EXPECT_THAT(error(MapOf({{"1", "chain"}, {"schedules", Value::List{"plateau"}}})),
              HasSubstr("lr_schedule plateau stands alone"));
  EXPECT_THAT(error(MapOf({{"1", "sequence"},
                           {"schedules", Value::List{warmup, "constant"}},
                           {"milestones", Value::List{5, 9}}})),
              HasSubstr("2 schedules need 1 milestones, got 2"));
  EXPECT_THAT(error(MapOf({{"1", "multi_step"}, {"milestones", Value::List{9, 5}}})),
              HasSubstr("milestones ascend; got [9,5]"));
}

TEST(LrSchedule, APlateauNeedsEvaluations) {
  const Value plateau = MapOf({{"1", "plateau"}});
  const Value data = MapOf({{"train", Digits()}, {"test", Digits("test")}});
  EXPECT_THAT(TrainError({{"lr_schedule", plateau}}), HasSubstr("plateau looks at evaluations, "));
  EXPECT_THAT(TrainError({{"lr_schedule", plateau}, {"data", data}}),
              HasSubstr("give eval = {every=N}"));
}

TEST(CheckTrainable, AsksForEvaluationsWhichOtherCommandsDoNotNeed) {
  const Value eval = MapOf({{"every", 2}, {"samples", "Once upon"}});
  const Value best = MapOf({{"dir", "runs"}, {"best", "test.loss"}});
  const Value stop = MapOf({{"patience", 3}});
  const Value both = MapOf({{"train", Digits()}, {"test", Digits("test")}});
  for (const auto& [keys, who] :
       {std::pair(Value::Map{{"eval", eval}}, "eval.samples come behind evaluations"),
        {Value::Map{{"save", best}}, "save.best looks at evaluations"},
        {Value::Map{{"stop", stop}, {"eval", MapOf({{"every", 2}})}},
         "stop looks at evaluations"}}) {
    EXPECT_THAT(TrainError(keys),
                HasSubstr(Str("the job \"net\": ", who, ", which need data.test")));
    Value::Map whole = keys;
    whole.emplace_back("data", both);
    EXPECT_EQ(TrainError(whole), "") << who;
  }
}

// ---- what is looked at ----

TEST(Eval, MetricsHaveNamesOrFunctions) {
  const auto metrics = [](Value list) {
    return Value::Map{{"eval", MapOf({{"metrics", std::move(list)}})}};
  };
  const EvalSpec eval =
      Build(metrics(MapOf({{"1", "f1"}, {"2", "mae"}, {"mine", Function("net.lua:5")}}))).eval;
  ASSERT_EQ(eval.metrics.size(), 3U);
  EXPECT_EQ(eval.metrics[1].name, "mae");
  EXPECT_EQ(eval.metrics[2].name, "mine");
  EXPECT_EQ(eval.metrics[2].function.where, "net.lua:5");
  EXPECT_THAT(BuildError(metrics(Value::List{"top6"})), HasSubstr("did you mean \"top5\"?"));
  EXPECT_THAT(BuildError(metrics(MapOf({{"mine", 3}}))),
              HasSubstr("eval.metrics.mine expects a function(output, target); got"));
  for (const char* own : {"loss", "accuracy", "samples", "parts"}) {
    EXPECT_THAT(BuildError(metrics(MapOf({{own, Function("net.lua:5")}}))),
                HasSubstr(Str("an evaluation has a number \"", own, "\" of its own")));
  }
  RawJob raw = SmallJob();
  raw.keys = MapOf({{"eval", MapOf({{"metrics", Value::List{"perplexity"}}})}});
  EXPECT_EQ(BuildJob(raw, {}).eval.metrics.size(), 1U);
  raw.loss = Layer("MSELoss");
  EXPECT_THAT(ErrorOf([&] { BuildJob(raw, {}); }),
              HasSubstr("perplexity is of probabilities of classes, which the loss MSELoss"));
}

TEST(Eval, SamplesAreTextsAndOptions) {
  const auto samples = [](Value given, bool has_test = true) {
    Value data = MapOf({{"train", Digits()}});
    if (has_test) data.Set("test", Digits("test"));
    return Value::Map{{"data", data}, {"eval", MapOf({{"samples", std::move(given)}})}};
  };
  const SamplesSpec alone = Build(samples("Once upon")).eval.samples;
  EXPECT_THAT(alone.prompts, ElementsAre("Once upon"));
  EXPECT_EQ(alone.every, 0);
  EXPECT_EQ(alone.options["tokens"], Value(100));
  const SamplesSpec more =
      Build(samples(MapOf({{"1", "a"}, {"2", "b"}, {"every", 100}, {"tokens", 5}}), false))
          .eval.samples;
  EXPECT_THAT(more.prompts, ElementsAre("a", "b"));
  EXPECT_EQ(more.every, 100);
  EXPECT_EQ(more.options["tokens"], Value(5));
  EXPECT_FALSE(more.options.Has("every"));
  EXPECT_THAT(TrainError(samples("a", false)), HasSubstr("need data.test: else say every=N"));
  EXPECT_THAT(BuildError(samples(MapOf({{"every", 5}}))),
              HasSubstr("expects a text to go on with"));
  EXPECT_THAT(BuildError(samples(Value::List{7})), HasSubstr("expects texts to go on with"));
  EXPECT_THAT(BuildError(samples(MapOf({{"1", "a"}, {"evry", 5}}))),
              HasSubstr("did you mean \"every\"?"));
}

TEST(Data, AFileInThePlaceOfTheTestData) {
  const Value table = MakeDataSource("csv", {"train.csv"}, {{"target", "price"}}, "net.lua:9");
  const Value test = MakeDataStep("take", MakeDataStep("to_float", table, {}, {}, "net.lua:9"), {5},
                                  {}, "net.lua:9");
  const auto reading = [&](const char* path) { return ReadingInput(test, path, "net.lua:1"); };
  const Value csv = reading("new.csv");
  EXPECT_EQ(csv["source"], Value("to_float")) << "what chooses samples is gone";
  EXPECT_EQ(csv["of"]["path"], Value("new.csv"));
  EXPECT_EQ(csv["of"]["like"], Value("train.csv"));
  EXPECT_EQ(csv["of"]["target"], Value("price"));
  EXPECT_EQ(csv["of"]["targets"], Value(false));
  const Value npy = reading("new.npy");
  EXPECT_EQ(npy["of"]["source"], Value("npy"));
  EXPECT_EQ(npy["of"]["input"], Value("new.npy"));
  EXPECT_EQ(npy["of"]["targets"], Value(false));
  EXPECT_EQ(reading("cat.JPG")["of"]["source"], Value("image_folder"));
  EXPECT_EQ(reading("/")["of"]["source"], Value("image_folder"));
  const Value folder = MakeDataSource("image_folder", {"a"}, {{"size", 8}, {"broken", "skip"}}, "");
  EXPECT_EQ(ReadingInput(folder, "/", "")["broken"], Value("error"))
      << "an image has no other's prediction";
  EXPECT_EQ(ReadingInput({}, "a.jsonl", "")["source"], Value("jsonl"));
  EXPECT_EQ(reading("new.data")["of"]["source"], Value("csv"));
  const Value kept =
      MakeDataStep("cache", MakeDataStep("to_float", table, {}, {{"shuffle", true}}, ""), {},
                   {{"shuffle", true}}, "");
  EXPECT_EQ(FindOption(ReadingInput(kept, "new.csv", ""), "shuffle"), Value(false))
      << "rows come in the order of the file";
  EXPECT_THAT(ErrorOf([&] { ReadingInput({}, "new.xlsx", "net.lua:1"); }),
              HasSubstr("net.lua:1: input: nobody knows how to read new.xlsx"));
}

TEST(Data, AFileOfAnotherKindIsReadAsTheJobsWas) {
  const Value lines = MakeDataSource(
      "jsonl", {"a.jsonl"}, {{"tokenizer", "t.model"}, {"length", 32}, {"text", "body"}}, "");
  const Value text = ReadingInput(lines, "new.txt", "");
  EXPECT_EQ(text["source"], Value("text"));
  EXPECT_EQ(text["tokenizer"], Value("t.model"));
  EXPECT_EQ(text["length"], Value(32));
  EXPECT_EQ(text["targets"], Value(false));
  const Value packed = MakeDataStep("pack", lines, {64}, {}, "");
  EXPECT_THAT(ErrorOf([&] { ReadingInput(packed, "new.jsonl", "net.lua:1"); }),
              HasSubstr("net.lua:1: input: the job's data is packed, so a row would hold several"));
  const Value rows = MakeDataSource("parquet", {"a.parquet"}, {{"columns", Value::List{"x"}}}, "");
  const Value arrow = ReadingInput(rows, "new.arrow", "");
  EXPECT_EQ(arrow["source"], Value("arrow"));
  EXPECT_EQ(arrow["path"], Value("new.arrow"));
  EXPECT_EQ(arrow["columns"], rows["columns"]);
  EXPECT_EQ(ReadingInput(rows, "/", "")["source"], Value("parquet")) << "a folder of its files";
  const Value photos = MakeDataSource("parquet", {"a.parquet"}, {{"image", "x"}, {"size", 8}}, "");
  EXPECT_EQ(ReadingInput(photos, "/", "")["source"], Value("image_folder"));
  const Value cifar = MakeDataSource("cifar10", {"data"}, {{"size", 72}}, "");
  const Value crops = MakeDataStep(
      "one_hot", MakeDataStep("random_crop", cifar, {64}, {{"padding", 4}}, ""), {}, {}, "");
  const Value images = ReadingInput(crops, "cat.png", "");
  EXPECT_EQ(images["source"], Value("resize")) << "nothing random, and no targets";
  EXPECT_EQ(images["size"], Value::IntList({64, 64}));
  EXPECT_EQ(images["of"]["source"], Value("normalise")) << "as cifar10's are";
  EXPECT_EQ(images["of"]["mean"], Value(Value::List{0.4914, 0.4822, 0.4465}));
  EXPECT_EQ(images["of"]["std"], Value(Value::List{0.2470, 0.2435, 0.2616}));
  EXPECT_EQ(images["of"]["of"]["source"], Value("image_folder"));
  EXPECT_EQ(images["of"]["of"]["size"], Value(72));
  const Value bare = MakeDataSource("cifar10", {"data"}, {}, "");
  const TensorSpec large = {{3, 64, 64}, DType::kFloat32};
  EXPECT_EQ(ReadingInput(bare, "cat.png", "")["of"]["size"], Value(32));
  EXPECT_EQ(ReadingInput(bare, "cat.png", "", &large)["of"]["size"], Value(64));
  EXPECT_EQ(ReadingInput(bare, "x.npy", "")["source"], Value("npy")) << "as it is stored";
}

TEST(Data, AFileThatWouldNotBeScaledIsRefused) {
  const Value scaled = MakeDataSource("csv", {"a.csv"}, {{"normalise", true}}, "");
  for (const char* path : {"x.npy", "x.npz", "x.safetensors", "x.jsonl"}) {
    EXPECT_THAT(ErrorOf([&] { ReadingInput(scaled, path, "net.lua:1"); }),
                HasSubstr("net.lua:1: input: the job's csv has normalise=true, and x."));
  }
  EXPECT_EQ(ReadingInput(scaled, "x.tsv", "")["normalise"], Value(true));
}

TEST(Stop, NamesWhatEvaluationsGive) {
  const Value data = MapOf({{"train", Digits()}, {"test", Digits("test")}});
  const Value eval = MapOf({{"every", 5}, {"metrics", Value::List{"f1"}}});
  const auto stop = [&](Value::Map options) {
    return Value::Map{{"data", data}, {"eval", eval}, {"stop", MapOf(std::move(options))}};
  };
  EXPECT_FALSE(Build(stop({})).stop.larger_is_better);
  EXPECT_TRUE(Build(stop({{"monitor", "test.f1"}})).stop.larger_is_better);
  EXPECT_FALSE(Build(stop({{"monitor", "test.f1"}, {"mode", "min"}})).stop.larger_is_better);
  EXPECT_THAT(BuildError(stop({{"monitor", "test.f2"}})),
              HasSubstr("no evaluation gives \"test.f2\"; did you mean \"test.f1\"?"));
  EXPECT_EQ(Build({{"data", data},
                   {"eval", eval},
                   {"save", MapOf({{"dir", "runs"}, {"best", "test.loss"}})}})
                .save.best.monitor,
            "test.loss");
}

TEST(Stop, OfAFunctionsMetricTheScriptSaysWhetherMoreIsBetter) {
  const auto keys = [](const char* key, Value::Map table) {
    return Value::Map{
        {"data", MapOf({{"train", Digits()}, {"test", Digits("test")}})},
        {"eval", MapOf({{"every", 5}, {"metrics", MapOf({{"iou", Function("net.lua:5")}})}})},
        {key, MapOf(std::move(table))}};
  };
  const Value::Map best = {{"dir", "runs"}, {"best", "test.iou"}};
  EXPECT_EQ(BuildError(keys("save", best)),
            "net.lua:3: the job: save.best: nobody knows whether more or less of test.iou is "
            "better: say save.mode = \"max\" or \"min\"");
  EXPECT_THAT(BuildError(keys("stop", {{"monitor", "test.iou"}})), HasSubstr("say stop.mode = "));
  EXPECT_THAT(BuildError(keys("lr_schedule", {{"1", "plateau"}, {"monitor", "test.iou"}})),
              HasSubstr("say lr_schedule.mode = "));
  const auto with = [&](const char* mode) {
    Value::Map table = best;
    table.emplace_back("mode", mode);
    return Build(keys("save", table)).save.best.larger_is_better;
  };
  EXPECT_TRUE(with("max"));
  EXPECT_FALSE(with("min"));
  EXPECT_TRUE(
      Build(keys("save", {{"dir", "runs"}, {"best", "test.accuracy"}})).save.best.larger_is_better);
}

TEST(Eval, EveryEpochNeedsDataWithAnEnd) {
  const auto keys = [](Value data) { return Value::Map{{"data", std::move(data)}, {"steps", 5}}; };
  const Job job =
      Build(keys(Digits()),
            Over({{"eval.every", "epoch"}, {"save", MapOf({{"1", "run"}, {"every", "epoch"}})}}));
  EXPECT_EQ(job.eval.every, kEveryEpoch);
  EXPECT_EQ(job.save.every, kEveryEpoch);
  EXPECT_EQ(job.ToValue()["save"]["every"], Value("epoch"));
  EXPECT_EQ(EverySteps(job.save.every, 7), 7);
  EXPECT_EQ(EverySteps(3, 7), 3);
  for (const char* key : {"eval", "save"}) {
    EXPECT_EQ(BuildError(keys(Function("net.lua:5")),
                         Over({{"save.dir", "run"}, {Str(key, ".every"), "epoch"}})),
              Str("net.lua:3: the job: ", key,
                  ".every = \"epoch\" needs data.train with an end; "
                  "a function has none: give steps"));
  }
  EXPECT_EQ(Build({}, Over({{"eval.every", "epoch"}})).eval.every, kEveryEpoch)
      << "without data.train nothing trains";
  EXPECT_THAT(BuildError({{"eval", MapOf({{"every", "epochs"}})}}),
              HasSubstr("did you mean \"epoch\"?"));
}

// ---- freeze ----

TEST(Freeze, AllButSome) {
  const Job job = Build({{"freeze", MapOf({{"except", Value::List{3}}})}});
  EXPECT_TRUE(job.layers[1].frozen);
  EXPECT_FALSE(job.layers[3].frozen);
  EXPECT_THAT(BuildError({{"freeze", MapOf({{"except", 9}})}}), HasSubstr("freeze.except"));
}

TEST(Freeze, ByNameAndByFunction) {
  EXPECT_TRUE(Build({{"freeze", "name:^[12]$"}}).layers[1].frozen);
  EXPECT_THAT(BuildError({{"freeze", "name:head"}}), HasSubstr("no layer's name matches"));
  RawJob raw = SmallJob({{"freeze", Function("net.lua:5")}});
  EXPECT_THAT(ErrorOf([&] { BuildJob(raw, {}); }), HasSubstr("freeze is a function"));
  raw.call = [](const FunctionRef&, const Value::List& arguments) {
    return Value(arguments[0]["type"] == Value("Linear") && arguments[0]["index"] == Value(1));
  };
  const Job job = BuildJob(raw, {});
  EXPECT_TRUE(job.layers[1].frozen);
  EXPECT_FALSE(job.layers[3].frozen);
  raw.call = [](const FunctionRef&, const Value::List&) { return Value(1); };
  EXPECT_THAT(ErrorOf([&] { BuildJob(raw, {}); }),
              HasSubstr("net.lua:5: freeze expects its function to return true or false"));
}

TEST(Freeze, MarksLayers) {
  const Job job = Build({{"freeze", Value::List{0, "type:Linear"}}});
  std::vector<bool> frozen;
  for (const LayerSpec& layer : job.layers) frozen.push_back(layer.frozen);
  EXPECT_THAT(frozen, ElementsAre(true, true, false, true));
  EXPECT_TRUE(Build({{"freeze", 2}}).layers[2].frozen);
  EXPECT_TRUE(Build({{"freeze", "type:relu"}}).layers[2].frozen);
}

std::vector<std::string> FrozenIn(const Job& job) {
  std::vector<std::string> shown;
  for (const LayerSpec& layer : job.layers) {
    shown.push_back(layer.frozen ? "all" : Join(layer.frozen_parameters, " "));
  }
  return shown;
}

TEST(Freeze, ParametersByTheirNames) {
  EXPECT_THAT(FrozenIn(Build({{"freeze", "parameters:bias"}})),
              ElementsAre("", "bias", "", "bias"));
  EXPECT_THAT(FrozenIn(Build({{"freeze", Value::List{0, "parameters:^1\\.", "parameters:3.w"}}})),
              ElementsAre("all", "all", "", "weight"));
  EXPECT_THAT(FrozenIn(Build({{"freeze", Value::List{1, "parameters:bias"}}})),
              ElementsAre("", "all", "", "bias"));
  EXPECT_THAT(
      FrozenIn(Build({{"freeze", Value::List{"parameters:weight", "parameters:^1\\.weight"}}})),
      ElementsAre("", "weight", "", "weight"))
      << "1.weight is chosen twice";
  const Job but = Build({{"freeze", MapOf({{"except", Value::List{"parameters:3.bias", 1}}})}});
  EXPECT_THAT(FrozenIn(but), ElementsAre("all", "", "all", "weight"));
  const Value shown = but.ToValue()["freeze"];
  EXPECT_EQ(shown, Value(Value::List{0, 2, "parameters:^3\\.weight$"}));
  EXPECT_EQ(FrozenIn(Build({{"freeze", shown}})), FrozenIn(but));
  EXPECT_EQ(
      BuildError({{"freeze", "parameters:gain"}}),
      "net.lua:3: the job: freeze: no parameter's name matches \"gain\"; it is one of 1.weight, "
      "1.bias, 3.weight, 3.bias");
  EXPECT_THAT(BuildError({{"freeze", "parameters:3.wieght"}}),
              HasSubstr("did you mean \"3.weight\"?"));
  EXPECT_THAT(BuildError({{"freeze", "parameters:["}}), HasSubstr("is not a regular expression"));
}

TEST(Freeze, PartsThatLearnNothingAreFrozen) {
  RawJob raw = SmallJob({{"freeze", "parameters:^1\\.0|^1\\.1\\.0\\.bias"}});
  const LayerSpec inner =
      MakeLayer("Sequential", {}, {}, {MakeLayer("Linear", {8, 8}, {}, {}, "")}, "");
  raw.layers.list[1].layer =
      MakeLayer("Sequential", {}, {}, {MakeLayer("Linear", {64, 8}, {}, {}, ""), inner}, "");
  const Job job = BuildJob(raw, {});
  const LayerSpec& layer = job.layers[1];
  EXPECT_THAT(layer.frozen_parameters, ElementsAre("0.weight", "0.bias", "1.0.bias"));
  EXPECT_TRUE(layer.children[0].frozen);
  EXPECT_FALSE(layer.children[1].frozen);
  EXPECT_FALSE(layer.children[1].children[0].frozen);
}

TEST(Freeze, Errors) {
  EXPECT_EQ(BuildError({{"freeze", 4}}),
            "net.lua:3: the job: freeze: there is no layer 4; the layers are 0 to 3");
  EXPECT_EQ(BuildError({{"freeze", "type:Conv"}}),
            "net.lua:3: the job: freeze: no layer's type matches \"Conv\"");
  EXPECT_THAT(BuildError({{"freeze", "head"}}), HasSubstr("no layer has the name \"head\""));
  EXPECT_THAT(BuildError({{"freeze", true}}),
              HasSubstr("freeze expects indices, names or \"type:REGEX\"; got true"));
}

// ---- data and length ----

TEST(Data, ASourceAloneIsTrain) {
  EXPECT_EQ(Build({{"data", Digits()}}).train_data.kind, "digits");
  const Job job = Build({{"data", Function("net.lua:12")}});
  EXPECT_EQ(job.train_data.kind, "function");
  EXPECT_EQ(job.train_data.function.where, "net.lua:12");
  EXPECT_EQ(job.train_data.where, "net.lua:12");
}

TEST(Data, Errors) {
  EXPECT_THAT(BuildError({{"data", MapOf({{"trian", Digits()}})}}),
              HasSubstr("the job's data has no key \"trian\"; did you mean \"train\"?"));
  EXPECT_THAT(BuildError({{"data", "digits"}}),
              HasSubstr("data expects a source such as strata.data.digits{}"));
  EXPECT_THAT(BuildError({{"data", MapOf({{"test", Function("net.lua:12")}})}}),
              HasSubstr("data.test expects a source with an end"));
  EXPECT_EQ(BuildError({{"input", MapOf({{"shape", Ints({3, 8, 8})}})}, {"data", Digits()}}),
            "net.lua:9: strata.data.digits gives samples of float32 (1, 8, 8), but the job's input "
            "is float32 (3, 8, 8)");
}

TEST(Length, OneEpochWhereTheDataHasAnEnd) {
  EXPECT_EQ(Build({{"data", Digits()}}).epochs, 1);
  EXPECT_EQ(Build({{"data", Digits()}, {"epochs", 2.5}}).epochs, 2.5);
  EXPECT_EQ(Build({{"data", Digits()}, {"steps", 5}}).epochs, 0);
  EXPECT_EQ(Build({{"data", Function("net.lua:12")}}).epochs, 0);
}

TEST(Length, StepsAndEpochsContradict) {
  EXPECT_EQ(BuildError({{"steps", 5}, {"epochs", 1}}),
            "net.lua:3: the job: steps and epochs both say how long to train; keep one of them");
}

TEST(Length, AnOverrideReplacesTheOther) {
  const Job by_steps = Build({{"data", Digits()}, {"epochs", 3}}, Over({{"steps", 5}}));
  EXPECT_EQ(by_steps.steps, 5);
  EXPECT_EQ(by_steps.epochs, 0);
  const Job by_epochs = Build({{"data", Digits()}, {"steps", 5}}, Over({{"epochs", 3}}));
  EXPECT_EQ(by_epochs.steps, 0);
  EXPECT_EQ(by_epochs.epochs, 3);
  EXPECT_NE(BuildError({}, Over({{"steps", 5}, {"epochs", 3}})), "");
}

TEST(Length, AFunctionHasNoEpochs) {
  EXPECT_EQ(BuildError({{"data", Function("net.lua:12")}, {"epochs", 1}}),
            "net.lua:3: the job: epochs needs data with an end; a function has none: give steps");
}

TEST(CheckTrainable, NamesWhatIsMissing) {
  const Value batch = Ints({32, 4});
  const auto error = [](const Job& job) { return ErrorOf([&] { CheckTrainable(job); }); };
  EXPECT_EQ(error(Build({{"data", Digits()}, {"batch", batch}})), "");
  EXPECT_THAT(error(Build({{"batch", batch}})), HasSubstr("the job \"net\" needs data to train"));
  EXPECT_THAT(error(Build({{"data", Function("a:1")}, {"batch", batch}})),
              HasSubstr("needs steps: its data is a function"));
  EXPECT_THAT(error(Build({{"data", Digits()}})), HasSubstr("batch needs two of"));
  EXPECT_THAT(error(Build({{"data", Digits()}, {"batch", batch}, {"schedule", "inference"}})),
              HasSubstr("has no backwards"));
  RawJob raw = SmallJob({{"data", Digits()}, {"batch", batch}});
  raw.loss.reset();
  EXPECT_THAT(error(BuildJob(raw, {})), HasSubstr("needs a loss to train"));
}

TEST(Save, NeedsAFolderAndKeepsTwo) {
  EXPECT_EQ(Build({}).save.dir, "");
  EXPECT_EQ(Build({{"save", "none"}}).save.dir, "");
  for (const Value& save : {Value("run"), MapOf({{"dir", "run"}}), MapOf({{"1", "run"}})}) {
    const Job job = Build({{"save", save}});
    EXPECT_EQ(job.save.dir, "run");
    EXPECT_EQ(job.save.every, 0);
    EXPECT_EQ(job.save.keep, 2);
  }
  const SaveSpec save = Build({{"save", MapOf({{"dir", "run"}, {"every", 10}, {"keep", 0}})}}).save;
  EXPECT_EQ(save.every, 10);
  EXPECT_EQ(save.keep, 0);
  EXPECT_THAT(BuildError({{"save", MapOf({{"every", 10}})}}), HasSubstr("dir"));
  EXPECT_THAT(BuildError({{"save", MapOf({{"dir", ""}})}}), HasSubstr("the name of a folder"));
  EXPECT_THAT(BuildError({{"save", MapOf({{"dir", "run"}, {"every", 0}})}}),
              HasSubstr("at least 1"));
  EXPECT_THAT(BuildError({{"save", MapOf({{"dir", "run"}, {"evry", 1}})}}),
              HasSubstr("did you mean \"every\"?"));
}

TEST(Resume, GoesOnFromASaveOrTheLatest) {
  EXPECT_EQ(Build({}).resume, "");
  EXPECT_EQ(Build({{"resume", "run/step-00000040"}}).resume, "run/step-00000040");
  EXPECT_EQ(Build({{"save", "run"}, {"resume", "latest"}}).resume, kLatestSave);
  EXPECT_THAT(BuildError({{"resume", "latest"}}), HasSubstr("resume needs the folder of saves"));
  const Value best = MapOf({{"dir", "run"}, {"best", "test.loss"}});
  const Value data = MapOf({{"train", Digits()}, {"test", Digits("test")}});
  EXPECT_EQ(Build({{"save", best}, {"data", data}, {"resume", "best"}}).resume, "run/best");
  EXPECT_EQ(Build({{"save", "run"}, {"resume", "best"}}).resume, "best") << "a folder of that name";
  EXPECT_EQ(Build({{"resume", "none"}}).resume, "");
  EXPECT_THAT(BuildError({{"save", "run"}, {"resume", ""}}),
              HasSubstr("resume expects a save or a folder of saves; got \"\""));
  EXPECT_EQ(Build({{"weights", "a.safetensors"}}).weights.from, "a.safetensors");
  EXPECT_EQ(Build({{"weights", "a.safetensors"}}).weights.strict, std::nullopt);
  EXPECT_THAT(BuildError({{"resume", "run"}, {"weights", "run"}}), HasSubstr("keep one of them"));
  EXPECT_EQ(Build({{"save", "run"}, {"resume", "latest"}, {"weights", "a.pt"}}).weights.from,
            "a.pt");
}

TEST(Weights, WithAMapAllMustFit) {
  const auto weights = [](Value::Map keys) { return Build({{"weights", MapOf(keys)}}).weights; };
  const WeightsSpec spec =
      weights({{"1", "hub/"}, {"map", "gpt2"}, {"except", 2}, {"prefix", "m."}});
  EXPECT_EQ(spec.from, "hub/");
  EXPECT_EQ(spec.map, Value("gpt2"));
  EXPECT_EQ(spec.prefix, "m.");
  EXPECT_EQ(spec.except.items, (Value::List{2}));
  EXPECT_EQ(spec.strict, true);
  EXPECT_EQ(weights({{"1", "hub/"}, {"map", "gpt2"}, {"strict", false}}).strict, false);
  EXPECT_EQ(
      Build({{"weights", "a"}}, Over({{"weights", MapOf({{"strict", true}})}})).weights.strict,
      true);
  EXPECT_EQ(Build({{"weights", "a"}}, Over({{"weights", "b"}})).weights.from, "b");
  EXPECT_EQ(Build({{"weights", "a"}}, Over({{"weights", "none"}})).weights.from, "");
  EXPECT_THAT(BuildError({{"weights", MapOf({{"1", "a"}, {"except", "had"}})}}),
              HasSubstr("weights.except"));
  EXPECT_THAT(BuildError({{"weights", MapOf({{"map", "gpt2"}})}}), HasSubstr("from"));
  EXPECT_THAT(BuildError({{"weights", ""}}), HasSubstr("expects a file or a folder"));
}

TEST(Weights, AnotherFileLeavesTheScriptsTableOut) {
  const Value::Map script = {{"weights", MapOf({{"1", "theirs.pt"},
                                                {"map", "gpt2"},
                                                {"except", 2},
                                                {"prefix", "m."},
                                                {"strict", false}})}};
  const WeightsSpec other = Build(script, Over({{"weights", "runs/net"}})).weights;
  EXPECT_EQ(other.from, "runs/net");
  EXPECT_TRUE(other.map.is_null());
  EXPECT_EQ(other.prefix, "");
  EXPECT_THAT(other.except.items, IsEmpty());
  EXPECT_EQ(other.strict, std::nullopt);
  const WeightsSpec mapped =
      Build(script, Over({{"weights", MapOf({{"1", "b.pt"}, {"map", "bert"}})}})).weights;
  EXPECT_EQ(mapped.map, Value("bert"));
  EXPECT_EQ(mapped.prefix, "");
  for (const Value& over : {Over({{"weights", "theirs.pt"}}), Over({{"weights.map", "gpt2"}})}) {
    const WeightsSpec same = Build(script, over).weights;
    EXPECT_EQ(same.prefix, "m.") << over.ToLua();
    EXPECT_EQ(same.strict, false) << over.ToLua();
  }
  const Value::Map map = {{"weights", MapOf({{"map", "gpt2"}})}};
  EXPECT_EQ(Build(map, Over({{"weights", "hub/"}})).weights.map, Value("gpt2"))
      << "of no file of the script's own";
}

TEST(Weights, ExceptNamesAllUsesOfATie) {
  const auto error = [](const Value& except) {
    RawJob raw = SmallJob({{"weights", MapOf({{"1", "a.pt"}, {"except", except}})}});
    for (const size_t i : {size_t{1}, size_t{3}}) {
      raw.layers.list[i].layer = Layer("Linear", {64, 64});
      raw.layers.list[i].layer.tied_key = "e";
    }
    return ErrorOf([&] { BuildJob(raw, {}); });
  };
  for (const int one : {1, 3}) {
    EXPECT_THAT(error(one), HasSubstr("strata.tied{\"e\"}: weights.except names only one of layer "
                                      "1 Linear(64, 64) and layer 3 Linear(64, 64), which share a "
                                      "tensor; name both"));
  }
  EXPECT_EQ(error(Ints({1, 3})), "");
  EXPECT_EQ(error(2), "");
}

TEST(Zero, TheOptimizersStateAndGradientsAreSharded) {
  EXPECT_EQ(Build({}).zero, 0);
  for (const int zero : {1, 2}) EXPECT_EQ(Build({{"zero", zero}}).zero, zero);
  EXPECT_THAT(BuildError({{"zero", 3}}), HasSubstr("zero = 3: expected 0, 1 or 2"));
  EXPECT_THAT(BuildError({{"zero", 3}}), HasSubstr("sharding parameters"));
}

// ---- overrides ----

TEST(JobOverrides, HoldOverTheScript) {
  const Job job = Build({{"seed", 1}, {"clip", 2}, {"schedule", "gpipe"}},
                        Over({{"seed", 5}, {"clip", "none"}, {"schedule", "1f1b"}}));
  EXPECT_EQ(job.seed, 5);
  EXPECT_EQ(job.clip, 0);
  EXPECT_EQ(job.schedule.name, "1f1b");
}

TEST(JobOverrides, TablesMergeByName) {
  const Job job = Build({{"parallel", MapOf({{"pipe", 2}, {"data", 1}})},
                         {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})}},
                        Over({{"pipe", 4}, {"micro_batches", 16}}));
  EXPECT_EQ(job.parallel.pipe, 4);
  EXPECT_EQ(job.parallel.data, 1);
  EXPECT_EQ(job.batch.size, 128);
}

TEST(JobOverrides, AWholeBatchReplacesTheScripts) {
  const Value::Map script = {{"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})}};
  const Batch batch = Build(script, Over({{"batch", Ints({64, 16})}})).batch;
  EXPECT_EQ(batch.size, 64);
  EXPECT_EQ(batch.micro_batch_size, 4);
  EXPECT_EQ(Build(script, Over({{"size", 64}, {"micro_batch_size", 2}})).batch.micro_batches, 32);
  EXPECT_THAT(BuildError(script, Over({{"size", 64}})), HasSubstr("batch: size 64 is not"));
}

TEST(JobOverrides, NoneLeavesTheDefaultOfATablesKey) {
  const Value::Map script = {
      {"save", MapOf({{"dir", "run"}, {"every", 2}, {"keep", 5}})},
      {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})},
      {"optimizer",
       MapOf({{"1", "sgd"},
              {"momentum", 0.5},
              {"groups", Value::List{MapOf({{"layers", 1}, {"momentum", Value()}})}}})},
      {"data", MapOf({{"train", Digits()}, {"test", Digits("test")}, {"workers", 3}})}};
  const SaveSpec save = Build(script, Over({{"save.every", "none"}})).save;
  EXPECT_EQ(save.every, 0);
  EXPECT_EQ(save.keep, 5);
  const auto with = [](const char* name) { return Over({{"save", MapOf({{name, Value()}})}}); };
  EXPECT_EQ(Build(script, with("keep")).save.keep, 2);
  EXPECT_THAT(BuildError(script, with("dir")), HasSubstr("the job's save needs dir"));
  EXPECT_EQ(Build(script, Over({{"batch.size", "none"}, {"micro_batches", 16}})).batch.size, 128);
  EXPECT_THAT(Build(script, Over({{"optimizer.groups", "none"}})).optimizer.groups, IsEmpty());
  EXPECT_FALSE(Build(script).optimizer.groups[0].options.Has("momentum"))
      << "of a group null is nothing, as nil is";
  EXPECT_EQ(Build(script).train_data.options["workers"], Value(3));
  EXPECT_TRUE(
      Build(script, Over({{"data.workers", "none"}})).train_data.options["workers"].is_null());
  for (const Value& none : {Value("none"), Value()}) {
    const Job job = Build(script, Over({{"data", MapOf({{"test", none}})}}));
    EXPECT_EQ(job.test_data.kind, "");
    EXPECT_EQ(job.train_data.kind, "digits");
  }
  EXPECT_EQ(Build(script, Over({{"data.test", "none"}})).test_data.kind, "");
  EXPECT_THAT(BuildError({{"recompute", MapOf({{"every", Value()}})}}),
              HasSubstr("recompute expects {every=N}"));
}

TEST(JobOverrides, NoneLeavesATableAsIfTheScriptHadNotGivenIt) {
  const Value::Map script = {{"data", MapOf({{"train", Digits()}, {"test", Digits("test")}})},
                             {"stop", MapOf({{"patience", 3}})},
                             {"eval", MapOf({{"every", 5}})},
                             {"lr_schedule", MapOf({{"1", "cosine"}, {"warmup", 2}})},
                             {"precision", "bf16"},
                             {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.5}})},
                             {"callbacks", MapOf({{"on_step", Function("net.lua:5")}})}};
  for (const Value& none : {Value("none"), Value()}) {
    const auto over = [&](const char* key) { return Build(script, Over({{key, none}})); };
    EXPECT_EQ(over("stop").stop.monitor, "");
    EXPECT_EQ(Build(script, Over({{"stop", none}, {"eval", none}})).eval.every, 0);
    EXPECT_EQ(over("lr_schedule").lr_schedule.type, "constant");
    EXPECT_EQ(over("precision").precision.name, "float32");
    EXPECT_EQ(over("optimizer").optimizer.type, "sgd");
    EXPECT_EQ(over("optimizer").optimizer.options["lr"], Value(1e-3));
    EXPECT_LT(over("callbacks").callbacks.on_step.id, 0);
    EXPECT_EQ(Build(script, Over({{"stop", none}, {"data", none}})).train_data.kind, "");
  }
  const auto behind = [&](const Value& overrides) { return Build(script, overrides).optimizer; };
  EXPECT_EQ(behind(Over({{"optimizer.lr", 0.25}, {"optimizer", "none"}})).options["lr"],
            Value(1e-3))
      << "the last one holds";
  EXPECT_EQ(behind(Over({{"optimizer", "none"}, {"optimizer.lr", 0.25}})).options["lr"],
            Value(0.25));
  EXPECT_EQ(behind(Over({{"optimizer", "none"}, {"optimizer.lr", 0.25}})).type, "sgd");
  EXPECT_EQ(Build({{"stop", "none"}, {"lr_schedule", "none"}}).stop.monitor, "");
}

TEST(JobOverrides, OptionsMergeWithinOneType) {
  const Value::Map script = {{"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}})}};
  const OptimizerSpec same = Build(script, Over({{"optimizer.lr", 0.5}})).optimizer;
  EXPECT_EQ(same.options["lr"], Value(0.5));
  EXPECT_EQ(same.options["momentum"], Value(0.9));
  const OptimizerSpec named =
      Build(script, Over({{"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.5}})}})).optimizer;
  EXPECT_EQ(named.options["momentum"], Value(0.9));
}

TEST(JobOverrides, AnotherTypeDropsTheScriptsOptions) {
  const Value::Map script = {{"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}})}};
  const OptimizerSpec adam = Build(script, Over({{"optimizer", "adam"}})).optimizer;
  EXPECT_EQ(adam.type, "adam");
  EXPECT_EQ(adam.options["lr"], Value(1e-3));
  EXPECT_THAT(BuildError(script, Over({{"optimizer.eps", 0.5}})),
              HasSubstr("the optimizer sgd has no option \"eps\""));
}

TEST(JobOverrides, LrSchedulesReplaceFunctions) {
  const Value::Map script = {{"lr_schedule", Function("net.lua:5")}};
  EXPECT_EQ(Build(script, Over({{"lr_schedule", "cosine"}})).lr_schedule.type, "cosine");
  EXPECT_EQ(
      Build({{"lr_schedule", "cosine"}}, Over({{"lr_schedule", Function("a:1")}})).lr_schedule.type,
      "function");
  EXPECT_THAT(BuildError(script, Over({{"lr_schedule.final", 0.5}})),
              HasSubstr("lr_schedule needs a type first"));
}

TEST(JobOverrides, ReachIntoSources) {
  const Value::Map script = {{"data", MapOf({{"train", Digits()}, {"test", Digits("test")}})}};
  const Job job = Build(script, Over({{"data.train.path", "here"}}));
  EXPECT_EQ(job.train_data.options["path"], Value("here"));
  EXPECT_TRUE(job.test_data.options["path"].is_null());
  EXPECT_THAT(BuildError(script, Over({{"data.train.vocabulary", 5}})),
              HasSubstr("strata.data.digits has no argument \"vocabulary\""));
  EXPECT_THAT(BuildError({{"data", Function("a:1")}}, Over({{"data.train.path", "here"}})),
              HasSubstr("data.train is no source that has options"));
}

/// `--input=F` reads F as data.test is read, or as data.train if there is no data.test.
TEST(JobOverrides, AnInputIsReadAsTheJobsDataIs) {
  const Value train = MakeDataSource("csv", {"train.csv"}, {{"target", "price"}}, "net.lua:9");
  const Value test = MakeDataSource("csv", {"test.csv"}, {{"target", "rent"}}, "net.lua:9");
  const Value part = MakeDataStep("take", train, {5}, {}, "net.lua:9");
  const auto options = [](const Value::Map& keys, const Value::Map& over) {
    RawJob raw = SmallJob(keys);
    raw.examine = [](const DataSpec&) {
      return DataFacts{5, {{{64}, DType::kFloat32}}, {{{}, DType::kInt64}}, 10};
    };
    return BuildJob(raw, Over(over)).test_data.options;
  };
  const Value::Map input = {{"data.input", "new.csv"}};
  for (const Value& data : {train, part, MapOf({{"train", train}}), MapOf({{"train", part}})}) {
    const Value read = options({{"data", data}}, input);
    EXPECT_EQ(read["path"], Value("new.csv"));
    EXPECT_EQ(read["like"], Value("train.csv"));
    EXPECT_EQ(read["target"], Value("price"));
  }
  const Value flagged = options({{"data", MapOf({{"train", train}})}},
                                {{"data.input", "new.csv"}, {"data.train.missing", "mean"}});
  EXPECT_EQ(flagged["missing"], Value("mean")) << "flags of the training's source count, too";
  const Value both = options({{"data", MapOf({{"train", train}, {"test", test}})}}, input);
  EXPECT_EQ(both["like"], Value("test.csv"));
  EXPECT_EQ(both["target"], Value("rent"));
  for (const Value::Map& keys : {Value::Map{}, Value::Map{{"data", Function("a:1")}},
                                 Value::Map{{"data", MapOf({{"train", Function("a:1")}})}}}) {
    const Value read = options(keys, input);
    EXPECT_EQ(read["path"], Value("new.csv"));
    EXPECT_TRUE(read["like"].is_null());
  }
}

/// Applies if the job's own data does not consist of image files.
TEST(JobOverrides, ImagesGetTheSizeOfTheJobsSamples) {
  const Value arrays = MakeDataSource("npy", {"x.npy"}, {}, "net.lua:9");
  const Value test = MakeDataStep("take", MakeDataStep("cache", arrays, {}, {}, "net.lua:9"), {5},
                                  {}, "net.lua:9");
  for (const int64_t channels : {1, 3}) {
    RawJob raw = SmallJob({{"data", MapOf({{"train", arrays}, {"test", test}})}});
    raw.examine = [&](const DataSpec&) {
      return DataFacts{5, {{{channels, 32, 32}, DType::kFloat32}}, {{{}, DType::kInt64}}, 10};
    };
    const Value images =
        BuildJob(raw, Over({{"data.input", "photos.png"}})).test_data.options["of"];
    EXPECT_EQ(images["source"], Value("image_folder"));
    EXPECT_EQ(images["size"], Value(32));
    EXPECT_EQ(images["channels"], Value(channels));
  }
}

TEST(JobOverrides, ReplaceSources) {
  const Value::Map script = {{"data", Digits()}};
  EXPECT_EQ(Build(script, Over({{"data", Function("a:1")}})).train_data.kind, "function");
  const Value tokens = MakeDataSource("tokens", {10, 5}, {}, "net.lua:30");
  const Job job = Build(script, Over({{"data", MapOf({{"train", tokens}})}}));
  EXPECT_EQ(job.train_data.kind, "tokens");
  EXPECT_EQ(job.train_data.where, "net.lua:30");
  EXPECT_EQ(Build(script, Over({{"data", tokens}})).train_data.kind, "tokens");
}

// ---- classes by name ----

/// Builds a job whose data has these classes, and returns its test data.
DataSpec TestDataOf(const std::vector<std::string>& train, const std::vector<std::string>& test,
                    const TensorSpec& test_target = {{}, DType::kInt64}) {
  RawJob raw =
      SmallJob({{"data", MapOf({{"train", MakeDataSource("csv", {"train.csv"}, {}, "net.lua:9")},
                                {"test", MakeDataSource("csv", {"test.csv"}, {}, "net.lua:9")}})}});
  raw.examine = [&](const DataSpec& spec) {
    const bool is_test = spec.options["path"] == Value("test.csv");
    const auto& names = is_test ? test : train;
    const TensorSpec target = is_test ? test_target : TensorSpec{{}, DType::kInt64};
    return DataFacts{
        5, {{{64}, DType::kFloat32}}, {target}, static_cast<int64_t>(names.size()), names};
  };
  return BuildJob(raw, {}).test_data;
}

TEST(TestClasses, AreThoseOfTheTraining) {
  const std::vector<std::string> all = {"bird", "cat", "dog"};
  const DataSpec fewer = TestDataOf(all, {"cat", "dog"});
  EXPECT_EQ(fewer.options["class_names"], Value(Value::List{"bird", "cat", "dog"}));
  EXPECT_EQ(FactsOf(fewer).classes, 3);
  for (const auto& [train, test] :
       {std::pair(all, all), {all, {}}, {std::vector<std::string>{}, all}}) {
    EXPECT_FALSE(TestDataOf(train, test).options.Has("class_names"));
  }
  EXPECT_FALSE(TestDataOf(all, all).options["facts"].Has("class_names"))
      << "saves know jobs without them";
}

TEST(TestClasses, BehindMapSavesKnowThoseOfWhatItWasGiven) {
  RawJob raw = SmallJob({{"data", MakeDataSource("csv", {"train.csv"}, {}, "net.lua:9")}});
  raw.examine = [](const DataSpec&) {
    return DataFacts{5, {{{64}, DType::kFloat32}}, {{{}, DType::kInt64}}, 0, {}, {"cat", "dog"}};
  };
  const DataSpec train = BuildJob(raw, {}).train_data;
  EXPECT_THAT(train.class_names, ElementsAre("cat", "dog"));
  EXPECT_FALSE(train.options["facts"].Has("names_before_map")) << "saves know jobs without them";
}

TEST(TestClasses, OthersAreRefused) {
  EXPECT_EQ(ErrorOf([] {
              TestDataOf({"bird", "cat"}, {"cat", "cow"});
            }),
            "net.lua:3: the job: data.test has the class \"cow\", which data.train has not: "
            "data.test has cat, cow; data.train has bird, cat");
  std::vector<std::string> many;
  for (int i = 0; i < 100; ++i) many.push_back(Str("class", i));
  EXPECT_THAT(ErrorOf([&] { TestDataOf(many, {"cat"}); }), HasSubstr("class9, ... (100 classes)"));
  EXPECT_THAT(
      ErrorOf([] {
        TestDataOf({"bird", "cat"}, {"cat"}, {{1}, DType::kFloat32});
      }),
      HasSubstr("net.lua:3: the job: data.test has other classes than data.train, and targets that "
                "are no classes any more: data.test has cat; data.train has bird, cat"));
}

// ---- the canonical form ----

TEST(JobToValue, ThePathOfTheScriptDoesNotMatter) {
  RawJob raw = SmallJob();
  const Value here = BuildJob(raw, {}).ToValue();
  raw.script = "elsewhere/net.lua";
  EXPECT_EQ(BuildJob(raw, {}).ToValue(), here);
}

}  // namespace
}  // namespace strata
