// Tests the limits of every number in a job, an optimizer, a schedule or a source: the last value
// that is accepted, the first value that is refused, and the message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::HasSubstr;

struct Limit {
  std::string key;  // "steps", "eval.every", "optimizer sgd.lr" (of this type)
  Value::List taken, refused;
  std::string expected;
};

/// The keys of a job that has `value` at the path `key`.
Value::Map KeysWith(const std::string& key, const Value& value) {
  const size_t space = key.find(' '), dot = key.find('.');
  if (space != std::string::npos) {
    const std::string type = key.substr(space + 1, dot - space - 1);
    return {{key.substr(0, space), MapOf({{"1", type}, {key.substr(dot + 1), value}})}};
  }
  if (dot == std::string::npos) return {{key, value}};
  return {{key.substr(0, dot), MapOf({{key.substr(dot + 1), value}})}};
}

/// The subject in messages about the key: "the job", "the job's eval", "the optimizer sgd".
std::string Owner(const std::string& key) {
  const std::string head = key.substr(0, key.find('.'));
  if (head.find(' ') != std::string::npos) return "the " + head;
  return head == key ? "the job" : "the job's " + head;
}

class Limits : public testing::TestWithParam<Limit> {};

TEST_P(Limits, AreTakenUpToTheLast) {
  for (const Value& value : GetParam().taken) {
    EXPECT_EQ(ErrorOf([&] { Build(KeysWith(GetParam().key, value)); }), "") << value.ToLua();
  }
}

TEST_P(Limits, AreRefusedFromTheFirst) {
  const std::string& key = GetParam().key;
  const std::string leaf = key.substr(key.find('.') == std::string::npos ? 0 : key.find('.') + 1);
  for (const Value& value : GetParam().refused) {
    EXPECT_THAT(ErrorOf([&] { Build(KeysWith(key, value)); }),
                HasSubstr(Str("net.lua:3: ", Owner(key), ": ", leaf, " expects ",
                              GetParam().expected, "; got ", value.Describe())));
  }
}

constexpr int64_t kMost = kLargestSize, kTooMany = kLargestSize + 1;
constexpr int64_t kExact = (int64_t{1} << 53) - 1;  // the last integer that Lua holds exactly

INSTANTIATE_TEST_SUITE_P(
    Job, Limits,
    testing::Values(
        Limit{
            "steps", {1, kMost, "none"}, {0, -1, kTooMany, 1.5}, "an integer, at least 1, or none"},
        Limit{"epochs", {1e-9, 1, 1e9}, {0, -0.5, "1"}, "a number, above 0, or none"},
        Limit{"seed",
              {0, kMost + 1, kExact},
              {-1, kExact + 1, 0.5, "none"},
              "an integer, at least 0"},
        Limit{"clip", {1e-12, 7, "none"}, {0, -1}, "a number, above 0, or none"},
        Limit{"threads", {1, 4096}, {0, 4097}, "an integer, at least 1, at most 4096, or none"},
        Limit{"timeout", {1e-3, 1e6}, {0, -1, "none"}, "a number, above 0"},
        Limit{"hang_timeout", {0, 1e-3}, {-1}, "a number, at least 0"},
        Limit{"parallel.pipe", {1, 64}, {0, -1, kTooMany}, "an integer, at least 1, or none"},
        Limit{"parallel.data", {1}, {0, 1.5}, "an integer, at least 1, or none"},
        Limit{"parallel.model", {1}, {0}, "an integer, at least 1, or none"},
        Limit{"batch.size", {}, {0, -8, kTooMany}, "an integer, at least 1, or none"},
        Limit{"batch.micro_batches", {}, {0, 2.5}, "an integer, at least 1, or none"},
        Limit{"batch.micro_batch_size", {}, {0, "x"}, "an integer, at least 1, or none"},
        Limit{"eval.every", {0, 1}, {-1, "none"}, "an integer, at least 0, or \"epoch\""},
        Limit{"eval.batch", {1, "none"}, {0}, "an integer, at least 1, or none"},
        Limit{"input.shape",
              {1, Ints({}), Ints({1, kMost})},
              {0, Ints({3, 0}), Ints({3, -1}), Value::List{3, 1.5}, Ints({kTooMany})},
              "an integer or a list of integers, at least 1"}));

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Limits,
    testing::Values(Limit{"optimizer sgd.lr", {0, 1e9}, {-1e-9, "fast"}, "a number, at least 0"},
                    Limit{"optimizer sgd.momentum", {0, 2}, {-0.1}, "a number, at least 0"},
                    Limit{"optimizer sgd.weight_decay", {0}, {-0.1, true}, "a number, at least 0"},
                    Limit{"optimizer sgd.dampening", {-1, 1}, {"x"}, "a number"},
                    Limit{"optimizer adam.eps", {0}, {-1e-9}, "a number, at least 0"},
                    Limit{"optimizer adam.betas",
                          {Value::List{0, 0}, Value::List{0.999999, 0.5}},
                          {Value::List{1, 0.9}, Value::List{0.9, 1}, Value::List{-0.1, 0.9},
                           Value::List{0.9}, Value::List{0.9, 0.9, 0.9}, 0.9},
                          "a list of 2 numbers, at least 0, below 1"},
                    Limit{"optimizer adamw.weight_decay", {0, 1}, {-1e-3}, "a number, at least 0"},
                    Limit{"optimizer adamw.amsgrad", {true, false}, {1, "yes"}, "true or false"}));

INSTANTIATE_TEST_SUITE_P(
    LrSchedules, Limits,
    testing::Values(
        Limit{"lr_schedule warmup.steps", {1, kMost}, {0, 0.5}, "an integer, at least 1"},
        Limit{"lr_schedule linear.steps", {1}, {0}, "an integer, at least 1, or none"},
        Limit{"lr_schedule linear.final", {0, 2}, {-0.1}, "a number, at least 0"},
        Limit{"lr_schedule linear.warmup", {0, 9}, {-1}, "an integer, at least 0"},
        Limit{"lr_schedule cosine.steps", {1}, {-5}, "an integer, at least 1, or none"},
        Limit{"lr_schedule cosine.final", {0}, {-1e-9}, "a number, at least 0"},
        Limit{"lr_schedule step.every", {1}, {0}, "an integer, at least 1"}));

TEST(StepSchedule, LimitsItsFactor) {
  const auto error = [](double gamma) {
    return ErrorOf([&] {
      Build({{"lr_schedule", MapOf({{"1", "step"}, {"every", 3}, {"gamma", gamma}})}});
    });
  };
  EXPECT_EQ(error(0), "");
  EXPECT_EQ(error(1.5), "");
  EXPECT_EQ(error(-0.5),
            "net.lua:3: the lr_schedule step: gamma expects a number, at least 0; got the number "
            "-0.5");
}

// ---- sources ----

struct SourceLimit {
  std::string source;
  Value::Map right;  // the source's required options
  std::string option;
  Value::List taken, refused;
  std::string expected;
};

class SourceLimits : public testing::TestWithParam<SourceLimit> {
 protected:
  static std::string Error(const Value& value) {
    Value options = Value::MakeMap(GetParam().right);
    options.Set(GetParam().option, value);
    return ErrorOf([&] { MakeDataSource(GetParam().source, {}, options.as_map(), "net.lua:9"); });
  }
};

TEST_P(SourceLimits, AreKept) {
  for (const Value& value : GetParam().taken) EXPECT_EQ(Error(value), "") << value.ToLua();
  for (const Value& value : GetParam().refused) {
    EXPECT_THAT(Error(value),
                HasSubstr(Str("net.lua:9: strata.data.", GetParam().source, ": ", GetParam().option,
                              " expects ", GetParam().expected, "; got ", value.Describe())));
  }
}

const Value::Map kNoOptions = {};
const std::string kSplits = "one of \"train\", \"test\"", kCount = "an integer, at least 1",
                  kCountOrNone = "an integer, at least 1, or none",
                  kFlag = "true or false, or none", kPath = "a string, or none";

INSTANTIATE_TEST_SUITE_P(
    Sources, SourceLimits,
    testing::Values(
        SourceLimit{"digits", kNoOptions, "split", {"train", "test"}, {"", "valid", 1}, kSplits},
        SourceLimit{"digits", kNoOptions, "shuffle", {true, false, "none"}, {0, "yes"}, kFlag},
        SourceLimit{"digits", kNoOptions, "path", {"", "a b", "none"}, {7, true}, kPath},
        SourceLimit{
            "cifar10", {{"path", ""}}, "size", {1, kMost, "none"}, {0, -1, 2.5}, kCountOrNone},
        SourceLimit{"cifar10", {{"path", ""}}, "split", {"test"}, {"Test", true}, kSplits},
        SourceLimit{"cifar10", kNoOptions, "path", {"", "x"}, {1}, "a string"},
        SourceLimit{"text", kNoOptions, "length", {1, kMost}, {0, kTooMany, "long"}, kCountOrNone},
        SourceLimit{"text", kNoOptions, "path", {"x", "none"}, {Value::MakeMap()}, kPath},
        SourceLimit{"images", kNoOptions, "classes", {1, kMost}, {0, -3, 1.5}, kCount},
        SourceLimit{"images", kNoOptions, "samples", {1}, {0, kTooMany, "none"}, kCount},
        SourceLimit{"images",
                    kNoOptions,
                    "shape",
                    {1, Ints({}), Ints({3, 4}), "none"},
                    {0, Ints({0}), "x", true},
                    "an integer or a list of integers, at least 1, or none"},
        SourceLimit{"tokens", kNoOptions, "vocabulary", {1, kMost}, {0, kTooMany}, kCount},
        SourceLimit{"tokens", {{"vocabulary", 9}}, "length", {1, "none"}, {0, -1}, kCountOrNone},
        SourceLimit{"tokens", {{"vocabulary", 9}}, "samples", {1}, {0}, kCount}));

}  // namespace
}  // namespace strata
