// Compares texts written with kept keys and values with texts for which the whole text is computed
// for every token, on several grids.
#include "engine/runtime/generation.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/layers/kept_tokens.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/plan/language_model.h"
#include "engine/runtime/testing_job.h"
#include "engine/runtime/token_probe.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using testing::FakeScript;
using testing::FunctionLayer;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;
using testing::ScriptedLayer;
using TextList = std::vector<std::vector<int32_t>>;

constexpr int64_t kWords = 23, kLength = 24, kDim = 16;

/// Layer 1 of a FakeScript: adds a vector for each position, as models/gpt2.lua does.
Tensors AddPlaces(const Tensors& x, int64_t begin) {
  const at::Tensor places = at::arange(begin, begin + x[0].size(1), at::kFloat).unsqueeze(1);
  return {x[0].add(places.mul(at::arange(kDim).add(1)).mul(0.37).sin())};
}

FakeScript PlacesScript() {
  FakeScript script;
  script.layers[1] = [](auto&, const Tensors& x, const Pass&) {
    return AddPlaces(x, TokenPosition());
  };
  return script;
}

/// A network with every kind of attention that keeps keys and values: MultiheadAttention within a
/// Residual, an encoder layer, and GroupedQueryAttention with rotary positions.
std::vector<LayerSpec> LanguageNet() {
  const Value::Map causal = {{"causal", true}, {"batch_first", true}};
  Value::Map encoder = causal;
  encoder.emplace_back("dim_feedforward", 32);
  encoder.emplace_back("dropout", 0.3);
  LayerSpec residual = MakeLayer(
      "Residual", {}, {},
      {Make("LayerNorm", {kDim}), Make("MultiheadAttention", {kDim, 4}, causal)}, "net.lua:4");
  LayerSpec grouped = MakeLayer(
      "Residual", {}, {},
      {Make("RMSNorm", {kDim}), Make("GroupedQueryAttention", {kDim, 4}, {{"num_kv_heads", 2}})},
      "net.lua:4");
  return {Make("Embedding", {kWords, kDim}),
          ScriptedLayer(1),
          std::move(residual),
          Make("TransformerEncoderLayer", {kDim, 4}, encoder),
          std::move(grouped),
          Make("LayerNorm", {kDim}),
          Make("Linear", {kDim, kWords})};
}

Job LanguageJob(const std::vector<LayerSpec>& layers, Value::Map keys) {
  keys.emplace_back("input", MapOf({{"shape", Value::IntList({kLength})}, {"dtype", "int64"}}));
  return testing::MakeJob(layers, Make("CrossEntropyLoss"), keys);
}

Value::Map Grid(int pipe, int data, int model, int rows = 1) {
  return {{"parallel", MapOf({{"pipe", pipe}, {"data", data}, {"model", model}})},
          {"eval", MapOf({{"batch", rows}})}};
}

/// A request with prompts of several lengths, two of which are equal.
TextRequest Asked(double temperature, bool keeps = true) {
  TextRequest request;
  request.prompts = {{1, 2, 3}, {4}, {5, 6, 7}, {8, 9, 10, 11, 12}, {3, 1}};
  request.tokens = 9;
  request.temperature = temperature;
  request.keeps_tokens = keeps;
  return request;
}

/// The new tokens by prompt, and the engine's report.
std::pair<TextList, TextReport> Written(const Job& job, const TextRequest& request,
                                        FakeScript script = PlacesScript()) {
  const auto engine = testing::Start(job, script);
  const TextReport report = engine->BeginTexts(request);
  TextList texts(request.prompts.size());
  std::vector<bool> ended(texts.size());
  for (;;) {
    const std::vector<NewToken> tokens = engine->NextTokens();
    if (tokens.empty()) break;
    for (const NewToken& token : tokens) {
      EXPECT_FALSE(ended.at(token.prompt));
      texts.at(token.prompt).push_back(token.token);
      ended.at(token.prompt) = token.is_last;
    }
  }
  EXPECT_THAT(ended, ::testing::Each(true));
  return {texts, report};
}

TEST(GenerationTest, EqualsTheWholeTextForEveryToken) {
  const Job job = LanguageJob(LanguageNet(), Grid(1, 1, 1));
  for (const double temperature : {0.0, 1.0}) {
    const auto [whole, whole_report] = Written(job, Asked(temperature, /*keeps=*/false));
    const auto [kept, kept_report] = Written(job, Asked(temperature));
    EXPECT_EQ(kept, whole);
    EXPECT_EQ(kept_report.note, "");
    EXPECT_EQ(whole_report.kept_bytes, 0);
    // 5 texts with 14 + 5 * 9 tokens in all; 16 + 16 + 8 floats of keys per token, and as many of
    // values.
    EXPECT_EQ(kept_report.kept_bytes, (14 + 5 * 9) * 2 * (16 + 16 + 8) * 4);
    for (const auto& text : kept) EXPECT_EQ(text.size(), 9u);
  }
}

/// The network ends with a softmax; the logarithms of its probabilities serve as scores.
TEST(GenerationTest, OfProbabilitiesTheLogarithmsAreTheScores) {
  const auto written = [](const LayerSpec& last) {
    std::vector<LayerSpec> net = LanguageNet();
    net.push_back(last);
    return Written(LanguageJob(net, Grid(2, 1, 1)), Asked(1)).first;
  };
  const TextList texts = written(Make("LogSoftmax", {-1}));
  for (const int64_t dim : {-1, 2}) {
    const LayerSpec softmax = Make("Softmax", {dim});
    EXPECT_EQ(written(softmax), texts);
    EXPECT_EQ(written(MakeLayer("Sequential", {}, {}, {softmax}, "net.lua:4")), texts);
  }
}

TEST(GenerationTest, IsTheSameOnEveryGrid) {
  const std::vector<LayerSpec> net = LanguageNet();
  for (const double temperature : {0.0, 1.0}) {
    const TextList one = Written(LanguageJob(net, Grid(1, 1, 1)), Asked(temperature)).first;
    EXPECT_NE(one[0], one[2]);
    for (const Value::Map& grid :
         {Grid(2, 1, 1), Grid(3, 1, 1), Grid(4, 1, 1), Grid(1, 2, 1), Grid(2, 2, 1, 2),
          Grid(1, 1, 2), Grid(2, 1, 2), Grid(1, 1, 1, 3)}) {
      EXPECT_EQ(Written(LanguageJob(net, grid), Asked(temperature)).first, one)
          << MapOf(grid).ToJson();
    }
  }
}

TEST(GenerationTest, TextsDoNotDependOnOthers) {
  const Job job = LanguageJob(LanguageNet(), Grid(2, 1, 1));
  const TextList all = Written(job, Asked(1.0)).first;
  TextRequest fewer = Asked(1.0);
  fewer.prompts.resize(2);
  const TextList two = Written(job, fewer).first;
  EXPECT_EQ(two[0], all[0]);
  EXPECT_EQ(two[1], all[1]);
  fewer.seed = 2;
  EXPECT_NE(Written(job, fewer).first, two);
}

TEST(GenerationTest, EndsAtTheEndTokenOrTheLongestLength) {
  const Job job = LanguageJob(LanguageNet(), Grid(2, 1, 1, 2));
  TextRequest request = Asked(1.0);
  request.tokens = 1000;
  const TextList full = Written(job, request).first;
  for (size_t i = 0; i < full.size(); ++i) {
    EXPECT_EQ(full[i].size() + request.prompts[i].size(), static_cast<size_t>(kLength));
  }
  request.end = full[0][3];
  const TextList ended = Written(job, request).first;
  for (size_t i = 0; i < full.size(); ++i) {
    const auto end = std::ranges::find(full[i], request.end);
    const bool has_end = end != full[i].end();
    EXPECT_EQ(ended[i], std::vector<int32_t>(full[i].begin(), end + (has_end ? 1 : 0))) << i;
  }
}

TEST(GenerationTest, GoesOnWithTrainingBetweenTexts) {
  FakeScript script = PlacesScript();
  script.data[1] = [](int64_t i) {
    const at::Tensor tokens = at::arange(8 * kLength).mul(5).add(i).remainder(kWords);
    return MicroBatch{{tokens.view({8, kLength})}, {tokens.add(1).remainder(kWords).view({8, -1})}};
  };
  Value::Map keys = Grid(2, 1, 1);
  keys.emplace_back("optimizer", MapOf({{"1", "sgd"}, {"lr", 0.5}}));
  keys.emplace_back("data", MapOf({{"train", Value(testing::Function(1))}}));
  const Job job = LanguageJob(LanguageNet(), keys);
  const auto engine = testing::Start(job, script);
  const auto first = [&] {
    engine->BeginTexts(Asked(1.0));
    return engine->NextTokens();
  };
  EXPECT_EQ(first().size(), 5u);
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) losses.push_back(engine->TrainStep().loss);
  EXPECT_EQ(first().size(), 5u);
  const auto alone = testing::Start(job, script);
  for (const double loss : losses) EXPECT_EQ(alone->TrainStep().loss, loss);
}

// ---- Layers that cannot take a token alone ----

/// The network with `layer` after the embedding.
std::vector<LayerSpec> NetWith(const LayerSpec& layer) {
  std::vector<LayerSpec> net = LanguageNet();
  net.insert(net.begin() + 1, layer);
  return net;
}

/// A script with `function` as layer 2.
FakeScript ScriptWith(FunctionLayer::Function function) {
  FakeScript script = PlacesScript();
  script.layers[2] = std::move(function);
  return script;
}

/// The report's note on the network. Also checks that the texts equal those of whole runs.
std::string NoteOn(const std::vector<LayerSpec>& net, const FakeScript& script = PlacesScript()) {
  const Job job = LanguageJob(net, Grid(2, 1, 1));
  const TextList whole = Written(job, Asked(1.0, /*keeps=*/false), script).first;
  const auto [texts, report] = Written(job, Asked(1.0), script);
  EXPECT_EQ(texts, whole);
  return report.note;
}

TEST(TokenProbeTest, NamesLayersThatNeedTheWholeText) {
  const auto places_from_0 = [](auto&, const Tensors& x, const Pass&) { return AddPlaces(x, 0); };
  EXPECT_THAT(
      NoteOn(NetWith(ScriptedLayer(2)), ScriptWith(places_from_0)),
      HasSubstr("net.lua:5: layer 1 function(net.lua:5) gives other values for a token alone"));
  const auto mean = [](auto&, const Tensors& x, const Pass&) {
    return Tensors{x[0].add(x[0].mean(1, true))};
  };
  EXPECT_THAT(NoteOn(NetWith(ScriptedLayer(2)), ScriptWith(mean)), HasSubstr("layer 1 function"));
  const auto earlier = [](auto&, const Tensors& x, const Pass&) { return Tensors{x[0].cumsum(1)}; };
  EXPECT_THAT(NoteOn(NetWith(ScriptedLayer(2)), ScriptWith(earlier)),
              HasSubstr("layer 1 function"));
  const auto far = [](auto&, const Tensors& x, const Pass&) {
    constexpr int64_t kBack = 9;
    const int64_t tokens = x[0].size(1);
    if (tokens <= kBack) return Tensors{x[0].add(0)};
    return Tensors{x[0].add(at::pad(x[0].narrow(1, 0, tokens - kBack), {0, 0, kBack, 0}))};
  };
  EXPECT_THAT(NoteOn(NetWith(ScriptedLayer(2)), ScriptWith(far)), HasSubstr("layer 1 function"));
  const auto strict = [](auto&, const Tensors& x, const Pass&) {
    TORCH_CHECK(TokenPosition() == 0, "whole texts only");
    return x;
  };
  EXPECT_THAT(NoteOn(NetWith(ScriptedLayer(2)), ScriptWith(strict)),
              HasSubstr("layer 1 function(net.lua:5) cannot take a token alone: whole texts only"));
  EXPECT_THAT(NoteOn(NetWith(Make("MultiheadAttention", {kDim, 2}, {{"batch_first", true}}))),
              HasSubstr("layer 1 MultiheadAttention"));
  EXPECT_THAT(NoteOn(NetWith(Make("TransformerEncoderLayer", {kDim, 2}, {{"causal", true}}))),
              HasSubstr("layer 1 TransformerEncoderLayer"))
      << "its sequence is dim 0";
}

TEST(TokenProbeTest, LetsLayersPassThatSeeTokensAlone) {
  const auto scaled = [](auto&, const Tensors& x, const Pass&) {
    return Tensors{x[0].mul(3).tanh()};
  };
  EXPECT_EQ(NoteOn(NetWith(ScriptedLayer(2)), ScriptWith(scaled)), "");
}

// ---- Errors ----

std::string ErrorWith(const Job& job, const TextRequest& request) {
  FakeScript script = PlacesScript();
  const auto engine = testing::Start(job, script);
  return ConfigErrorOf([&] { engine->BeginTexts(request); });
}

TEST(GenerationTest, RefusesPromptsThatDoNotFit) {
  const Job job = LanguageJob(LanguageNet(), Grid(2, 1, 1));
  TextRequest request;
  request.prompts = {{1}, {}};
  EXPECT_THAT(ErrorWith(job, request), HasSubstr("prompt 1: expected 1 to 23 tokens, got 0"));
  request.prompts = {std::vector<int32_t>(kLength)};
  EXPECT_THAT(ErrorWith(job, request), HasSubstr("prompt 0: expected 1 to 23 tokens, got 24"));
  request.prompts = {{1, 23}};
  EXPECT_THAT(ErrorWith(job, request), HasSubstr("expected tokens from 0 to 22, got 23"));
}

TEST(GenerationTest, RefusesWhatIsNoLanguageModel) {
  const Job job = testing::MakeJob({Make("Linear", {6, 5})}, Make("CrossEntropyLoss"),
                                   {{"input", MapOf({{"shape", Value::IntList({6})}})}});
  EXPECT_THAT(ErrorWith(job, Asked(0)), HasSubstr("expected a language model"));
}

TEST(GenerationTest, LayersThatLookElsewhereAreTried) {
  const Value::Map causal = {{"causal", true}, {"batch_first", true}};
  const auto of = [](const LayerSpec& inside) {
    return MakeLayer("Residual", {}, {}, {Make("LayerNorm", {kDim}), inside}, "net.lua:4");
  };
  const LayerSpec attention = Make("MultiheadAttention", {kDim, 4}, causal);
  EXPECT_TRUE(IsTokenWise(attention));
  EXPECT_TRUE(IsTokenWise(of(attention)));
  const LayerSpec layer = Make("TransformerEncoderLayer", {kDim, 4}, causal);
  EXPECT_TRUE(IsTokenWise(MakeLayer("TransformerEncoder", {}, {{"num_layers", 2}}, {layer}, "")));
  EXPECT_FALSE(IsTokenWise(Make("MultiheadAttention", {kDim, 4}, {{"batch_first", true}})));
  EXPECT_FALSE(IsTokenWise(Make("MultiheadAttention", {kDim, 4}, {{"causal", true}})));
  EXPECT_FALSE(
      IsTokenWise(of(Make("TransformerEncoderLayer", {kDim, 4}, {{"batch_first", true}}))));
  EXPECT_FALSE(IsTokenWise(ScriptedLayer(1)));
  EXPECT_FALSE(IsTokenWise(Make("Conv1d", {kDim, kDim, 3})));
  EXPECT_FALSE(IsTokenWise(Make("LayerNorm", {Value::IntList({kLength, kDim})})));
}

TEST(GenerationTest, KeepsAsManyBytesAsThePlanCounts) {
  for (const auto& [pipe, model] : {std::pair(1, 1), {3, 1}, {1, 2}, {2, 2}}) {
    for (const char* precision : {"float32", "bf16"}) {
      Value::Map keys = Grid(pipe, 1, model);
      keys.emplace_back("precision", precision);
      const Job job = LanguageJob(LanguageNet(), keys);
      FakeScript script = PlacesScript();
      const std::vector<int64_t> planned = KeptTokenBytes(job, PlanJob(job, {}, &script));
      TextRequest request;
      request.prompts = {{1, 2, 3}};
      request.tokens = 10;
      const TextReport report = testing::Start(job, script)->BeginTexts(request);
      EXPECT_EQ(report.note, "");
      EXPECT_EQ(report.kept_bytes, 13 * std::ranges::max(planned)) << pipe << model << precision;
    }
  }
}

/// Compares with what attention really keeps, in layers that contain several or have their own
/// type.
TEST(GenerationTest, CountsWhatLayersKeep) {
  const at::NoGradGuard no_grad;
  const Value::Map causal = {{"causal", true}, {"batch_first", true}};
  Value::Map wide = causal;
  wide.emplace_back("dtype", "float64");
  const auto stack = [&](const char* type, const Value::Map& named) {
    const LayerSpec layer = Make(Str(type, "Layer"), {kDim, 4}, named);
    return MakeLayer(type, {}, {{"num_layers", 3}}, {layer, Make("LayerNorm", {kDim})}, "");
  };
  for (const LayerSpec& spec :
       {Make("MultiheadAttention", {kDim, 4}, causal), Make("MultiheadAttention", {kDim, 4}, wide),
        Make("GroupedQueryAttention", {kDim, 4}, {{"num_kv_heads", 2}}),
        stack("TransformerEncoder", causal), stack("TransformerDecoder", causal),
        stack("TransformerEncoder", wide)}) {
    const Job job = LanguageJob(
        {Make("Embedding", {kWords, kDim}), spec, Make("Linear", {kDim, kWords})}, Grid(1, 1, 1));
    const auto layer = BuildLayer(spec, nullptr);
    layer->OnBound();
    KeptTokens kept(kLength);
    const TokenScope scope(&kept);
    layer->Forward({at::ones({1, 5, kDim})}, {.training = false});
    EXPECT_EQ(kept.bytes(), kLength * KeptTokenBytes(job, PlanJob(job, {}, nullptr)).at(0))
        << spec.ToString();
  }
}

TEST(GenerationTest, CountsKeysAndValuesAsMemory) {
  Value::Map keys = Grid(1, 1, 1);
  keys.emplace_back("memory", 4'000'000);
  const Job job = LanguageJob(LanguageNet(), keys);
  EXPECT_EQ(ErrorWith(job, Asked(0)), "no error");
  TextRequest many = Asked(0);
  many.prompts = TextList(2000, {1, 2, 3});
  EXPECT_THAT(ErrorWith(job, many), HasSubstr("memory: rank 0 would need"));
  EXPECT_THAT(ErrorWith(job, many), HasSubstr("for the keys and values of the texts"));
}

}  // namespace
}  // namespace strata
