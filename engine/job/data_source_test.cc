#include "engine/job/data_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::HasSubstr;

DataSpec Parse(const Value& value, const TensorSpec* input = nullptr) {
  return ParseDataSpec(value, input, "net.lua:3");
}

Value Make(const std::string& name, Value::List positional = {}, Value::Map named = {}) {
  return MakeDataSource(name, positional, named, "net.lua:9");
}

/// The shapes of a source's samples as text, or the text of the error.
std::string Sample(const Value& source, const TensorSpec* input = nullptr) {
  try {
    const DataSpec spec = Parse(source, input);
    const DataSourceType& type = *FindDataSource(spec.kind);
    return type.input(spec.options).ToString() + " -> " + type.target(spec.options).ToString();
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(DataSources, AreThoseOfTheDesign) {
  std::vector<std::string> names;
  for (const DataSourceType& type : DataSourceTypes()) names.push_back(type.name);
  EXPECT_THAT(names,
              testing::ElementsAre("digits", "cifar10", "text", "images", "tokens", "image_folder",
                                   "csv", "npy", "npz", "safetensors", "idx", "token_file", "jsonl",
                                   "parquet", "arrow", "webdataset", "chat", "dataset"));
  EXPECT_EQ(FindDataSource("digit"), nullptr);
}

TEST(DataSources, EveryFieldHasHelp) {
  for (const auto* types : {&DataSourceTypes(), &DataStepTypes()}) {
    for (const DataSourceType& type : *types) {
      EXPECT_FALSE(type.help.empty());
      for (const Field& field : type.fields) EXPECT_FALSE(field.help.empty()) << field.name;
    }
  }
}

TEST(MakeDataSource, HoldsSourcePlaceAndEveryOption) {
  EXPECT_EQ(Make("digits", {"test"}), MapOf({{"source", "digits"},
                                             {"where", "net.lua:9"},
                                             {"split", "test"},
                                             {"shuffle", Value()},
                                             {"path", Value()}}));
  EXPECT_EQ(Make("cifar10", {"", "test"})["split"], Value("test")) << "the design's order";
}

TEST(MakeDataSource, Errors) {
  EXPECT_EQ(ErrorOf([] { Make("cifra10"); }),
            "net.lua:9: there is no data source \"cifra10\"; did you mean \"cifar10\"?");
  EXPECT_EQ(ErrorOf([] { Make("cifar10"); }),
            "net.lua:9: strata.data.cifar10 needs path: folder of the binary files (a string)");
  EXPECT_EQ(ErrorOf([] { Make("digits", {"valid"}); }),
            "net.lua:9: strata.data.digits: split expects one of \"train\", \"test\"; got the "
            "string \"valid\"");
  EXPECT_EQ(ErrorOf([] { Make("tokens", {0}); }),
            "net.lua:9: strata.data.tokens: vocabulary expects an integer, at least 1; got the "
            "number 0");
  EXPECT_EQ(ErrorOf([] {
              Make("text", {}, {{"lenght", 5}});
            }),
            "net.lua:9: strata.data.text has no argument \"lenght\"; did you mean \"length\"?");
}

// ---- facts that only opening the data tells ----

DataFacts Twelve(const DataSpec&) {
  DataFacts facts = {12, {{{4}, DType::kFloat32}, {{4}, DType::kBool}}, {{{}, DType::kInt64}}, 3};
  facts.documents = {7, 30};
  return facts;
}

TEST(ParseDataSpec, FactsBecomeOptions) {
  const DataSpec spec = ParseDataSpec(Make("csv", {"a.csv"}), nullptr, "net.lua:3", Twelve);
  const DataFacts facts = FactsOf(spec);
  EXPECT_EQ(facts.samples, 12);
  EXPECT_EQ(facts.inputs, Twelve(spec).inputs);
  EXPECT_EQ(facts.targets, Twelve(spec).targets);
  EXPECT_EQ(facts.classes, 3);
  EXPECT_EQ(facts.documents, Twelve(spec).documents);
  EXPECT_EQ(spec.options["facts"], ToValue(facts)) << "so ranks and saves compare them";
  EXPECT_EQ(ErrorOf([] { Parse(Make("csv", {"a.csv"})); }),
            "net.lua:9: nobody can open strata.data.csv");
}

TEST(ParseDataSpec, StepsHoldWhatTheyAreOf) {
  const Value step = MakeDataStep("take", Make("csv", {"a.csv"}), {5}, {}, "net.lua:10");
  std::string opened;
  const DataSpec spec = ParseDataSpec(step, nullptr, "net.lua:3", [&](const DataSpec& asked) {
    opened = asked.kind + " of " + asked.options["of"]["source"].as_string();
    return Twelve(asked);
  });
  EXPECT_EQ(opened, "take of csv");
  EXPECT_EQ(spec.options["count"], Value(5));
  EXPECT_EQ(spec.options["of"]["missing"], Value("error")) << "with its defaults";
  EXPECT_EQ(FindOption(spec.options, "path"), Value("a.csv"));
  EXPECT_TRUE(HasEnd(spec));
}

TEST(AnySource, IsAskedOfStepsAndOfAllThatTheyAreMadeOf) {
  const Value text = Make("text", {"a"}, {{"length", 4}});
  const Value few = MakeDataStep("take", text, {5}, {}, "net.lua:10");
  DataSpec parts;
  parts.kind = "concat";
  parts.options = MakeDataStep("concat", Value::List{Make("digits"), few}, {}, {}, "net.lua:10");
  std::vector<std::string> asked;
  const auto any = [&](const std::string& wanted) {
    asked.clear();
    return AnySource(parts, [&](std::string_view kind) {
      asked.emplace_back(kind);
      return kind == wanted;
    });
  };
  EXPECT_TRUE(any("text"));
  EXPECT_EQ(asked, (std::vector<std::string>{"concat", "digits", "take", "text"}));
  EXPECT_TRUE(any("concat"));
  EXPECT_FALSE(any("csv"));
}

TEST(ParseDataSpec, StepsCheckTheirOptions) {
  EXPECT_THAT(ErrorOf([] { MakeDataStep("take", Make("digits"), {0}, {}, "net.lua:10"); }),
              HasSubstr("net.lua:10: the step take: count expects"));
  const Value of_nothing = MakeDataStep("take", Value(3), {5}, {}, "net.lua:10");
  EXPECT_THAT(ErrorOf([&] { Parse(of_nothing); }), HasSubstr("net.lua:10: data expects a source"));
  const Value needy = MakeDataStep("take", Make("text"), {5}, {}, "net.lua:10");
  EXPECT_THAT(ErrorOf([&] { Parse(needy); }), HasSubstr("strata.data.text needs length"));
}

TEST(MakeDataSource, AFunctionOfOneSampleOrOfABatch) {
  EXPECT_THAT(ErrorOf([] { Make("dataset", {3}); }), HasSubstr("got none"));
  EXPECT_THAT(ErrorOf([] {
                Make("dataset", {3}, {{"get", Function("a:1")}, {"batch", Function("a:2")}});
              }),
              HasSubstr("got both"));
}

TEST(ParseDataSpec, NothingIsNone) {
  EXPECT_EQ(Parse({}).kind, "");
  EXPECT_FALSE(HasEnd(Parse({})));
}

TEST(ParseDataSpec, FunctionsHaveNoEnd) {
  const DataSpec spec = Parse(Function("net.lua:12"));
  EXPECT_EQ(spec.kind, "function");
  EXPECT_EQ(spec.where, "net.lua:12");
  EXPECT_FALSE(HasEnd(spec));
  EXPECT_TRUE(HasEnd(Parse(Make("digits"))));
}

TEST(ParseDataSpec, RefusesOtherValues) {
  for (const Value& value : {Value(3), Value("digits"), Value(true), Value(Ints({1})),
                             MapOf({{"path", "x"}}), MapOf({{"source", 3}})}) {
    EXPECT_THAT(ErrorOf([&] { Parse(value); }),
                HasSubstr("net.lua:3: data expects a source such as strata.data.digits{}"))
        << value.ToLua();
  }
  EXPECT_EQ(ErrorOf([] {
              Parse(MapOf({{"source", "digts"}}));
            }),
            "net.lua:3: there is no data source \"digts\"; did you mean \"digits\"?");
}

TEST(ParseDataSpec, ChecksOptionsAgain) {
  Value source = Make("digits");
  source.Set("split", "all");
  EXPECT_THAT(ErrorOf([&] { Parse(source); }), HasSubstr("net.lua:9: strata.data.digits: split"));
}

TEST(Samples, OfEachSource) {
  EXPECT_EQ(Sample(Make("digits")), "float32 (1, 8, 8) -> int64 ()");
  EXPECT_EQ(Sample(Make("cifar10", {""})), "float32 (3, 32, 32) -> int64 ()");
  EXPECT_EQ(Sample(Make("cifar10", {""}, {{"size", 224}})), "float32 (3, 224, 224) -> int64 ()");
  EXPECT_EQ(Sample(Make("text", {}, {{"length", 128}})), "int64 (128,) -> int64 (128,)");
  EXPECT_EQ(Sample(Make("images", {Ints({3, 64, 64})})), "float32 (3, 64, 64) -> int64 ()");
  EXPECT_EQ(Sample(Make("tokens", {1000, 32})), "int64 (32,) -> int64 (32,)");
}

TEST(Samples, FollowTheJobsInput) {
  const TensorSpec image = {{3, 224, 224}, DType::kFloat32}, tokens = {{32}, DType::kInt64};
  EXPECT_EQ(Sample(Make("cifar10", {""}), &image), "float32 (3, 224, 224) -> int64 ()");
  EXPECT_EQ(Sample(Make("images"), &image), "float32 (3, 224, 224) -> int64 ()");
  EXPECT_EQ(Sample(Make("text"), &tokens), "int64 (32,) -> int64 (32,)");
  EXPECT_EQ(Sample(Make("tokens", {1000}), &tokens), "int64 (32,) -> int64 (32,)");
}

TEST(Samples, AgreeWithTheJobsInput) {
  const TensorSpec image = {{3, 224, 224}, DType::kFloat32}, wide = {{3, 10, 20}, DType::kFloat32},
                   floats = {{32}, DType::kFloat32};
  EXPECT_EQ(Sample(Make("digits"), &image),
            "net.lua:9: strata.data.digits gives samples of float32 (1, 8, 8), but the job's input "
            "is float32 (3, 224, 224)");
  EXPECT_EQ(Sample(Make("cifar10", {""}, {{"size", 64}}), &image),
            "net.lua:9: strata.data.cifar10 gives samples of float32 (3, 64, 64), but the job's "
            "input is float32 (3, 224, 224)");
  EXPECT_THAT(Sample(Make("cifar10", {""}), &wide),
              HasSubstr("gives samples of float32 (3, 32, 32)"));
  EXPECT_THAT(Sample(Make("tokens", {10}), &floats), HasSubstr("gives samples of int64 (32,)"));
}

TEST(Samples, MustBeKnown) {
  const TensorSpec image = {{3, 224, 224}, DType::kFloat32};
  EXPECT_EQ(Sample(Make("text")),
            "net.lua:9: strata.data.text needs length, since the job's input does not tell it");
  EXPECT_EQ(Sample(Make("tokens", {10}), &image),
            "net.lua:9: strata.data.tokens needs length, since the job's input does not tell it");
  EXPECT_EQ(Sample(Make("images")),
            "net.lua:9: strata.data.images needs shape, since the job's input does not tell it");
  EXPECT_EQ(Sample(Make("jsonl", {"a"})),
            "net.lua:9: strata.data.jsonl needs length, since the job's input does not tell it; to "
            "pack texts, put pack before steps such as split");
}

TEST(Samples, Classes) {
  const auto classes = [](const Value& source) {
    const DataSpec spec = Parse(source);
    return FindDataSource(spec.kind)->classes(spec.options);
  };
  EXPECT_EQ(classes(Make("digits")), 10);
  EXPECT_EQ(classes(Make("cifar10", {""})), 10);
  EXPECT_EQ(classes(Make("text", {}, {{"length", 8}})), 256);
  EXPECT_EQ(classes(Make("images", {Ints({3, 8, 8}), 7})), 7);
  EXPECT_EQ(classes(Make("tokens", {1000, 8})), 1000);
}

}  // namespace
}  // namespace strata
