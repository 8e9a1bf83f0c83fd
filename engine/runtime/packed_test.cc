// Packed rows (strata.documents) under every plan: the same bits whatever the cuts and schedules,
// the results of the documents alone, and layers that mix documents are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"
#include "engine/layers/documents.h"
#include "engine/layers/targets.h"
#include "engine/runtime/testing_job.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using ::testing::AllOf;
using testing::FakeScript;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;
using testing::Start;

constexpr int64_t kTokens = 12, kWords = 17;
// The lengths of the documents of a micro-batch, row by row. What is left of a row is padding.
using Rows = std::vector<std::vector<int64_t>>;
const Rows kPacked = {{5, 4, 3}, {1, 7}};

struct Row {
  at::Tensor tokens, places, labels;
};

/// A row of documents, of which number i begins with the token `first` + i.
Row RowOf(const std::vector<int64_t>& lengths, int64_t first) {
  std::vector<at::Tensor> tokens, places, labels;
  int64_t room = kTokens;
  for (const int64_t length : lengths) {
    tokens.push_back(at::arange(first, first + length).remainder(kWords));
    places.push_back(at::arange(length));
    labels.push_back(tokens.back().mul(3).add(1).remainder(kWords));
    labels.back()[0] = kNoLabel;  // as of a question
    ++first;
    room -= length;
  }
  tokens.push_back(at::zeros({room}, at::kLong));
  places.push_back(at::arange(room));
  labels.push_back(at::full({room}, kNoLabel));
  return {at::cat(tokens), at::cat(places), at::cat(labels)};
}

MicroBatch BatchOf(const std::vector<Row>& rows) {
  std::vector<at::Tensor> tokens, places, labels;
  for (const Row& row : rows) {
    tokens.push_back(row.tokens);
    places.push_back(row.places);
    labels.push_back(row.labels);
  }
  return {{at::stack(tokens), at::stack(places)}, {at::stack(labels)}};
}

MicroBatch Packed(int64_t i) {
  return BatchOf({RowOf(kPacked[0], 3 * i), RowOf(kPacked[1], 3 * i + 7)});
}

/// The documents of Packed(i), each in a row of its own.
MicroBatch OneByOne(int64_t i) {
  std::vector<Row> rows;
  for (size_t row = 0; row < kPacked.size(); ++row) {
    int64_t first = 3 * i + (row == 0 ? 0 : 7);
    for (const int64_t length : kPacked[row]) rows.push_back(RowOf({length}, first++));
  }
  return BatchOf(rows);
}

std::vector<LayerSpec> Layers(double dropout = 0.3) {
  const auto with = [&](Value::Map more) {
    for (const auto& entry : Value::Map{{"dim_feedforward", 24},
                                        {"dropout", dropout},
                                        {"batch_first", true},
                                        {"causal", true}}) {
      more.push_back(entry);
    }
    return more;
  };
  return {Make("documents"),
          Make("Embedding", {kWords, 16}),
          Make("TransformerEncoderLayer", {16, 2}, with({})),
          Make("skip", {"far"}),
          Make("GroupedQueryAttention", {16, 4}, {{"num_kv_heads", 2}}),
          Make("join", {"far"}),
          Make("TransformerDecoderLayer", {16, 2}, with({{"norm_first", true}})),
          Make("Linear", {16, kWords})};
}

Job MakeJob(const Value::Map& more = {}, const std::vector<LayerSpec>& layers = Layers()) {
  const Value::Map keys = {{"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 2}})},
                           {"data", MapOf({{"train", testing::Function(1)}})},
                           {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}})},
                           {"steps", 3}};
  return testing::MakeJob(layers, Make("CrossEntropyLoss", {}, {{"class_dim", -1}}),
                          testing::With(keys, more));
}

FakeScript ScriptOf(MicroBatch (*data)(int64_t)) {
  FakeScript script;
  script.data[1] = data;
  return script;
}

/// The results that must not depend on the plan.
std::vector<std::string> Train(const Job& job, MicroBatch (*data)(int64_t) = Packed) {
  FakeScript script = ScriptOf(data);
  const auto engine = Start(job, script);
  std::vector<std::string> bits;
  for (int i = 0; i < 3; ++i) bits.push_back(FormatDouble(engine->TrainStep().loss));
  for (const TensorDigest& digest : engine->Parameters()) {
    bits.push_back(digest.path + " " + digest.digest);
  }
  engine->Close();
  return bits;
}

TEST(PackedTest, NoPlanChangesABit) {
  const auto pipe = [](int ranks, int data = 1) {
    return MapOf({{"pipe", ranks}, {"data", data}});
  };
  const auto cuts = [](Value::List list) { return Value(std::move(list)); };
  const std::pair<const char*, Value::Map> kinds[] = {
      {"two stages", {{"parallel", pipe(2)}, {"partition", cuts({0, 4, 8})}}},
      {"gpipe", {{"parallel", pipe(3)}, {"partition", cuts({0, 1, 5, 8})}, {"schedule", "gpipe"}}},
      {"split backwards",
       {{"parallel", pipe(3)}, {"partition", cuts({0, 2.1, 6.1, 8})}, {"schedule", "zb_h1"}}},
      {"two stages a rank",
       {{"parallel", pipe(2)},
        {"partition", cuts({0, 2.1, 4, 6.1, 8})},
        {"schedule", "zbv"},
        {"stages_per_rank", 2}}},
      {"recomputed", {{"parallel", pipe(2)}, {"partition", cuts({0, 4, 8})}, {"recompute", true}}},
      {"recomputed layers", {{"partition", "parameters"}, {"recompute", MapOf({{"every", 2}})}}},
  };
  const std::vector<std::string> one = Train(MakeJob());
  for (const auto& [name, more] : kinds) EXPECT_EQ(Train(MakeJob(more)), one) << name;
  const Value::Map replicas = {{"parallel", pipe(1, 2)}};
  EXPECT_EQ(Train(MakeJob({{"parallel", pipe(2, 2)}, {"partition", cuts({0, 4, 8})}})),
            Train(MakeJob(replicas)));
}

/// Tokens without places pass a strata.documents; each row is one text.
TEST(PackedTest, TokensThatAreNotPackedAreWholeTexts) {
  const auto whole = [](int64_t i) {
    return BatchOf({RowOf({kTokens}, 3 * i), RowOf({kTokens}, 3 * i + 7)});
  };
  const auto plain = [](int64_t i) {
    MicroBatch batch = BatchOf({RowOf({kTokens}, 3 * i), RowOf({kTokens}, 3 * i + 7)});
    batch.input.pop_back();
    return batch;
  };
  const Job one = MakeJob(), two = MakeJob({{"parallel", MapOf({{"pipe", 2}})}});
  EXPECT_EQ(Train(one, plain), Train(one, whole));
  EXPECT_EQ(Train(two, plain), Train(one, plain));
}

TEST(PackedTest, ModelAxisGivesTheSame) {
  const auto layers = Layers(0);
  const auto loss = [&](int model) {
    return std::stod(Train(MakeJob({{"parallel", MapOf({{"model", model}})}}, layers))[2]);
  };
  EXPECT_NEAR(loss(2), loss(1), 1e-5);
}

TEST(PackedTest, TrainsAsTheDocumentsAlone) {
  const auto losses = [](MicroBatch (*data)(int64_t), int rows) {
    const Value batch = MapOf({{"micro_batches", 4}, {"micro_batch_size", rows}});
    const auto bits = Train(MakeJob({{"batch", batch}}, Layers(0)), data);
    return std::vector<double>{std::stod(bits[0]), std::stod(bits[1]), std::stod(bits[2])};
  };
  const std::vector<double> packed = losses(Packed, 2), alone = losses(OneByOne, 5);
  EXPECT_GT(packed[0] - packed[2], 0.01) << "it learns";
  for (size_t i = 0; i < packed.size(); ++i) EXPECT_NEAR(packed[i], alone[i], 1e-6) << i;
}

/// The loss counts each label once, whichever micro-batches and replicas the rows are in.
TEST(PackedTest, CountsLabelsOnceOverMicroBatchesAndReplicas) {
  const auto train = [](int64_t micro_batches, int64_t data) {
    const Value::Map more = {
        {"parallel", MapOf({{"data", data}})},
        {"batch", MapOf({{"micro_batches", micro_batches}, {"micro_batch_size", 2}})}};
    return std::stod(Train(MakeJob(more, Layers(0)))[2]);
  };
  EXPECT_NEAR(train(4, 1), train(2, 2), 1e-6);
  EXPECT_NEAR(train(4, 1), train(1, 4), 1e-6);
}

/// The number of the document of each token is what other libraries take.
TEST(PackedTest, RefusesWhatAreNoPlaces) {
  const auto error = [](MicroBatch (*data)(int64_t)) {
    return ErrorOf([&] { Train(MakeJob(), data); });
  };
  const auto numbers = [](int64_t i) {
    MicroBatch batch = Packed(i);
    batch.input[1] = batch.input[1].eq(0).cumsum(1).sub(1);
    return batch;
  };
  EXPECT_THAT(error(numbers), AllOf(HasSubstr("layer 0 documents()"),
                                    HasSubstr("token 6 of row 0 has 1, expected 0 or 2")));
  EXPECT_THAT(error([](int64_t i) {
                MicroBatch batch = Packed(i);
                batch.input[1] = batch.input[1].add(1);
                return batch;
              }),
              HasSubstr("token 0 of row 0 has 1, expected 0"));
}

/// Trains one step with a layer behind the Embedding; returns the error.
std::string ErrorWith(const std::vector<LayerSpec>& more,
                      const testing::FunctionLayer::Function& function = nullptr) {
  std::vector<LayerSpec> layers = {Make("documents"), Make("Embedding", {kWords, 16})};
  layers.insert(layers.end(), more.begin(), more.end());
  layers.push_back(Make("Linear", {16, kWords}));
  FakeScript script = ScriptOf(Packed);
  script.layers[1] = function;
  const auto engine = Start(MakeJob({}, layers), script);
  const std::string error = ErrorOf([&] { engine->TrainStep(); });
  engine->Close();
  return error;
}

TEST(PackedTest, NamesLayersThatMixDocuments) {
  const LayerSpec scripted = testing::ScriptedLayer(1);
  using Function = testing::FunctionLayer::Function;
  const Function running_sum = [](auto&, const Tensors& x, const Pass&) {
    return Tensors{x[0].cumsum(1)};
  };
  const Function convolution = [](auto&, const Tensors& x, const Pass&) {
    const at::Tensor turned = x[0].transpose(1, 2);
    return Tensors{at::conv1d(turned, at::ones({16, 16, 3}), {}, 1, 1).transpose(1, 2)};
  };
  const Function of_row = [](auto&, const Tensors& x, const Pass&) {
    return Tensors{x[0] + at::arange(x[0].size(1)).unsqueeze(1).mul(0.1)};
  };
  const Function fixed = [](auto&, const Tensors& x, const Pass&) {
    return Tensors{x[0] + at::ones({kTokens, 16})};
  };
  const Function places = [](auto&, const Tensors& x, const Pass&) {
    return Tensors{x[0] + CurrentDocuments()->places().unsqueeze(2).mul(0.1)};
  };
  const auto mixes =
      AllOf(HasSubstr("net.lua:"), HasSubstr("does not treat the documents of packed"),
            HasSubstr("gives other values for a document alone"));
  EXPECT_THAT(ErrorWith({scripted}, convolution), mixes);
  EXPECT_THAT(ErrorWith({scripted}, running_sum), mixes);
  EXPECT_THAT(ErrorWith({scripted}, of_row), mixes);
  EXPECT_THAT(ErrorWith({scripted}, fixed), HasSubstr("cannot take a shorter text"));
  EXPECT_EQ(ErrorWith({scripted}, places), "no error");
  EXPECT_EQ(ErrorWith({Make("LayerNorm", {16}), Make("Dropout", {0.5}), Make("SwiGLU", {16, 24})}),
            "no error");
}

}  // namespace
}  // namespace strata
