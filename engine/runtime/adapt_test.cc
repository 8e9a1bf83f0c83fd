// Trainings of low-rank parts (`adapt`): PyTorch's losses, the same bits for every plan, saves
// without the base, parts in PEFT's files, and the predicted memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/base/tensors/allocator.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/testing.h"
#include "engine/checkpoint/weights/low_rank_files.h"
#include "engine/checkpoint/weights/write_weights.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/forecast/memory_forecast.h"
#include "engine/forecast/planned_program.h"
#include "engine/runtime/saves/resumable.h"
#include "engine/runtime/testing_job.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using ::testing::AllOf;
using testing::FakeScript;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;
using testing::Start;
using testing::With;

LayerSpec Inside(const char* type, std::vector<LayerSpec> layers) {
  return MakeLayer(type, {}, {}, std::move(layers), "net.lua:3");
}

/// Dropout, statistics and attention of both kinds; only the first layer is before all parts.
std::vector<LayerSpec> Layers() {
  return {Make("Linear", {6, 8}),
          Make("TransformerEncoderLayer", {8, 2},
               {{"dim_feedforward", 12}, {"dropout", 0.3}, {"batch_first", true}}),
          Inside("Residual", {Make("LayerNorm", {8}), Make("GroupedQueryAttention", {8, 2}),
                              Make("Linear", {8, 8}), Make("Dropout", {0.2})}),
          Inside("Sequential", {Make("Linear", {8, 8}), Make("BatchNorm1d", {3}),
                                Make("ReLU", {}, {{"inplace", true}}), Make("Linear", {8, 8})}),
          Make("SwiGLU", {8, 12}),
          Make("Linear", {8, 5})};
}

constexpr const char* kLayers = "in_proj|linear1|[qv]_proj|^2\\.2|^3\\.0|down_proj|^5";

Value Lora(Value::Map more = {}) {
  return MapOf(With({{"1", "lora"}, {"rank", 3}, {"alpha", 6}, {"layers", kLayers}}, more));
}

MicroBatch Sequences(int64_t i) {
  const at::Tensor input = at::arange(4 * 3 * 6, at::kFloat).add(31 * i).mul(0.37).sin();
  return {{input.view({4, 3, 6})}, {at::arange(12).mul(7).add(3 * i).remainder(5).view({4, 3})}};
}

Value Pipe(int pipe, int data = 1) { return MapOf({{"pipe", pipe}, {"data", data}}); }

Job MakeJob(const Value::Map& more, const std::vector<LayerSpec>& layers = Layers()) {
  const Value::Map keys = {{"input", MapOf({{"shape", Value::IntList({3, 6})}})},
                           {"adapt", Lora()},
                           {"parallel", Pipe(1)},
                           {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 4}})},
                           {"data", MapOf({{"train", testing::Function(1)}})},
                           {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
                           {"steps", 40}};
  return testing::MakeJob(layers, Make("CrossEntropyLoss", {}, {{"class_dim", -1}}),
                          With(keys, more));
}

double EvalLoss(Engine& engine) {
  MicroBatches batch;
  batch.list = {Sequences(7)};
  return engine.EvalBatch(batch, nullptr).loss;
}

class AdaptTest : public ::testing::Test {
 protected:
  AdaptTest() { InstallAllocator(); }

  /// Losses, norms, and at the end all parameters. With `save` it saves and returns behind them.
  std::vector<std::string> Train(const Job& job, int steps, bool saves = false) {
    const auto engine = Start(job, script_);
    std::vector<std::string> bits;
    for (int i = 0; i < steps; ++i) {
      const StepResult result = engine->TrainStep();
      bits.push_back(FormatDouble(result.loss) + " " + FormatDouble(result.grad_norm));
    }
    for (const TensorDigest& digest : engine->Parameters()) {
      bits.push_back(digest.path + " " + digest.digest);
    }
    if (saves) saved_ = engine->Save().path;
    engine->Close();
    return bits;
  }
  std::string ErrorOfStart(const Value::Map& keys) {
    return ErrorOf([&] { Start(MakeJob(keys), script_)->Close(); });
  }
  Value SaveKey() const { return MapOf({{"dir", folder_.Inside("runs")}}); }
  /// The weights of a short training without `adapt`.
  std::string Base(int steps) {
    const std::string dir = folder_.Inside(Str("base", steps));
    Train(MakeJob({{"adapt", "none"}, {"save", MapOf({{"dir", dir}})}}), steps, /*saves=*/true);
    return saved_;
  }
  static Value From(const std::string& path) { return MapOf({{"from", path}}); }

  TestFolder folder_;
  FakeScript script_ = testing::ScriptOf([](int64_t i) { return Sequences(i); });
  std::string saved_;
};

/// testdata/make_lora.py
TEST_F(AdaptTest, HasPyTorchsLosses) {
  const Value expected = Value::FromJson(ReadText("engine/runtime/testdata/lora.json"));
  for (const auto& [base, losses] : expected.as_map()) {
    Value::Map options = {{"layers", "in_proj|out_proj|linear1|^2\\.2|^3"}};
    if (base != "dense") options.emplace_back("base", base);
    const Job job = MakeJob(
        {{"adapt", Lora(options)}},
        {Make("Linear", {6, 8}),
         Make("TransformerEncoderLayer", {8, 2},
              {{"dim_feedforward", 12}, {"dropout", 0.0}, {"batch_first", true}}),
         Inside("Sequential", {Make("Linear", {8, 8}), Make("ReLU"), Make("Linear", {8, 8})}),
         Make("Linear", {8, 5})});
    const auto engine = Start(job, script_);
    for (const Value& loss : losses.as_list()) {
      EXPECT_NEAR(engine->TrainStep().loss, loss.as_double(), 1e-5) << base;
    }
    engine->Close();
  }
}

struct Kind {
  const char* name;
  Value::Map keys;
  Value::Map of_one = {};  ///< keys that change numbers, so that one stage has them too
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

const std::vector<Kind>& Kinds() {
  static const Value::List inside = {0, 1.1, 2.2, 3.1, 6};
  static const Value dropout = Lora({{"dropout", 0.25}});
  static const Value nf4 = Lora({{"base", "nf4"}}), int8 = Lora({{"base", "int8"}});
  static const std::vector<Kind> kinds = {
      {"stages", {{"parallel", Pipe(3)}}},
      {"cuts_inside", {{"parallel", Pipe(4)}, {"partition", inside}}},
      {"split_backwards", {{"parallel", Pipe(3)}, {"schedule", "zb_h1"}}},
      {"gpipe", {{"parallel", Pipe(2)}, {"schedule", "gpipe"}}},
      {"two_stages_a_rank",
       {{"parallel", Pipe(2)}, {"schedule", "zbv"}, {"stages_per_rank", 2}, {"partition", inside}}},
      {"recomputed", {{"parallel", Pipe(2)}, {"recompute", true}}},
      {"recomputed_every", {{"recompute", MapOf({{"every", 2}})}}},
      {"replicas", {{"parallel", Pipe(2, 2)}}, {{"parallel", Pipe(1, 2)}}},
      {"zero1", {{"parallel", Pipe(2, 2)}, {"zero", 1}}, {{"parallel", Pipe(1, 2)}}},
      {"zero2", {{"parallel", Pipe(2, 2)}, {"zero", 2}}, {{"parallel", Pipe(1, 2)}}},
      {"dropout", {{"parallel", Pipe(3)}, {"recompute", true}}, {{"adapt", dropout}}},
      {"train",
       {{"parallel", Pipe(2)}, {"schedule", "zb_h1"}},
       {{"adapt", Lora({{"train", "norm|^0|k_proj"}})}}},
      {"bf16", {{"parallel", Pipe(3)}}, {{"precision", "bf16"}}},
      {"nf4", {{"parallel", Pipe(4)}, {"partition", inside}}, {{"adapt", nf4}}},
      {"nf4_recomputed", {{"parallel", Pipe(2)}, {"recompute", true}}, {{"adapt", nf4}}},
      {"nf4_split_backwards", {{"parallel", Pipe(3)}, {"schedule", "zb_h1"}}, {{"adapt", nf4}}},
      {"int8",
       {{"parallel", Pipe(2, 2)}, {"zero", 2}},
       {{"adapt", int8}, {"parallel", Pipe(1, 2)}, {"threads", 1}}},
      {"int8_bf16",
       {{"parallel", Pipe(3)}, {"threads", 2}},
       {{"adapt", int8}, {"precision", "bf16"}, {"threads", 1}}},
      {"ema", {{"parallel", Pipe(2)}}, {{"ema", 0.9}}},
  };
  return kinds;
}

class Plans : public AdaptTest, public ::testing::WithParamInterface<Kind> {};

TEST_P(Plans, ChangeNoBit) {
  const Kind& kind = GetParam();
  EXPECT_EQ(Train(MakeJob(With(kind.of_one, kind.keys)), 3), Train(MakeJob(kind.of_one), 3));
}

INSTANTIATE_TEST_SUITE_P(All, Plans, ::testing::ValuesIn(Kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(AdaptTest, TrainsThePartsOnlyAndBeginsWithTheBase) {
  const auto before = [&](const Value& adapt) {
    std::map<std::string, std::string> digests;
    const auto engine = Start(MakeJob({{"adapt", adapt}}), script_);
    digests["loss"] = FormatDouble(EvalLoss(*engine));
    for (const auto& digest : engine->Parameters()) digests[digest.path] = digest.digest;
    engine->Close();
    return digests;
  };
  const auto plain = before("none");
  auto with = before(Lora());
  const auto engine = Start(MakeJob({}), script_);
  for (int i = 0; i < 3; ++i) engine->TrainStep();
  for (const TensorDigest& now : engine->Parameters()) {
    EXPECT_EQ(now.digest == with.at(now.path), now.path.find("lora_") == std::string::npos)
        << now.path;
  }
  engine->Close();
  std::erase_if(with,
                [](const auto& entry) { return entry.first.find("lora_") != std::string::npos; });
  EXPECT_EQ(with, plain) << "initial values, and the loss of the base";
}

TEST_F(AdaptTest, GoesOnFromASaveOfThePartsOnAnyPlan) {
  const Value weights = From(Base(2));
  const Value::Map all = {{"weights", weights}, {"parallel", Pipe(1, 2)}};
  const std::vector<std::string> expected = Train(MakeJob(all), 6);
  const Value::Map saves = With(all, {{"save", SaveKey()}, {"resume", "latest"}});
  Train(MakeJob(With(saves, {{"parallel", Pipe(2, 2)}, {"zero", 1}})), 2, /*saves=*/true);
  const auto save = Checkpoint::Open(saved_);
  for (const SavedTensor& tensor : save->manifest().tensors) {
    const bool is_part = tensor.name.find("lora_") != std::string::npos;
    EXPECT_TRUE(is_part || tensor.kind == TensorKind::kBuffer) << tensor.name;
  }
  Train(MakeJob(With(saves, {{"parallel", Pipe(3, 2)}})), 2, /*saves=*/true);
  const std::vector<std::string> bits = Train(MakeJob(saves), 2);
  EXPECT_EQ(bits, std::vector(expected.begin() + 4, expected.end()));
}

TEST_F(AdaptTest, RefusesASaveBesideAnotherBase) {
  const std::string base = Base(2), other = Base(3);
  Train(MakeJob({{"weights", From(base)}, {"save", SaveKey()}}), 2, /*saves=*/true);
  const std::string trained = "were trained beside other weights (digest ";
  for (const Value& weights : {From(other), Value("none")}) {
    EXPECT_THAT(ErrorOfStart({{"weights", weights}, {"resume", saved_}}),
                AllOf(HasSubstr(trained), HasSubstr(Str("give the same: --weights=", base))));
  }
  EXPECT_THAT(ErrorOfStart({{"resume", base}}), HasSubstr("has no low-rank parts"));
  EXPECT_THAT(ErrorOfStart({{"adapt", "none"}, {"resume", saved_}}),
              HasSubstr("holds the low-rank parts of a job with adapt and no other weights"));
  EXPECT_THAT(ErrorOfStart({{"weights", From(saved_)}}), HasSubstr("--adapt.from="));
  EXPECT_THAT(
      ErrorOfStart({{"weights", From(base)}, {"resume", saved_}, {"adapt", Lora({{"rank", 2}})}}),
      HasSubstr("lora_A.weight\" is float32 (3, "));
}

/// The base is packed as it is loaded: the same numbers give the same bits from every type.
TEST_F(AdaptTest, PacksTheSameNumbersOfEveryTypeAlike) {
  const std::string base = Base(2);
  const auto whole = Checkpoint::Open(base);
  const auto weights_in = [&](DType type, const Checkpoint& from, const char* name) {
    const MappedWeights mapped(from, WeightMap());
    std::vector<MappedTensor> tensors;
    for (const SavedTensor& saved : from.manifest().tensors) {
      if (saved.kind == TensorKind::kMoment) continue;
      const bool is_float = IsFloating(saved.spec.dtype);
      tensors.push_back(
          {saved.name, {saved.spec.shape, is_float ? type : saved.spec.dtype}, {{&saved, 0, 0}}});
    }
    const std::string path = folder_.Inside(Str(name, ".safetensors"));
    WriteWeights(mapped, tensors, path);
    return path;
  };
  // Rounded to float16 and then to bfloat16, the numbers are in all three types.
  const auto once = Checkpoint::Open(weights_in(DType::kFloat16, *whole, "once"));
  const std::string narrow = weights_in(DType::kBFloat16, *once, "narrow");
  const auto rounded = Checkpoint::Open(narrow);
  const std::string half = weights_in(DType::kFloat16, *rounded, "half");
  const std::string wide = weights_in(DType::kFloat32, *rounded, "wide");
  for (const char* packing : {"nf4", "int8"}) {
    const auto train = [&](const std::string& from) {
      const Value adapt = Lora({{"base", packing}});
      return Train(MakeJob({{"adapt", adapt}, {"weights", From(from)}}), 2);
    };
    const std::vector<std::string> bits = train(narrow);
    EXPECT_EQ(train(wide), bits) << packing;
    EXPECT_EQ(train(half), bits) << packing;
    EXPECT_NE(train(base), bits) << packing;
  }
}

/// Codes and scales move with their layers, and a save's parts know their base by its numbers.
TEST_F(AdaptTest, MovesAndComparesAPackedBase) {
  const Value adapt = Lora({{"base", "nf4"}});
  const Value weights = From(Base(2));
  const Value::Map keys = {{"adapt", adapt}, {"weights", weights}, {"parallel", Pipe(2)}};
  const auto engine = Start(MakeJob(With(keys, {{"save", SaveKey()}})), script_);
  std::vector<std::string> bits;
  for (int i = 0; i < 4; ++i) {
    if (i == 1) engine->Recut({0, 4, 6});
    if (i == 3) engine->Recut({0, 1, 6});
    bits.push_back(FormatDouble(engine->TrainStep().loss));
  }
  const std::string save = engine->Save().path;
  engine->Close();
  const std::vector<std::string> unmoved = Train(MakeJob(keys), 6);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(unmoved[i].starts_with(bits[i] + " ")) << i;
  const auto resumed = Train(MakeJob(With(keys, {{"resume", save}, {"parallel", Pipe(1)}})), 2);
  EXPECT_EQ(resumed, std::vector(unmoved.begin() + 4, unmoved.end()));
  EXPECT_THAT(ErrorOfStart({{"weights", weights}, {"resume", save}}),
              HasSubstr("adapt.base was the string \"nf4\" and must be the same, got nothing"));
  EXPECT_THAT(ErrorOfStart({{"adapt", adapt}, {"resume", save}}),
              HasSubstr("were trained beside other weights (digest "));
}

/// Both from a save and from PEFT's files, a training begins with the parts but not its moments.
TEST_F(AdaptTest, BeginsWithParts) {
  Train(MakeJob({{"save", SaveKey()}}), 3, /*saves=*/true);
  const std::string save = saved_, peft = folder_.Inside("peft");
  EXPECT_GT(WritePeft(*Checkpoint::Open(save), WeightMap(), /*averages=*/false, peft), 10);
  const auto begin = [&](const std::string& from) {
    return Train(MakeJob({{"adapt", Lora({{"from", from}})}, {"parallel", Pipe(2)}}), 2);
  };
  const std::vector<std::string> bits = begin(peft);
  EXPECT_NE(bits[0], Train(MakeJob({}), 1)[0]);
  const Value adapt = Lora({{"from", peft}, {"alpha", 3}});
  EXPECT_THAT(ErrorOfStart({{"adapt", adapt}}),
              HasSubstr("its parts have rank 3 and alpha 6; adapt has rank 3 and alpha 3"));
  EXPECT_THAT(ErrorOfStart({{"adapt", Lora({{"from", peft}, {"layers", "^5"}})}}),
              HasSubstr("and nobody takes it"));
  EXPECT_THAT(
      ErrorOfStart({{"adapt", Lora({{"from", peft}, {"layers", Str(kLayers, "|up_proj")}})}}),
      HasSubstr("up_proj.lora_A.weight"));
  EXPECT_EQ(begin(save), bits);
}

/// The merged weights compute what base and parts compute.
TEST_F(AdaptTest, MergesIntoTheWeights) {
  const std::string base = Base(2);
  Train(MakeJob({{"weights", From(base)}, {"save", SaveKey()}}), 3, /*saves=*/true);
  const auto weights = Checkpoint::Open(base), parts = Checkpoint::Open(saved_);
  const MappedWeights mapped(*weights, WeightMap());
  std::vector<MappedTensor> tensors;
  for (const SavedTensor& saved : weights->manifest().tensors) {
    if (saved.kind == TensorKind::kMoment) continue;
    tensors.push_back({saved.name, saved.spec, {{&saved, 0, 0}}});
  }
  EXPECT_GT(MergeParts(*parts, LowRankOptionsOf(*parts), WeightMap(), /*averages=*/false, tensors),
            5);
  const std::string merged = folder_.Inside("merged.safetensors");
  WriteWeights(mapped, tensors, merged);
  const auto loss = [&](const Value::Map& keys) {
    const auto engine = Start(MakeJob(keys), script_);
    const double value = EvalLoss(*engine);
    engine->Close();
    return value;
  };
  const double expected = loss({{"weights", From(base)}, {"resume", saved_}});
  EXPECT_NEAR(loss({{"adapt", "none"}, {"weights", From(merged)}}), expected, 1e-6);
  EXPECT_GT(std::abs(loss({{"adapt", "none"}, {"weights", From(base)}}) - expected), 1e-4);
}

/// A peak within 5 % of the predicted one, and gradients and moments of the parts only.
TEST_F(AdaptTest, TakesThePredictedMemory) {
  constexpr int64_t kWidth = 192, kTokens = 64, kRows = 4;
  // Made once, outside the ranks, so that only what the engine makes is counted.
  const at::Tensor x = at::ones({kRows, kTokens, kWidth}), y = x.clone();
  script_.data[1] = [&](int64_t) { return MicroBatch{{x}, {y}}; };
  const Value::Map options = {{"dim_feedforward", 512}, {"dropout", 0.0}, {"batch_first", true}};
  const LayerSpec encoder = Make("TransformerEncoderLayer", {kWidth, 4}, options);
  const LayerSpec attention = Make("GroupedQueryAttention", {kWidth, 4});
  const LayerSpec linear = Make("Linear", {kWidth, kWidth}), swiglu = Make("SwiGLU", {kWidth, 512});
  const std::vector<LayerSpec> llama = {Inside("Residual", {Make("RMSNorm", {kWidth}), attention}),
                                        Inside("Residual", {Make("RMSNorm", {kWidth}), swiglu})};
  std::vector<LayerSpec> blocks;
  for (int i = 0; i < 4; ++i) blocks.insert(blocks.end(), llama.begin(), llama.end());
  const auto keys = [&](const Value& adapt) {
    return Value::Map{{"input", MapOf({{"shape", Value::IntList({kTokens, kWidth})}})},
                      {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", kRows}})},
                      {"data", MapOf({{"train", testing::Function(1)}})},
                      {"optimizer", MapOf({{"1", "adamw"}, {"lr", 1e-4}})},
                      {"adapt", adapt},
                      {"steps", 4}};
  };
  const auto lora = [](const char* layers, Value::Map more = {}) {
    return MapOf(With({{"1", "lora"}, {"layers", layers}}, more));
  };
  struct Case {
    const char* name;
    std::vector<LayerSpec> layers;
    Value adapt;
  };
  for (const Case& c : std::vector<Case>{
           {"linear", std::vector(96, linear), lora("weight")},
           {"first frozen", std::vector(96, linear), lora("^(4[89]|[5-9][0-9])\\.")},
           {"llama", blocks, lora("q_proj|v_proj")},
           {"llama, all", blocks, lora("_proj")},
           {"llama, dropout", blocks, lora("_proj", {{"dropout", 0.1}})},
           {"encoder", std::vector(6, encoder), lora("in_proj|linear")},
           {"linear, nf4", std::vector(96, linear), lora("weight", {{"base", "nf4"}})},
           {"llama, nf4", blocks, lora("_proj", {{"base", "nf4"}})},
           {"llama, int8", blocks, lora("q_proj|v_proj", {{"base", "int8"}})},
           {"encoder, nf4", std::vector(6, encoder), lora("linear", {{"base", "nf4"}})},
       }) {
    const Job job = testing::MakeJob(c.layers, Make("MSELoss"), keys(c.adapt));
    const Plan plan = PlanJob(job, {}, &script_);
    const auto planned = [&](const Job& of) {
      return ForecastMemory(of, plan, CostsOf(of, plan, &script_),
                            TrainingProgram(of, plan, 4, &script_));
    };
    const auto engine = Start(job, script_);
    engine->TrainStep();
    int64_t fullest = 0;
    for (const RankMemory& rank : planned(job)) {
      fullest = std::max(fullest, rank.total());
      if (c.adapt["base"].is_null()) {
        EXPECT_LT(rank.gradients + rank.optimizer, rank.weights / 2) << c.name;
      }
    }
    const auto total = static_cast<double>(fullest);
    EXPECT_NEAR(static_cast<double>(engine->TrainStep().peak_memory), total, 0.05 * total)
        << c.name;
    engine->Close();
  }
}

}  // namespace
}  // namespace strata
