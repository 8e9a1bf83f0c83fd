// Low-rank parts in PEFT's files, and merged into weights.
#include "engine/checkpoint/weights/low_rank_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/checkpoint/weights/write_weights.h"
#include "engine/layers/layer_spec.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WeightMap Gpt2() { return WeightMap::From("gpt2", nullptr); }

std::string Published(const WeightMap& map, const std::string& ours) {
  const auto found = map.Find(ours);
  return found ? found->theirs.at(0).front() : "";
}

TEST(LowRankFiles, HavePeftsNames) {
  const struct {
    const char* map;
    const char* ours;
    const char* theirs;
  } cases[] = {
      {"", "fc1.lora_A.weight", "base_model.model.fc1.lora_A.weight"},
      {"", "mha.in_proj_weight.lora_B.weight", "base_model.model.mha.in_proj_weight.lora_B.weight"},
      {"llama", "layers.3.self_attn.q_proj.lora_A.weight",
       "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"},
      {"gpt2", "h.0.attn.attn.in_proj_weight.lora_B.weight",
       "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"},
      {"gpt2", "ln_f.weight", "base_model.model.transformer.ln_f.weight"},
  };
  for (const auto& c : cases) {
    const WeightMap map = *c.map ? WeightMap::From(c.map, nullptr) : WeightMap();
    EXPECT_EQ(Published(PeftMap(map), c.ours), c.theirs);
  }
  EXPECT_THAT(ErrorOf([] {
                const WeightMap bert = WeightMap::From("bert", nullptr);
                PeftMap(bert).Find("layer.0.self_attn.in_proj_weight.lora_A.weight");
              }),
              HasSubstr("has no place in the published model, which has this matrix in several"));
}

/// Into a weight that is published transposed, and one that was trained as a whole.
TEST(LowRankFiles, AreMergedInThePublishedLayout) {
  const TestFolder folder;
  const std::string in = "h.0.attn.attn.in_proj_weight";
  WriteTestWeights(folder.Inside("parts.safetensors"), {{LowRankName(in, 'A'), {1, 2}, 1},
                                                        {LowRankName(in, 'B'), {6, 1}, 3},
                                                        {"h.0.mlp.c_fc.weight", {3, 2}, 50}});
  WriteTestWeights(folder.Inside("base.safetensors"), {{"h.0.attn.c_attn.weight", {2, 6}, 0},
                                                       {"h.0.mlp.c_fc.weight", {2, 3}, 0},
                                                       {"ln_f.weight", {2}, 7}});
  const auto parts = Checkpoint::Open(folder.Inside("parts.safetensors"));
  const auto base = Checkpoint::Open(folder.Inside("base.safetensors"));
  const MappedWeights weights(*base, WeightMap());
  std::vector<MappedTensor> tensors = Exported(weights);
  EXPECT_EQ(MergeParts(*parts, {.rank = 1, .alpha = 4}, Gpt2(), /*averages=*/false, tensors), 2);
  WriteWeights(weights, tensors, folder.Inside("out.safetensors"));
  const SafetensorsFile out(folder.Inside("out.safetensors"));
  std::vector<float> expected;  // W^T + 4 (B A)^T with A = (1, 2) and B = (3, ..., 8)
  for (int j = 0; j < 2; ++j) {
    for (int i = 0; i < 6; ++i) {
      expected.push_back(static_cast<float>(j * 6 + i + 4 * (1 + j) * (3 + i)));
    }
  }
  EXPECT_EQ(FloatsOf(out, "h.0.attn.c_attn.weight"), expected);
  EXPECT_THAT(FloatsOf(out, "h.0.mlp.c_fc.weight"), ElementsAre(50, 52, 54, 51, 53, 55));
  EXPECT_THAT(FloatsOf(out, "ln_f.weight"), ElementsAre(7, 8));

  std::erase_if(tensors, [](const MappedTensor& tensor) { return tensor.spec.shape.size() > 1; });
  EXPECT_THAT(ErrorOf([&] {
                MergeParts(*parts, {1, 4}, Gpt2(), /*averages=*/false, tensors);
              }),
              HasSubstr("the weights to merge with have no tensor"));
}

TEST(LowRankFiles, SayWhatIsNotComputed) {
  const TestFolder folder;
  const auto error = [&](const std::string& more) {
    WriteText(folder.Inside("adapter_config.json"),
              R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8)" + more + "}");
    return ErrorOf([&] { ReadPeftConfig(folder.path()); });
  };
  EXPECT_THAT(error(R"(, "use_dora": true)"), HasSubstr("use_dora is true"));
  EXPECT_THAT(error(R"(, "bias": "all")"), HasSubstr("bias is the string \"all\""));
  EXPECT_THAT(error(R"(, "rank_pattern": {"q": 2})"), HasSubstr("rank_pattern is given"));
  EXPECT_THAT(error(R"(, "peft_type": 3)"), HasSubstr("json"));
  error(R"(, "lora_dropout": 0.5, "rank_pattern": {}, "bias": "none")");
  const LowRankOptions options = ReadPeftConfig(folder.path());
  EXPECT_EQ(options.rank, 4);
  EXPECT_EQ(options.alpha, 8);
  EXPECT_EQ(options.dropout, 0.5);
}

}  // namespace
}  // namespace strata
