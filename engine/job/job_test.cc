#include "engine/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/job/job_fields.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::HasSubstr;

bool Equal(const Batch& a, const Batch& b) {
  return a.size == b.size && a.micro_batches == b.micro_batches &&
         a.micro_batch_size == b.micro_batch_size;
}

TEST(ResolveBatch, TwoOfThreeSuffice) {
  const Batch whole = {32, 4, 8};
  EXPECT_TRUE(Equal(ResolveBatch({0, 4, 8}), whole));
  EXPECT_TRUE(Equal(ResolveBatch({32, 0, 8}), whole));
  EXPECT_TRUE(Equal(ResolveBatch({32, 4, 0}), whole));
  EXPECT_TRUE(Equal(ResolveBatch(whole), whole));
}

RC_GTEST_PROP(ResolveBatch, AnyTwoGiveTheThird, ()) {
  const auto m = *rc::gen::inRange<int64_t>(1, 1000);
  const auto each = *rc::gen::inRange<int64_t>(1, 1000);
  const Batch whole = {m * each, m, each};
  RC_ASSERT(Equal(ResolveBatch({0, m, each}), whole));
  RC_ASSERT(Equal(ResolveBatch({m * each, 0, each}), whole));
  RC_ASSERT(Equal(ResolveBatch({m * each, m, 0}), whole));
}

TEST(ResolveBatch, FewerThanTwoAreTooFew) {
  for (const Batch& batch : {Batch{}, Batch{8, 0, 0}, Batch{0, 8, 0}, Batch{0, 0, 8}}) {
    EXPECT_EQ(ErrorOf([&] { ResolveBatch(batch); }),
              "batch needs two of size, micro_batches and micro_batch_size: batch = {micro_batches "
              "= 4, micro_batch_size = 8}");
  }
}

TEST(ResolveBatch, ASizeThatCannotBeCountedIsRefused) {
  EXPECT_THAT(ErrorOf([] {
                ResolveBatch({0, int64_t{1} << 40, int64_t{1} << 40});
              }),
              testing::HasSubstr("is more samples than can be counted"));
}

TEST(ResolveBatch, ContradictionsNameAllThree) {
  EXPECT_EQ(ErrorOf([] {
              ResolveBatch({33, 4, 8});
            }),
            "batch: size 33 is not micro_batches 4 * micro_batch_size 8; two of the three suffice");
  EXPECT_EQ(ErrorOf([] {
              ResolveBatch({33, 4, 0});
            }),
            "batch: size 33 is not divisible by micro_batches 4");
  EXPECT_EQ(ErrorOf([] {
              ResolveBatch({33, 0, 8});
            }),
            "batch: size 33 is not divisible by micro_batch_size 8");
}

// Ranks and saves compare jobs by ToValue(), so a key that it lacks could differ without an error.
TEST(JobToValue, HoldsEveryKey) {
  std::vector<std::string> expected;
  for (const std::string& name : FieldNames(JobFields())) {
    if (name != "data") expected.push_back(name);
  }
  expected.insert(expected.end(), {"train_data", "test_data"});
  std::vector<std::string> names;
  const Value value = Job().ToValue();
  for (const auto& [name, member] : value.as_map()) names.push_back(name);
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(expected));
}

TEST(Job, MadeByHandIsWatchedAsAScripts) { EXPECT_EQ(Job().hang_timeout, Build().hang_timeout); }

TEST(KeysFreeOnResume, AreThoseThatTeachNothing) {
  EXPECT_THAT(KeysFreeOnResume(),
              testing::AllOf(testing::Contains("parallel"), testing::Contains("steps")));
  for (const char* name : {"seed", "optimizer", "layers", "loss", "data", "clip"}) {
    EXPECT_THAT(KeysFreeOnResume(), testing::Not(testing::Contains(name)));
  }
}

/// A change of one key, and the entries of the canonical form that it changes.
struct Change {
  const char* key;
  Value value;
  const char* difference;
};

TEST(JobToValue, EveryChangeIsNamed) {
  const Change changes[] = {
      {"save", "runs", "save.dir: \"\" against \"runs\""},
      {"resume", "runs", "resume: \"\" against \"runs\""},
      {"weights", "a.safetensors", "weights.from: \"\" against \"a.safetensors\""},
      {"zero", 1, "zero: 0 against 1"},
      {"comm_log", true, "comm_log: false against true"},
      {"check", 0.02, "check: nil against 0.02"},
      {"tie_check", 0, "tie_check: 100 against 0"},
      {"stages_per_rank", 2, "stages_per_rank: 0 against 2"},
      {"threads", 3, "threads: 0 against 3"},
      {"clip", 0.5, "clip: 0 against 0.5"},
      {"seed", 7, "seed: 1234 against 7"},
      {"hang_timeout", 9, "hang_timeout: 0 against 9"},
      {"schedule", "gpipe", "schedule.name: \"auto\" against \"gpipe\""},
      {"memory", "2KiB", "memory: 0 against 2048"},
      {"losses", true, "losses: false against true"},
      {"device", "cpu", "device: \"\" against \"cpu\""},
      {"transport", "gloo", "transport: \"\" against \"gloo\""},
      {"log", "a.jsonl", "log: \"\" against \"a.jsonl\""},
      {"freeze", 1, "layers.1.frozen: false against true"},
      {"optimizer", "adamw", "optimizer.type: \"sgd\" against \"adamw\""},
      {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.25}}),
       "optimizer.options.lr: 0.001 against 0.25"},
      {"name", "other", "name: \"net\" against \"other\""},
      {"parallel", MapOf({{"pipe", 3}}), "parallel.pipe: 0 against 3"},
      {"partition", "uniform", "partition.method: \"auto\" against \"uniform\""},
      {"batch", Ints({32, 8}), "batch.size: 0 against 32"},
      {"steps", 2, "steps: 0 against 2"},
      {"timeout", 60, "timeout: 1800 against 60"},
      {"trace", "a.json", "trace: \"\" against \"a.json\""},
      {"data", Digits(), "train_data"},
      {"seed_fn", Function("net.lua:6"), "seed_fn"},
  };
  const Value base = Build().ToValue();
  for (const auto& [key, value, difference] : changes) {
    const Value changed = Build({{key, value}}).ToValue();
    EXPECT_THAT(FirstDifference(base, changed), HasSubstr(difference)) << key;
    EXPECT_EQ(FirstDifference(changed, Build({}, MapOf({{key, value}})).ToValue()), "")
        << key << ": the command line says the same";
    EXPECT_EQ(FirstDifference(changed, changed), "");
  }
}

TEST(JobToValue, SavesHaveThreeParts) {
  const Value save = MapOf({{"dir", "runs"}, {"every", 5}, {"keep", 0}});
  EXPECT_EQ(Build({{"save", save}}).ToValue()["save"], save);
  EXPECT_EQ(Build({{"save", "runs"}}).ToValue()["save"],
            MapOf({{"dir", "runs"}, {"every", 0}, {"keep", 2}}));
  EXPECT_EQ(FirstDifference(Build({{"save", "runs"}}).ToValue(), Build({{"save", save}}).ToValue()),
            "save.every: 0 against 5");
}

// Ranks on other machines compare jobs as JSON texts. Equal jobs must have equal texts, and
// different jobs different ones.
TEST(JobToValue, DiffersAsTextWhereItDiffers) {
  const auto text = [](Value::Map keys) { return Build(std::move(keys)).ToValue().ToJson(); };
  EXPECT_EQ(text({{"zero", 1}, {"save", "runs"}}), text({{"save", "runs"}, {"zero", 1}}));
  EXPECT_NE(text({{"zero", 1}}), text({{"zero", 0}}));
  EXPECT_EQ(FirstDifference(Value::FromJson(text({{"zero", 1}})), Value::FromJson(text({}))),
            "zero: 1 against 0");
}

}  // namespace
}  // namespace strata
