#include "engine/spec/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "engine/spec/testing.h"

namespace strata {
namespace {

using testing::HasSubstr;

Value Read(const std::string& text, const Value& flags = {}) {
  return ConfigOverrides(text, "F", flags);
}
std::string ErrorWith(const std::string& text) {
  return ErrorOf([&] { Read(text); });
}

struct Case {
  const char* text;
  const char* overrides;  // as JSON
};

class MapsTest : public testing::TestWithParam<Case> {};

TEST_P(MapsTest, ToTheJobsKeys) {
  EXPECT_EQ(Read(GetParam().text), Value::FromJson(GetParam().overrides))
      << Read(GetParam().text).ToJson();
}

INSTANTIATE_TEST_SUITE_P(
    Keys, MapsTest,
    testing::Values(
        Case{R"({"steps": 5, "pipe": 2, "optimizer.lr": 0.5, "batch": {"size": 8}})",
             R"({"steps": 5, "parallel": {"pipe": 2}, "optimizer": {"lr": 0.5},
                 "batch": {"size": 8}})"},
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
        Case{R"({"gradient_clipping": 0})", "{}"},
        Case{R"({"zero_optimization": {"stage": 0}})", R"({"zero": 0})"},
        Case{R"({"fp16": {"enabled": false, "loss_scale": 0}, "bf16": {"enabled": false}})", "{}"}),
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
      {R"({"fp16": {"enabled": true}})", "F: fp16: mixed precision is not in this build"},
      {R"({"bf16": {"enabled": "auto"}})", "F: bf16"},
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
      {R"({"gradient_clipping": -1})", "gradient_clipping"},
      {R"({"steps_per_print": 10})", "F: steps_per_print: use the flag --print_every"},
      {R"({"pipeline": {}})", "F: pipeline: use the keys"},
  };
  for (const auto& [text, error] : cases) EXPECT_THAT(ErrorWith(text), HasSubstr(error)) << text;
}

TEST(ReadConfigFileTest, NamesTheFile) {
  EXPECT_THAT(ErrorOf([] { ReadConfigFile("/nowhere.json", {}); }),
              HasSubstr("--config=/nowhere.json: No such file"));
}

}  // namespace
}  // namespace strata
