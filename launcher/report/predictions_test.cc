#include "launcher/report/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/testing.h"

namespace strata::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
OutputRows Output(std::vector<int64_t> shape, DType dtype, const std::vector<T>& values) {
  return {{std::move(shape), dtype},
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

/// Rows of a model with one output.
template <class T>
Predicted Rows(std::vector<int64_t> shape, DType dtype, const std::vector<T>& values) {
  return Predicted{std::vector{Output(std::move(shape), dtype, values)}};
}

const Predicted kFirst = Rows<float>({2, 2}, DType::kFloat32, {1, 0.5, -1, 3});
const Predicted kSecond = Rows<float>({1, 2}, DType::kFloat32, {0.1F, 0.1F});

class PredictionsTest : public testing::Test {
 protected:
  std::string Written(const std::string& name, PredictionOptions options = {}) {
    const std::string path = folder_.Inside(name);
    Predictions predictions(path, std::move(options));
    predictions.Add(kFirst);
    predictions.Add(kSecond);
    EXPECT_FALSE(std::filesystem::exists(path)) << "before it is whole";
    predictions.Finish();
    EXPECT_EQ(predictions.samples(), 3);
    return ReadText(path);
  }
  TestFolder folder_;
};

TEST_F(PredictionsTest, Csv) {
  EXPECT_EQ(Written("a.csv"),
            "sample,output_0,output_1\n0,1,0.5\n1,-1,3\n2,0.100000001,0.100000001\n");
  EXPECT_EQ(Written("b.csv", {.classes = true}),
            "sample,class,probability\n0,0,0.622459331\n1,1,0.98201379\n2,0,0.5\n");
  EXPECT_THAT(Written("c.csv", {.names = {"a \"cat\"", "dog"}}),
              HasSubstr("\n0,\"a \"\"cat\"\"\",0.62"));
}

TEST_F(PredictionsTest, ProbabilitiesAreThemselves) {
  const std::string path = folder_.Inside("a.csv");
  Predictions predictions(path, {.classes = true, .probabilities = true});
  predictions.Add(Rows<float>({2, 2}, DType::kFloat32, {0.25, 0.75, 0.875, 0.125}));
  predictions.Finish();
  EXPECT_EQ(ReadText(path), "sample,class,probability\n0,1,0.75\n1,0,0.875\n");
}

TEST_F(PredictionsTest, OutputsThatAreNoNumbersHaveNoClass) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const auto written = [&](const std::string& name) {
    Predictions predictions(folder_.Inside(name), {.names = {"cat", "dog"}});
    predictions.Add(Rows<float>({4, 2}, DType::kFloat32,
                                {kNone, kNone, 1, -kNone, 1, kInfinite, 2, -kInfinite}));
    predictions.Finish();
    return ReadText(folder_.Inside(name));
  };
  EXPECT_EQ(written("a.csv"), "sample,class,probability\n0,,nan\n1,,nan\n2,,nan\n3,cat,1\n");
  EXPECT_THAT(written("a.jsonl"),
              testing::StartsWith("{\"sample\": 0, \"class\": null, \"probability\": \"nan\"}\n"));
}

TEST_F(PredictionsTest, JsonLines) {
  EXPECT_THAT(Split(Written("a.jsonl"), '\n'),
              ElementsAre("{\"sample\": 0, \"output\": [1, 0.5]}",
                          "{\"sample\": 1, \"output\": [-1, 3]}", HasSubstr("0.100000001"), ""));
  EXPECT_THAT(Written("b.jsonl", {.names = {"cat", "dog"}}),
              HasSubstr("{\"sample\": 1, \"class\": \"dog\", \"probability\": 0.98201379}\n"));
}

TEST_F(PredictionsTest, Arrays) {
  Written("a.safetensors");
  const SafetensorsFile file(folder_.Inside("a.safetensors"));
  EXPECT_THAT(FloatsOf(file, "output"), ElementsAre(1, 0.5, -1, 3, 0.1F, 0.1F));
  EXPECT_EQ(file.tensors()[0].shape, (std::vector<int64_t>{3, 2}));
  const std::string numpy = Written("a.npy");
  EXPECT_EQ(numpy.size(), 256U + 24U);
  EXPECT_EQ(numpy.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(static_cast<uint8_t>(numpy[8]), 246) << "the header ends at a 64th byte";
  EXPECT_THAT(numpy.substr(10),
              testing::StartsWith("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }"));
  EXPECT_EQ(numpy[255], '\n');
}

/// Two outputs of three samples; the second output has another item size.
TEST_F(PredictionsTest, SeveralOutputs) {
  const std::vector<OutputRows> first = {Output<uint8_t>({2, 3}, DType::kUInt8, {1, 2, 3, 4, 5, 6}),
                                         Output<float>({2}, DType::kFloat32, {0.5, -1})};
  const std::vector<OutputRows> second = {Output<uint8_t>({1, 3}, DType::kUInt8, {7, 8, 9}),
                                          Output<float>({1}, DType::kFloat32, {3})};
  const auto write = [&](const std::string& name) {
    const std::string path = folder_.Inside(name);
    Predictions(path, {}, "digits").Add({first});
    Predictions again(path, {}, "digits");
    EXPECT_EQ(again.parts(), 1);
    again.Add({second});
    again.Finish();
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
    return path;
  };
  EXPECT_EQ(ReadText(write("a.jsonl")),
            "{\"sample\": 0, \"output_0\": [1, 2, 3], \"output_1\": [0.5]}\n"
            "{\"sample\": 1, \"output_0\": [4, 5, 6], \"output_1\": [-1]}\n"
            "{\"sample\": 2, \"output_0\": [7, 8, 9], \"output_1\": [3]}\n");
  const SafetensorsFile file(write("a.safetensors"));
  EXPECT_THAT(FloatsOf(file, "output_1"), ElementsAre(0.5, -1, 3));
  ASSERT_EQ(file.tensors().size(), 2U);
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name != "output_0") continue;
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{3, 3}));
    std::string bytes(9, '\0');
    file.Read(tensor, 0, bytes.data(), 9);
    EXPECT_EQ(bytes, "\1\2\3\4\5\6\7\10\11");
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2)
      << "nothing beside the two files";
  for (const char* name : {"b.csv", "b.npy"}) {
    EXPECT_EQ(ErrorOf([&] { Predictions(folder_.Inside(name), {}).Add({first}); }),
              "the last layer gives 2 outputs a sample, uint8 (3,), float32 (): .safetensors and "
              ".jsonl take several, and e:predict in Lua gives them");
  }
  EXPECT_THAT(
      ErrorOf([&] { Predictions(folder_.Inside("c.jsonl"), {.classes = true}).Add({first}); }),
      HasSubstr("classes need outputs (samples, classes)"));
}

/// Samples of lengths 1, 2 and 3, of which two were padded to one length, with two numbers per
/// position.
TEST_F(PredictionsTest, RowsOfSeveralLengths) {
  const std::vector<OutputRows> both = {
      Output<float>({2, 2, 2}, DType::kFloat32, {1, 2, 0, 0, 3, 4, 5, 6}),
      Output<float>({2, 2}, DType::kFloat32, {7, 8, 9, 10})};
  const std::vector<OutputRows> last = {
      Output<float>({1, 3, 2}, DType::kFloat32, {1, 2, 3, 4, 5, 6}),
      Output<float>({1, 2}, DType::kFloat32, {7, 8})};
  const auto rows = [&](const std::string& name, PredictionOptions options) {
    Predictions predictions(folder_.Inside(name), std::move(options));
    predictions.Add({both, last});
    predictions.Finish();
    return ReadText(folder_.Inside(name));
  };
  const PredictionOptions cut = {.filled_up = {0},
                                 .length_of = [](int64_t sample) { return sample + 1; }};
  EXPECT_EQ(rows("a.jsonl", cut),
            "{\"sample\": 0, \"output_0\": [1, 2], \"output_1\": [7, 8]}\n"
            "{\"sample\": 1, \"output_0\": [3, 4, 5, 6], \"output_1\": [9, 10]}\n"
            "{\"sample\": 2, \"output_0\": [1, 2, 3, 4, 5, 6], \"output_1\": [7, 8]}\n");
  EXPECT_THAT(rows("b.jsonl", {}), HasSubstr("\"output_0\": [1, 2, 0, 0]")) << "as they are";
  EXPECT_THAT(ErrorOf([&] { rows("c.safetensors", {}); }),
              HasSubstr("several shapes: float32 (2, 2) and float32 (2,), float32 (3, 2) and "
                        "float32 (2,); .jsonl takes them"));
}

TEST_F(PredictionsTest, FilesStandFirst) {
  const PredictionOptions options = {
      .file_of = [](int64_t sample) { return Str("a/", sample, ",\"x\".png"); }};
  EXPECT_THAT(
      Written("a.csv", options),
      testing::StartsWith("file,sample,output_0,output_1\n\"a/0,\"\"x\"\".png\",0,1,0.5\n"));
  EXPECT_THAT(Written("a.jsonl", options),
              testing::StartsWith(
                  "{\"file\": \"a/0,\\\"x\\\".png\", \"sample\": 0, \"output\": [1, 0.5]}\n"));
  PredictionOptions classes = options;
  classes.classes = true;
  EXPECT_THAT(Written("b.csv", classes), testing::StartsWith("file,sample,class,probability\n"));
}

TEST_F(PredictionsTest, AnotherRunGoesOn) {
  const auto append = [&](const std::string& name, const std::string& text) {
    WriteText(folder_.Inside(name), ReadText(folder_.Inside(name)) + text);
  };
  for (const std::string end : {"csv", "jsonl", "npy", "safetensors"}) {
    const std::string whole = Written("whole." + end), name = "a." + end;
    const std::string path = folder_.Inside(name);
    Predictions(path, {}, "digits").Add(kFirst);
    EXPECT_FALSE(std::filesystem::exists(path));
    append(name + ".part", "half a row");
    append(name + ".part.log", "{\"bytes\": 3");
    Predictions again(path, {}, "digits");
    EXPECT_EQ(again.parts(), 1);
    EXPECT_EQ(again.samples(), 2);
    again.Add(kSecond);
    again.Finish();
    EXPECT_EQ(ReadText(path), whole);
    EXPECT_FALSE(std::filesystem::exists(path + ".part")) << end;
    EXPECT_FALSE(std::filesystem::exists(path + ".part.log")) << end;
  }
}

TEST_F(PredictionsTest, OnlyWhatIsThereIsGoneOnWith) {
  const std::string path = folder_.Inside("a.csv"), part = path + ".part";
  const auto begin = [&] {
    std::filesystem::remove(part);
    Predictions predictions(path, {}, "digits");
    predictions.Add(kFirst);
    predictions.Add(kSecond);
  };
  const auto parts = [&] { return Predictions(path, {}, "digits").parts(); };
  begin();
  EXPECT_EQ(parts(), 2);
  std::string text = ReadText(part);
  text[text.size() - 2] ^= 1;
  WriteText(part, text);
  EXPECT_EQ(parts(), 1) << "the second one is damaged";
  begin();
  WriteText(part, ReadText(part).substr(0, 30));
  EXPECT_EQ(parts(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "nothing counts, nothing stays";
}

/// Bytes that a crashed machine may leave of the file's last writes.
TEST_F(PredictionsTest, LinesThatAreNoneEndWhatCounts) {
  const std::string path = folder_.Inside("a.csv"), log = path + ".part.log";
  const auto parts = [&] { return Predictions(path, {}, "digits").parts(); };
  for (const std::string& line :
       {std::string(40, '\0'), std::string("[1]"), std::string("{\"bytes\": \"x\"}"),
        std::string("{\"bytes\": 4611686018427387904, \"digest\": \"\"}"),
        std::string("{\"bytes\": -9223372036854775808, \"digest\": \"\"}")}) {
    Predictions(path, {}, "digits").Add(kFirst);
    WriteText(log, ReadText(log) + line + "\n");
    EXPECT_EQ(parts(), 1) << line;
    WriteText(log, line + "\n");
    EXPECT_THAT(ErrorOf(parts), HasSubstr("remove it to begin anew")) << line;
    std::filesystem::remove(path + ".part");
    std::filesystem::remove(log);
  }
}

TEST_F(PredictionsTest, WhatIsOfSomethingElseIsRefused) {
  const std::string path = folder_.Inside("a.csv");
  auto first = std::make_unique<Predictions>(path, PredictionOptions(), "digits");
  first->Add(kFirst);
  const auto open = [&](PredictionOptions options, const std::string& what) {
    return ErrorOf([&] { Predictions(path, std::move(options), what); });
  };
  EXPECT_THAT(open({}, "digits"), HasSubstr("another process writes"));
  first = nullptr;
  for (const std::string& error : {open({}, "letters"), open({.classes = true}, "digits")}) {
    EXPECT_THAT(error, HasSubstr("a.csv.part was left by another run"));
    EXPECT_THAT(error, HasSubstr("remove it to begin anew"));
  }
}

TEST_F(PredictionsTest, Integers) {
  Predictions predictions(folder_.Inside("a.csv"), {});
  predictions.Add(Rows<int16_t>({2}, DType::kInt16, {-3, 300}));
  predictions.Finish();
  EXPECT_EQ(ReadText(folder_.Inside("a.csv")), "sample,output_0\n0,-3\n1,300\n");
  Predictions large(folder_.Inside("b.jsonl"), {});
  large.Add(Rows<int64_t>({1, 2}, DType::kInt64, {-1'234'567'890'123, (int64_t{1} << 53) + 1}));
  large.Finish();
  EXPECT_EQ(ReadText(folder_.Inside("b.jsonl")),
            "{\"sample\": 0, \"output\": [-1234567890123, 9007199254740993]}\n");
}

TEST_F(PredictionsTest, WhatDoesNotFit) {
  const auto trouble = [&](const std::string& name, PredictionOptions options,
                           const Predicted& rows) {
    return ErrorOf([&] {
      Predictions predictions(folder_.Inside(name), options);
      predictions.Add(rows);
      predictions.Add(Rows<float>({1, 3}, DType::kFloat32, {1, 2, 3}));
    });
  };
  const Predicted rows = Rows<float>({1, 2}, DType::kFloat32, {1, 2});
  EXPECT_THAT(trouble("a.txt", {}, rows), HasSubstr("ends in .npy, .safetensors, .csv or .jsonl"));
  EXPECT_THAT(trouble("a.npy", {.classes = true}, rows),
              HasSubstr("classes are written as .csv or .jsonl"));
  EXPECT_THAT(trouble("a.csv", {.classes = true, .loss_of_labels = "BCELoss"}, rows),
              HasSubstr("with BCELoss each output is a label of its own, and a sample may have "
                        "several: write the outputs, without --as_classes and --class_names; the "
                        "labels are those above 0.5"));
  EXPECT_THAT(trouble("a.csv", {.names = {"a", "b"}, .loss_of_labels = "BCEWithLogitsLoss"}, rows),
              HasSubstr("those above 0"));
  EXPECT_THAT(trouble("a.csv", {.loss_of_labels = "BCELoss"}, rows),
              HasSubstr("rows of several shapes"));
  EXPECT_THAT(trouble("a.csv", {}, rows), HasSubstr("rows of several shapes"));
  EXPECT_THAT(trouble("a.csv", {.names = {"cat"}}, rows),
              HasSubstr("there are 1 names for 2 classes"));
  EXPECT_THAT(trouble("a.csv", {.classes = true}, Rows<float>({1}, DType::kFloat32, {1})),
              HasSubstr("classes need outputs"));
  EXPECT_THAT(trouble("a.csv", {.classes = true}, Rows<float>({2, 1}, DType::kFloat32, {1, 2})),
              HasSubstr("the last layer gives one score a sample"));
  EXPECT_THAT(trouble("a.npy", {}, Rows<uint16_t>({1, 1}, DType::kBFloat16, {0})),
              HasSubstr("numpy has no bfloat16"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "nothing is left of them";
  WriteText(folder_.Inside("there.csv"), "");
  EXPECT_THAT(trouble("there.csv", {}, rows), HasSubstr("File exists"));
}

}  // namespace
}  // namespace strata::launcher
