#include "engine/job/flags/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/text.h"
#include "engine/job/flags/flags.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::HasSubstr;

Value Read(const std::string& text, const Value& flags = {}) {
  return ConfigOverrides(text, "F", flags);
}
std::string ErrorWith(const std::string& text) {
  return ErrorOf([&] { Read(text); });
}

std::string FlagText(const Value& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.as_string();
  if (!value.is_list()) return value.ToJson();
  std::vector<std::string> texts;
  for (const Value& element : value.as_list()) texts.push_back(FlagText(element));
  return Join(texts, ",");
}

std::vector<std::string> AsFlags(const Value& overrides, const std::string& path = "") {
  std::vector<std::string> flags;
  for (const auto& [name, value] : overrides.as_map()) {
    const std::string at = name == "1" ? path : Str(path, path.empty() ? "" : ".", name);
    if (value.is_map()) {
      for (std::string& flag : AsFlags(value, at)) flags.push_back(std::move(flag));
    } else {
      flags.push_back(Str("--", at, "=", FlagText(value)));
    }
  }
  return flags;
}

/// The overrides as the program reads them: those of the file become flags in front of the command
/// line's.
Value ReadAsFlags(const std::string& text) { return Flags(AsFlags(Read(text)), {}).job(); }

struct Case {
  const char* text;
  const char* overrides;  // JSON text
};

class MapsTest : public testing::TestWithParam<Case> {};

TEST_P(MapsTest, ToTheJobsKeys) {
  EXPECT_EQ(Read(GetParam().text), Value::FromJson(GetParam().overrides))
      << Read(GetParam().text).ToJson();
}

TEST_P(MapsTest, ToTheJobsFlags) {
  EXPECT_EQ(ReadAsFlags(GetParam().text), Value::FromJson(GetParam().overrides))
      << ReadAsFlags(GetParam().text).ToJson();
}

INSTANTIATE_TEST_SUITE_P(
    Keys, MapsTest,
    testing::Values(
        Case{R"({"steps": 5, "pipe": 2, "optimizer.lr": 0.5, "batch": {"size": 8}})",
             R"({"steps": 5, "parallel": {"pipe": 2}, "optimizer": {"lr": 0.5},
                 "batch": {"size": 8}})"},
        Case{R"({"stop": null, "data.test": null})",
             R"({"stop": {"1": "none"}, "data": {"test": {"1": "none"}}})"},
        Case{R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})",
             R"({"batch": {"micro_batch_size": 4, "micro_batches": 2}})"},
        Case{R"({"train_micro_batch_size_per_gpu": 4})",
             R"({"batch": {"micro_batch_size": 4, "micro_batches": 1}})"},
        Case{R"({"train_batch_size": 16, "data": 2})",
             R"({"parallel": {"data": 2}, "batch": {"size": 8, "micro_batches": 1}})"},
        Case{R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4,
                 "gradient_accumulation_steps": 2})",
             R"({"batch": {"micro_batch_size": 4, "micro_batches": 2, "size": 8},
                 "parallel": {"data": 2}})"},
        Case{R"({"optimizer": {"type": "Adam", "params": {"lr": 0.1, "betas": [0.8, 0.9]}}})",
             R"({"optimizer": {"1": "adamw", "lr": 0.1, "betas": [0.8, 0.9],
                 "weight_decay": 0.0}})"},
        Case{R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false,
                 "weight_decay": 0.1}}})",
             R"({"optimizer": {"1": "adam", "weight_decay": 0.1}})"},
        Case{R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9}}})",
             R"({"optimizer": {"1": "sgd", "momentum": 0.9}})"},
        Case{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10,
                 "warmup_type": "linear", "warmup_max_lr": 0.5}}})",
             R"({"lr_schedule": {"1": "warmup", "steps": 10}, "optimizer": {"lr": 0.5}})"},
        Case{R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10,
                 "warmup_type": "linear", "total_num_steps": 100}}})",
             R"({"lr_schedule": {"1": "linear", "steps": 90, "warmup": 10, "final": 0.0},
                 "optimizer": {"lr": 0.001}})"},
        Case{R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 0,
                 "total_num_steps": 100, "cos_min_ratio": 0.1}}})",
             R"({"lr_schedule": {"1": "cosine", "steps": 100, "warmup": 0, "final": 0.1}})"},
        Case{R"({"gradient_clipping": 1.5})", R"({"clip": 1.5})"},
        Case{R"({"gradient_clipping": 0})", R"({"clip": null})"},
        Case{R"({"zero_optimization": {"stage": 0}})", R"({"zero": 0})"},
        Case{R"({"fp16": {"enabled": false, "loss_scale": 0}, "bf16": {"enabled": false}})",
             R"({"precision": {"1": "float32"}})"},
        Case{R"({"bf16": {"enabled": false}, "communication_data_type": "fp32"})",
             R"({"precision": {"1": "float32"}})"},
        Case{R"({"bf16": {"enabled": true}, "fp16": {"enabled": false}})",
             R"({"precision": {"1": "bf16"}})"},
        Case{R"({"bf16": {"enabled": false}, "precision": "tf32"})",
             R"({"precision": {"1": "tf32"}})"},
        Case{R"({"communication_data_type": "fp32"})", "{}"},
        Case{R"({"communication_data_type": "fp32", "bf16": {"enabled": true}})",
             R"({"precision": {"1": "bf16", "reduce": "float32"}})"},
        Case{R"({"bf16": {"enabled": true}, "communication_data_type": "bf16"})",
             R"({"precision": {"1": "bf16", "reduce": "bf16"}})"},
        Case{R"({"fp16": {"enabled": true}})",
             R"({"precision": {"1": "fp16", "initial_scale": 65536.0, "growth_interval": 1000,
                 "hysteresis": 2, "min_scale": 1.0}})"},
        Case{R"({"fp16": {"enabled": true, "loss_scale": 128}, "communication_data_type": "fp16"})",
             R"({"precision": {"1": "fp16", "scale": 128.0, "reduce": "fp16"}})"}),
    [](const auto& info) { return Str("Case", info.index); });

TEST(ConfigOverridesTest, TheDataDegreeOfTheFlagsHolds) {
  const Value flags = Value::FromJson(R"({"parallel": {"data": 4}})");
  EXPECT_EQ(Read(R"({"train_batch_size": 16})", flags)["batch"]["size"], Value(4));
}

TEST(ConfigOverridesTest, Refusals) {
  const Case cases[] = {
      {"[1]", "F: expected an object of job keys, got the list {1}"},
      {"{", "F: "},
      {R"({"stepz": 5})", "F has no key \"stepz\"; did you mean \"steps\""},
      {R"({"steps": "many"})", "steps"},
      {R"({"fp16": {"enabled": true, "consecutive_hysteresis": true}})",
       "F: fp16.consecutive_hysteresis: overflows are forgiven again after growth only"},
      {R"({"fp16": {"enabled": true, "loss_scael": 1}})", "loss_scale"},
      {R"({"bf16": {"enabled": "auto"}})", "F: bf16"},
      {R"({"communication_data_type": "fp64"})", "communication_data_type"},
      {R"({"zero_optimization": {"stage": 1, "overlap_comm": true}})", "overlap_comm"},
      {R"({"zero_optimization": {"stage": 4}})", "stage"},
      {R"({"optimizer": {"type": "Lamb"}})", "F: optimizer.type: there is no \"lamb\""},
      {R"({"optimizer": {"params": {}}})", "type"},
      {R"({"optimizer": {"type": "Adam", "params": {"torch_adam": true}}})", "torch_adam"},
      {R"({"optimizer": {"type": "Adam", "params": [1]}})",
       "F: optimizer.params: expected an object"},
      {R"({"scheduler": {"type": "OneCycle", "params": {}}})", "scheduler.type: there is no"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {}}})", "\"log\", DeepSpeed's default"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear",
           "warmup_min_lr": 0.1}}})",
       "warmup_min_lr: the rise begins at 0"},
      {R"({"train_batch_size": 16})", "say it: --data=N"},
      {R"({"train_batch_size": 15, "data": 2})", "15 is not divisible by 2 replicas"},
      {R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4,
           "gradient_accumulation_steps": 2, "data": 1})",
       "= 8 * 1"},
      {R"({"train_micro_batch_size_per_gpu": 0})", "train_micro_batch_size_per_gpu"},
      {R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4294967296,
           "gradient_accumulation_steps": 4294967296})",
       "the largest is 2147483647"},
      {R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2147483647,
           "gradient_accumulation_steps": 2147483647, "data": 4})",
       "= 4611686014132420609 * 4"},
      {R"({"train_batch_size": 16, "parallel": {"data": 0}})", "F: data expects"},
      {R"({"train_batch_size": 16, "parallel": {"data": "two"}})", "F: data expects"},
      {R"({"fp16": {"enabled": true, "initial_scale_power": 4294967312}})", "initial_scale_power"},
      {R"({"gradient_clipping": -1})", "gradient_clipping"},
      {R"({"steps_per_print": 10})", "F: steps_per_print: use the flag --print_every"},
      {R"({"pipeline": {}})", "F: pipeline: use the keys"},
  };
  for (const auto& [text, error] : cases) EXPECT_THAT(ErrorWith(text), HasSubstr(error)) << text;
}

TEST(ConfigOverridesTest, AKeyThatComesTwiceIsNamedWithItsPlace) {
  EXPECT_THAT(ErrorWith("{\"steps\": 10,\n \"steps\": 20}"),
              HasSubstr("F: not valid JSON: line 2, column 8: the key \"steps\" comes twice"));
}

TEST(ReadConfigFileTest, NamesTheFile) {
  EXPECT_THAT(ErrorOf([] { ReadConfigFile("/nowhere.json", {}); }),
              HasSubstr("--config=/nowhere.json: No such file"));
}

// The refusal of each of DeepSpeed's keys says what to use instead.
TEST(ConfigOverridesTest, RefusedKeysSayWhatToUseInstead) {
  EXPECT_GE(RefusedKeys().size(), 18u);
  for (const auto& [key, why] : RefusedKeys()) {
    // The key is refused with any value, also with one that would have no effect.
    for (const char* value : {"{}", "false", "null", R"({"enabled": false})"}) {
      EXPECT_EQ(ErrorWith(Str("{\"steps\": 1, \"", key, "\": ", value, "}")),
                Str("F: ", key, ": ", why));
    }
  }
}

TEST(ConfigOverridesTest, PrecisionsAreTablesThatSayWhetherTheyHold) {
  for (const char* key : {"fp16", "bf16", "amp"}) {
    // Turning amp (apex) off does not change the precision; turning fp16 or bf16 off sets it to
    // float32.
    const char* const overrides = *key == 'a' ? "{}" : R"({"precision": {"1": "float32"}})";
    for (const char* off : {"{}", R"({"enabled": false})"}) {
      EXPECT_EQ(Read(Str("{\"", key, "\": ", off, "}")), Value::FromJson(overrides)) << key << off;
    }
    for (const char* wrong :
         {"true", "null", "[]", R"({"enabled": 0})", R"({"enabled": "auto"})"}) {
      EXPECT_THAT(ErrorWith(Str("{\"", key, "\": ", wrong, "}")), HasSubstr(Str("F: ", key)))
          << wrong;
    }
  }
  EXPECT_EQ(ErrorWith(R"({"amp": {"enabled": true}})"),
            "F: amp: apex is not here; use fp16 or bf16");
}

TEST(ConfigOverridesTest, NamesOfTypesInAnyCase) {
  const std::pair<const char*, const char*> optimizers[] = {
      {"adam", "adamw"}, {"ADAM", "adamw"}, {"AdamW", "adamw"}, {"SGD", "sgd"}, {"sgd", "sgd"}};
  for (const auto& [written, type] : optimizers) {
    const Value overrides = Read(Str(R"({"optimizer": {"type": ")", written, "\"}}"));
    EXPECT_EQ(overrides["optimizer"]["1"], Value(type)) << written;
  }
  for (const char* written : {"WarmupLR", "warmuplr", "WARMUPLR"}) {
    const Value overrides = Read(
        Str(R"({"scheduler": {"type": ")", written, R"(", "params": {"warmup_type": "linear"}}})"));
    EXPECT_EQ(overrides["lr_schedule"], Value::FromJson(R"({"1": "warmup", "steps": 1000})"));
  }
}

// JSON objects have no order, so the scheduler's lr takes precedence in any order of the keys.
TEST(ConfigOverridesTest, TheOrderOfKeysDoesNotCount) {
  std::vector<std::string> keys = {
      R"("optimizer": {"type": "SGD", "params": {"lr": 0.1}})",
      R"("scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear",
         "warmup_num_steps": 4, "warmup_max_lr": 0.5}})",
      R"("train_batch_size": 16)", R"("data": 2)", R"("gradient_accumulation_steps": 4)"};
  std::sort(keys.begin(), keys.end());
  const Value expected = Value::FromJson(R"({"optimizer": {"1": "sgd", "lr": 0.5},
      "lr_schedule": {"1": "warmup", "steps": 4}, "parallel": {"data": 2},
      "batch": {"size": 8, "micro_batches": 4}})");
  do {
    const std::string text = Str("{", Join(keys, ", "), "}");
    EXPECT_EQ(Read(text), expected) << text;
  } while (std::next_permutation(keys.begin(), keys.end()));
}

TEST(ConfigOverridesTest, TablesAreChecked) {
  const Case cases[] = {
      {R"({"zero_optimization": 1})", "F: zero_optimization: expected an object, got the number 1"},
      {R"({"zero_optimization": {"stage": -1}})",
       "stage expects an integer, at least 0, at most 3"},
      {R"({"zero_optimization": {"stag": 1}})", "has no key \"stag\"; did you mean \"stage\"?"},
      {R"({"scheduler": null})", "F: scheduler: expected an object, got nothing"},
      {R"({"scheduler": {"params": {}}})", "F: scheduler needs type"},
      {R"({"scheduler": {"type": "WarmupLR", "params": 5}})",
       "F: scheduler.params: expected an object, got the number 5"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 5}}})",
       "F: scheduler.params has no key \"total_num_steps\""},
      {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 0}}})",
       "F: scheduler.params needs total_num_steps"},
      {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 5,
           "warmup_type": "linear", "total_num_steps": 5}}})",
       "F: scheduler.params.total_num_steps: not more than warmup_num_steps"},
      {R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 0,
           "total_num_steps": 5, "warmup_min_ratio": 0.5}}})",
       "F: scheduler.params.warmup_min_ratio: the rise begins at 0 here"},
      {R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": 1}}})",
       "F: optimizer.params.adam_w_mode: expected true or false"},
      {R"({"optimizer": {"type": "SGD", "extra": 1}})", "F: optimizer has no key \"extra\""},
      {R"({"optimizer": {"type": "SGD", "params": {"lr": "auto"}}})", "F: lr expects a number"},
      {R"({"optimizer": {"lr": -1}})", "F: lr expects a number, at least 0; got the number -1"},
      {R"({"save": {"every": 0}})", "F: every expects an integer, at least 1, or \"epoch\""},
      {R"({"save": {"evry": 1}})", "F has no key \"save.evry\"; did you mean \"save.every\"?"},
      {R"({"data": {"train": {"samples": 0}}})", "F: samples expects an integer, at least 1"},
      {R"({"train_batch_size": 1.5})", "F: train_batch_size expects an integer, at least 1"},
      {R"({"gradient_accumulation_steps": "auto"})", "F: gradient_accumulation_steps expects an"},
      {R"({"gradient_clipping": null})", "F: gradient_clipping expects a number, at least 0"},
  };
  for (const auto& [text, error] : cases) EXPECT_THAT(ErrorWith(text), HasSubstr(error)) << text;
}

TEST(ConfigOverridesTest, WhatTheFileTurnsOffIsOffWhateverTheScriptSays) {
  const auto job_of = [](const char* file) {
    const Value bf16 = Value::MakeMap({{"1", "bf16"}, {"reduce", "bf16"}});
    return Build({{"clip", 0.5}, {"precision", bf16}}, Read(file));
  };
  EXPECT_EQ(job_of("{}").clip, 0.5);
  EXPECT_EQ(job_of(R"({"gradient_clipping": 0})").clip, 0);
  EXPECT_EQ(job_of("{}").precision.name, "bf16");
  EXPECT_EQ(job_of(R"({"bf16": {"enabled": false}})").precision.name, "float32");
  const Job exchanged = job_of(R"({"bf16": {"enabled": true}, "communication_data_type": "fp32"})");
  EXPECT_EQ(exchanged.precision.name, "bf16");
  EXPECT_EQ(exchanged.precision.reduce, DType::kFloat32);
}

TEST(ConfigOverridesTest, GradientsAreExchangedInTheTypeOfTheFile) {
  for (const auto& [type, reduce] :
       {std::pair("fp16", DType::kFloat16), std::pair("bf16", DType::kBFloat16)}) {
    const Job job = Build({}, ReadAsFlags(Str("{\"", type, R"(": {"enabled": true},
        "communication_data_type": ")",
                                              type, "\"}")));
    EXPECT_EQ(job.precision.name, type);
    EXPECT_EQ(job.precision.reduce, reduce) << type;
  }
}

TEST(ConfigOverridesTest, ATableIsItsKeys) {
  EXPECT_EQ(
      Read(R"({"stop": {"patience": 3, "1": "test.loss"}, "save": {"dir": "a", "keep": 1}})"),
      Read(R"({"stop": ["test.loss"], "stop.patience": 3, "save.keep": 1, "save.dir": "a"})"));
  EXPECT_EQ(Read(R"({"data": {"train": {"path": "a"}, "workers": 2}, "save": {}})"),
            Read(R"({"data.train.path": "a", "data.workers": 2})"));
}

TEST(ConfigOverridesTest, AWholeFileMakesAJob) {
  const Job job = Build({{"steps", 3}, {"optimizer", "sgd"}}, Read(R"({
      "train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
      "gradient_accumulation_steps": 4, "gradient_clipping": 1.0, "fp16": {"enabled": false},
      "zero_optimization": {"stage": 1},
      "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0.2}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2,
          "warmup_type": "linear", "warmup_max_lr": 0.25, "total_num_steps": 12}}})"));
  EXPECT_EQ(job.steps, 3);
  EXPECT_EQ(job.batch.size, 16);
  EXPECT_EQ(job.batch.micro_batches, 4);
  EXPECT_EQ(job.batch.micro_batch_size, 4);
  EXPECT_EQ(job.parallel.data, 2);
  EXPECT_EQ(job.clip, 1);
  EXPECT_EQ(job.zero, 1);
  EXPECT_EQ(job.optimizer.type, "adamw");
  EXPECT_EQ(job.optimizer.options["lr"], Value(0.25));
  EXPECT_EQ(job.optimizer.options["weight_decay"], Value(0.2));
  EXPECT_EQ(job.lr_schedule.type, "linear");
  EXPECT_EQ(job.lr_schedule.options["steps"], Value(10));
  EXPECT_EQ(job.lr_schedule.options["warmup"], Value(2));
}

}  // namespace
}  // namespace strata
