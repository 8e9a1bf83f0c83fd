#include "engine/checkpoint/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ShardsTest : public testing::Test {
 protected:
  ShardsTest() {
    WriteTestWeights(folder_.Inside("a.safetensors"), {{"x", {2}, 1}, {"y", {2, 2}, 5}});
    WriteTestWeights(folder_.Inside("b.safetensors"), {{"z", {3}, 9}});
    WriteIndex(R"("x": "a.safetensors", "z": "b.safetensors", "y": "a.safetensors")");
  }
  void WriteIndex(const std::string& map) {
    WriteText(folder_.Inside("model.safetensors.index.json"),
              R"({"metadata": {"total_size": 36}, "weight_map": {)" + map + "}}");
  }
  std::vector<float> Read(const Checkpoint& weights, const std::string& name) {
    const SavedTensor* tensor = weights.manifest().Find(name);
    if (!tensor) return {};
    std::vector<float> values(static_cast<size_t>(tensor->spec.elements()));
    weights.Read(*tensor, Slice::Whole(tensor->spec.shape), values.data());
    return values;
  }
  std::string Trouble() {
    return ErrorOf([&] { Checkpoint::Open(folder_.path()); });
  }

  TestFolder folder_;
};

TEST_F(ShardsTest, TensorsOfAllFiles) {
  for (const std::string& path :
       {folder_.path(), folder_.path() + "/", folder_.Inside("model.safetensors.index.json")}) {
    const auto weights = Checkpoint::Open(path);
    EXPECT_TRUE(weights->is_plain_file());
    EXPECT_THAT(Read(*weights, "x"), ElementsAre(1, 2));
    EXPECT_THAT(Read(*weights, "y"), ElementsAre(5, 6, 7, 8));
    EXPECT_THAT(Read(*weights, "z"), ElementsAre(9, 10, 11));
  }
}

TEST_F(ShardsTest, TheMomentsOfAMergedSave) {
  const std::string path = folder_.Inside("merged.safetensors");
  WriteTestWeights(path, {{"w", {1}}, {"w#ema", {1}}, {"v#ema", {1}}, {"#w", {1}}});
  std::vector<std::string> moments;
  for (const SavedTensor& tensor : Checkpoint::Open(path)->manifest().tensors) {
    if (tensor.kind == TensorKind::kMoment) moments.push_back(tensor.name);
  }
  EXPECT_THAT(moments, ElementsAre("w#ema"));
}

TEST_F(ShardsTest, AFolderWithOneFile) {
  std::filesystem::remove(folder_.Inside("model.safetensors.index.json"));
  EXPECT_THAT(Trouble(), HasSubstr("nothing was saved in"));
  std::filesystem::copy("engine/checkpoint/testdata/tensors.pt",
                        folder_.Inside("pytorch_model.bin"));
  EXPECT_THAT(Read(*Checkpoint::Open(folder_.path()), "rows"),
              ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  std::filesystem::rename(folder_.Inside("b.safetensors"), folder_.Inside("model.safetensors"));
  EXPECT_THAT(Read(*Checkpoint::Open(folder_.path()), "z"), ElementsAre(9, 10, 11));
}

TEST_F(ShardsTest, OfSeveralThatTransformersWouldTake) {
  const std::string index = folder_.Inside("model.safetensors.index.json");
  const std::vector<std::string> order = {folder_.Inside("model.safetensors"), index,
                                          folder_.Inside("pytorch_model.bin"),
                                          folder_.Inside("pytorch_model.bin.index.json")};
  for (const std::string& path : order) WriteText(path, "");
  for (const std::string& path : order) {
    EXPECT_EQ(PublishedIn(folder_.path()), path);
    std::filesystem::remove(path);
  }
  EXPECT_EQ(PublishedIn(folder_.path()), std::nullopt);
}

TEST_F(ShardsTest, WhatAnIndexMustNotSay) {
  WriteIndex(R"("w": "a.safetensors")");
  EXPECT_THAT(Trouble(), HasSubstr("a.safetensors has no tensor \"w\", which"));
  WriteIndex(R"("x": "c.safetensors")");
  EXPECT_THAT(Trouble(), HasSubstr("c.safetensors: No such file"));
  for (const char* name :
       {"../a.safetensors", "/etc/passwd", "", ".hidden", "a.safetensors\\u0000b"}) {
    WriteIndex(Str(R"("x": ")", name, "\""));
    EXPECT_THAT(Trouble(), HasSubstr("expected the name of a file beside the index")) << name;
  }
  WriteText(folder_.Inside("model.safetensors.index.json"), "{}");
  EXPECT_THAT(Trouble(), HasSubstr("weight_map: expected a JSON object"));
}

}  // namespace
}  // namespace strata
