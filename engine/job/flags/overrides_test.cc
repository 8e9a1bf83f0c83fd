#include "engine/job/flags/overrides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "engine/job/job_fields.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Value Set(const std::string& path, const Value& value, Value overrides = {}) {
  SetOverride(overrides, path, value, "the job", "net.lua:20");
  return overrides;
}

TEST(FindJobField, KnowsEveryKindOfPath) {
  const std::vector<std::pair<std::string, std::string>> paths = {
      {"steps", "steps"},
      {"hang-timeout", "hang_timeout"},
      {"optimizer.lr", "lr"},
      {"optimizer.betas", "betas"},
      {"pipe", "pipe"},
      {"parallel.pipe", "pipe"},
      {"model", "model"},
      {"micro-batches", "micro_batches"},
      {"batch.size", "size"},
      {"size", "size"},
      {"input.shape", "shape"},
      {"lr_schedule.warmup", "warmup"},
      {"data.train.path", "path"},
      {"data.test.vocabulary", "vocabulary"},
      {"eval.every", "every"},
      {"data", "data"}};
  for (const auto& [path, name] : paths) {
    const Field* field = FindJobField(path);
    ASSERT_NE(field, nullptr) << path;
    EXPECT_EQ(field->name, name) << path;
  }
  EXPECT_EQ(FindJobField("data")->kind, FieldKind::kTable) << "the sources, not the degree";
}

TEST(FindJobField, KnowsNoOthers) {
  for (const char* path : {"", "stepz", "layers", "loss", "optimizer.", "optimizer.lrr", ".lr",
                           "steps.x", "optimizer.lr.x", "optimizer.fused", "lr", "train"}) {
    EXPECT_EQ(FindJobField(path), nullptr) << path;
  }
}

TEST(JobFieldPaths, AreAllFoundAndUnique) {
  const std::vector<std::string> paths = JobFieldPaths();
  EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), paths.size());
  for (const std::string& path : paths) EXPECT_NE(FindJobField(path), nullptr) << path;
  for (const char* path : {"pipe", "parallel.pipe", "optimizer.betas", "data.train.path", "seed"}) {
    EXPECT_THAT(paths, Contains(path));
  }
  EXPECT_THAT(paths, Not(Contains("layers")));
  EXPECT_THAT(paths, Not(Contains("optimizer.fused")));
}

TEST(JobFields, HoldEveryKeyOfTheDesign) {
  for (const char* key : {"name",      "layers",     "input",       "loss",
                          "partition", "parallel",   "schedule",    "stages_per_rank",
                          "batch",     "optimizer",  "lr_schedule", "clip",
                          "zero",      "freeze",     "recompute",   "data",
                          "eval",      "steps",      "epochs",      "seed",
                          "seed_fn",   "save",       "resume",      "device",
                          "transport", "threads",    "timeout",     "hang_timeout",
                          "tie_check", "log",        "trace",       "losses",
                          "comm_log",  "weights",    "memory",      "costs",
                          "nonfinite", "precision",  "ema",         "stop",
                          "callbacks", "grad_norms", "rebalance",   "histograms",
                          "links",     "adapt",      "check",       "ranks"}) {
    ASSERT_NE(FindField(JobFields(), key), nullptr) << key;
    EXPECT_FALSE(FindField(JobFields(), key)->help.empty()) << key;
  }
  EXPECT_EQ(JobFields().size(), 48u) << "a new key belongs in this test";
}

TEST(SetOverride, WritesOneForm) {
  EXPECT_EQ(Set("steps", 5), MapOf({{"steps", 5}}));
  EXPECT_EQ(Set("hang-timeout", 5), MapOf({{"hang_timeout", 5.0}}));
  EXPECT_EQ(Set("pipe", 4), MapOf({{"parallel", MapOf({{"pipe", 4}})}}));
  EXPECT_EQ(Set("parallel.pipe", 4), MapOf({{"parallel", MapOf({{"pipe", 4}})}}));
  EXPECT_EQ(Set("micro_batches", 4), MapOf({{"batch", MapOf({{"micro_batches", 4}})}}));
  EXPECT_EQ(Set("optimizer", "adam"), MapOf({{"optimizer", MapOf({{"1", "adam"}})}}));
  EXPECT_EQ(Set("batch", 32), MapOf({{"batch", MapOf({{"1", 32}})}}));
  EXPECT_EQ(Set("partition", Ints({0, 2})), MapOf({{"partition", Ints({0, 2})}}));
  EXPECT_EQ(Set("clip", "none"), MapOf({{"clip", Value()}}));
}

TEST(SetOverride, DataWithANumberIsTheDegree) {
  EXPECT_EQ(Set("data", 2), MapOf({{"parallel", MapOf({{"data", 2}})}}));
  const Value source = Digits();
  EXPECT_EQ(Set("data", source)["data"]["source"], Value("digits"));
  EXPECT_EQ(Set("data", Function("a:1"))["data"], Value(Function("a:1")));
}

TEST(SetOverride, LaterOnesAddToTables) {
  const Value both = Set("optimizer.lr", 0.1, Set("optimizer", "adam"));
  EXPECT_EQ(both, MapOf({{"optimizer", MapOf({{"1", "adam"}, {"lr", 0.1}})}}));
  EXPECT_EQ(Set("optimizer", "adam", Set("optimizer.lr", 0.1))["optimizer"]["lr"], Value(0.1));
  EXPECT_EQ(Set("steps", 6, Set("steps", 5)), MapOf({{"steps", 6}}));
  EXPECT_EQ(Set("model", 1, Set("pipe", 4)),
            MapOf({{"parallel", MapOf({{"pipe", 4}, {"model", 1}})}}));
}

TEST(SetOverride, ATableThatIsNoneTakesBackWhatWasSaid) {
  const Value none = MapOf({{"stop", MapOf({{"1", "none"}})}});
  EXPECT_EQ(Set("stop", "none", Set("stop.patience", 3)), none);
  EXPECT_EQ(Set("stop", Value()), none);
  EXPECT_EQ(Set("stop.patience", 3, none),
            MapOf({{"stop", MapOf({{"1", "none"}, {"patience", 3}})}}));
}

TEST(KeyHint, KnowsWhatOtherEnginesCallAKey) {
  const std::vector<std::string> paths = JobFieldPaths();
  EXPECT_EQ(KeyHint("gradient-accumulation-steps", paths),
            "; did you mean \"batch.micro_batches\"?");
  EXPECT_EQ(KeyHint("lr_schedule.T_max", paths), "; did you mean \"lr_schedule.steps\"?");
  EXPECT_EQ(KeyHint("early-stopping", paths), "; did you mean \"stop\"?");
  EXPECT_EQ(KeyHint("drop_last", paths), "; did you mean \"data:take(n)\"?");
  EXPECT_THAT(KeyHint("eval.batch_size", paths), Not(HasSubstr("\"batch.size\"")));
  EXPECT_THAT(KeyHint("params", paths), Not(HasSubstr("parameters")));
  EXPECT_EQ(KeyHint("stepz", paths), "; did you mean \"steps\"?");
  EXPECT_EQ(KeyHint("xyzzyplugh", paths, 0), "");
}

TEST(SetOverride, RefusesWithTheNearest) {
  EXPECT_EQ(ErrorOf([] { Set("stepz", 5); }),
            "net.lua:20: the job has no key \"stepz\"; did you mean \"steps\"?");
  EXPECT_EQ(ErrorOf([] { Set("optimizer.lrr", 5); }),
            "net.lua:20: the job has no key \"optimizer.lrr\"; did you mean \"optimizer.lr\"?");
  EXPECT_EQ(ErrorOf([] { Set("weight_decay", 5); }),
            "net.lua:20: the job has no key \"weight_decay\"; did you mean "
            "\"optimizer.weight_decay\"?");
  EXPECT_THAT(ErrorOf([] { Set("layers", 5); }), HasSubstr("has no key \"layers\""));
}

TEST(SetOverride, RefusesWhatDoesNotFit) {
  EXPECT_EQ(ErrorOf([] { Set("steps", "five"); }),
            "net.lua:20: the job: steps expects an integer, at least 1, or none; got the string "
            "\"five\"");
  EXPECT_EQ(ErrorOf([] { Set("pipe", 0); }),
            "net.lua:20: the job: pipe expects an integer, at least 1, or none; got the number 0");
  EXPECT_THAT(ErrorOf([] { Set("optimizer.lr", "fast"); }), HasSubstr("lr expects a number"));
}

TEST(SetOverride, TakesWhatTheFieldOfAnyTypeTakes) {
  struct Option {
    const char* path;
    Value value;
    const char* overrides;  // JSON text
  };
  const Option cases[] = {
      {"precision.reduce", "bf16", R"({"precision": {"reduce": "bf16"}})"},
      {"precision.reduce", "fp16", R"({"precision": {"reduce": "fp16"}})"},
      {"precision.messages", "fp16", R"({"precision": {"messages": "fp16"}})"},
      {"data.train.split", "all", R"({"data": {"train": {"split": "all"}}})"},
      {"optimizer.eps", 1, R"({"optimizer": {"eps": 1.0}})"},
      {"optimizer.eps", Value::List{"none", 1e-3}, R"({"optimizer": {"eps": [null, 0.001]}})"},
      {"lr_schedule.steps", 5, R"({"lr_schedule": {"steps": 5}})"},
      {"lr_schedule.steps", "none", R"({"lr_schedule": {"steps": null}})"},
  };
  for (const auto& [path, value, overrides] : cases) {
    EXPECT_EQ(Set(path, value), Value::FromJson(overrides)) << Set(path, value).ToJson();
  }
}

TEST(SetOverride, RefusesWhatNoTypesFieldTakes) {
  const std::string place = "net.lua:20: the job: ";
  EXPECT_EQ(
      ErrorOf([] { Set("precision.reduce", "fp64"); }),
      place + "reduce expects one of \"float32\", \"bf16\", \"fp16\"; got the string \"fp64\"");
  EXPECT_EQ(ErrorOf([] { Set("data.train.split", "al"); }),
            place +
                "split expects one of \"train\", \"test\", \"all\"; got the string \"al\"; did "
                "you mean \"all\"?");
  EXPECT_EQ(ErrorOf([] { Set("optimizer.eps", "small"); }),
            place +
                "eps expects a number, at least 0; got the string \"small\"; another type takes "
                "a list of 2 numbers, at least 0");
  EXPECT_EQ(ErrorOf([] { Set("lr_schedule.steps", 0); }),
            place + "steps expects an integer, at least 1, or none; got the number 0");
}

TEST(Overrides, TakeATable) {
  EXPECT_EQ(Overrides(MapOf({{"pipe", 2}, {"optimizer.lr", 0.1}, {"partition", "uniform"}}), ""),
            MapOf({{"parallel", MapOf({{"pipe", 2}})},
                   {"optimizer", MapOf({{"lr", 0.1}})},
                   {"partition", "uniform"}}));
  EXPECT_EQ(Overrides(Value(), ""), Value::MakeMap());
  EXPECT_EQ(Overrides(Value::List{}, ""), Value::MakeMap());
}

TEST(Overrides, TakeNoPositions) {
  EXPECT_EQ(ErrorOf([] { Overrides(Ints({2}), "net.lua:20"); }),
            "net.lua:20: expected keys with values, such as {pipe=2}; got the number 2");
}

RC_GTEST_PROP(Overrides, BareAndFullNamesMeanTheSame, ()) {
  const int value = *rc::gen::inRange(1, 100);
  const auto name = *rc::gen::element<std::string>("pipe", "model");
  RC_ASSERT(Set(name, value) == Set("parallel." + name, value));
  const auto size = *rc::gen::element<std::string>("size", "micro_batches", "micro_batch_size");
  RC_ASSERT(Set(size, value) == Set("batch." + size, value));
}

RC_GTEST_PROP(Overrides, AnyPathIsTakenOrRefused, (const std::string& path)) {
  const std::string error = ErrorOf([&] { Set(path, 1); });
  RC_ASSERT(!error.empty() || FindJobField(path) != nullptr);
}

TEST(SetOverride, NestedKeysInATable) {
  struct Nested {
    const char* path;
    Value value;
    const char* overrides;  // JSON text
  };
  const Nested cases[] = {
      {"save.dir", "runs", R"({"save": {"dir": "runs"}})"},
      {"save.every", 5, R"({"save": {"every": 5}})"},
      {"save.keep", 0, R"({"save": {"keep": 0}})"},
      {"save.every", "none", R"({"save": {"every": null}})"},
      {"eval.metric", "none", R"({"eval": {"metric": "none"}})"},
      {"eval.batch", 4.0, R"({"eval": {"batch": 4}})"},
      {"parallel.model", 2, R"({"parallel": {"model": 2}})"},
      {"micro-batch-size", 4, R"({"batch": {"micro_batch_size": 4}})"},
      {"lr_schedule.final", 1, R"({"lr_schedule": {"final": 1.0}})"},
      {"lr-schedule.warmup", 3, R"({"lr_schedule": {"warmup": 3}})"},
      {"optimizer.weight-decay", 0, R"({"optimizer": {"weight_decay": 0.0}})"},
      {"stages-per-rank", 2, R"({"stages_per_rank": 2})"},
      {"tie-check", 0, R"({"tie_check": 0})"},
      {"comm-log", true, R"({"comm_log": true})"},
      {"weights.from", "gpt2", R"({"weights": {"from": "gpt2"}})"},
      {"zero", 3, R"({"zero": 3})"},
  };
  for (const auto& [path, value, overrides] : cases) {
    EXPECT_EQ(Set(path, value), Value::FromJson(overrides)) << Set(path, value).ToJson();
    EXPECT_EQ(Overrides(MapOf({{path, value}}), ""), Value::FromJson(overrides)) << path;
  }
}

TEST(SetOverride, NestedKeysAreRefusedInATable) {
  const std::tuple<const char*, Value, const char*> cases[] = {
      {"save.evry", 5, "has no key \"save.evry\"; did you mean \"save.every\"?"},
      {"save.every", 0,
       "every expects an integer, at least 1, or \"epoch\", or none; got the number 0"},
      {"save.keep", -1, "keep expects an integer, at least 0; got the number -1"},
      {"save.dir", 5, "dir expects a string; got the number 5"},
      {"eval.metric", "acuracy", "did you mean \"accuracy\"?"},
      {"zero", 4, "zero expects an integer, at least 0, at most 3; got the number 4"},
      {"tie_check", -1, "tie_check expects an integer, at least 0"},
      {"comm_log", 1, "comm_log expects true or false; got the number 1"},
      {"resume", true, "resume expects a string, or none; got"},
      {"trace", true, "trace expects a string, or none; got"},
  };
  for (const auto& [path, value, error] : cases) {
    EXPECT_THAT(ErrorOf([&, &path = path, &value = value] { Set(path, value); }), HasSubstr(error))
        << path;
  }
}

}  // namespace
}  // namespace strata
