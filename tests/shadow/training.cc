#include "tests/shadow/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/base/text.h"
#include "engine/job/data_source.h"
#include "engine/search/plan_job.h"
#include "tests/shadow/ranks.h"

namespace strata::shadow {
namespace {

using testing::FakeScript;
using testing::Function;
using testing::Make;
using testing::MapOf;

struct Model {
  std::vector<LayerSpec> layers;
  Value::Map keys;
};

LayerSpec Tied(LayerSpec layer) {
  layer.tied_key = "embed";
  layer.tied_weights = {"weight"};
  return layer;
}

Model Dense() {
  return {{Make("Linear", {6, 32}), Make("Dropout", {0.3}), Make("ReLU", {}, {{"inplace", true}}),
           Make("LayerNorm", {32}), Make("Linear", {32, 24}), Make("GELU"),
           Make("Linear", {24, 24}), Make("ReLU"), Make("Linear", {24, 5})},
          {{"input", MapOf({{"shape", Value::IntList({6})}})},
           {"data", MapOf({{"train", Function(1)}})}}};
}

/// Its gradients are three buckets.
Model Large() {
  return {{Make("Linear", {6, 2048}), Make("ReLU"), Make("Linear", {2048, 2100}), Make("ReLU"),
           Make("Linear", {2100, 2048}), Make("ReLU"), Make("Linear", {2048, 5})},
          Dense().keys};
}

Model Images() {
  return {{Make("Conv2d", {1, 4, 3}), Make("BatchNorm2d", {4}), Make("ReLU"),
           Make("MaxPool2d", {2}), Make("Conv2d", {4, 6, 3}), Make("ReLU"), Make("Flatten"),
           Make("Linear", {6, 8}), Make("ReLU"), Make("Linear", {8, 5})},
          {{"input", MapOf({{"shape", Value::IntList({1, 8, 8})}})},
           {"data", MapOf({{"train", Function(2)}})}}};
}

/// With connections that cross cuts.
Model Skips() {
  return {
      {Make("Linear", {6, 32}), Make("skip", {"a"}), Make("ReLU"), Make("Linear", {32, 32}),
       Make("skip", {"b"}), Make("LayerNorm", {32}), Make("Linear", {32, 32}), Make("GELU"),
       Make("join", {"b"}), Make("Linear", {32, 32}), Make("join", {"a"}), Make("Linear", {32, 5})},
      Dense().keys};
}

/// With more words than a micro-batch has tokens.
Model Tokens() {
  const Value::Map transformer = {
      {"dim_feedforward", 24}, {"batch_first", true}, {"dropout", 0.1}, {"causal", true}};
  const auto tokens = [](const char* split) {
    return MakeDataSource("tokens", {96}, {{"length", 8}, {"samples", 96}, {"split", split}},
                          "net.lua:9");
  };
  return {{Make("Embedding", {96, 16}), Make("TransformerEncoderLayer", {16, 4}, transformer),
           Make("TransformerEncoderLayer", {16, 4}, transformer), Make("LayerNorm", {16}),
           Make("Linear", {16, 16}), Make("GELU"), Make("Linear", {16, 96})},
          {{"data", MapOf({{"train", tokens("train")}, {"test", tokens("test")}})}}};
}

/// Residual blocks, and encoder layers with the norm first: sums with norms behind them.
Model Residuals() {
  const auto block = [](std::vector<LayerSpec> body) {
    return MakeLayer("Residual", {}, {}, std::move(body), "");
  };
  const Value::Map drops = {{"dropout", 0.1}, {"batch_first", true}, {"causal", true}};
  Value::Map encoder = drops;
  encoder.insert(encoder.end(), {{"dim_feedforward", 24}, {"norm_first", true}});
  std::vector<LayerSpec> layers = {Make("Embedding", {96, 16})};
  for (int i = 0; i < 2; ++i) {
    layers.push_back(block({Make("LayerNorm", {16}), Make("MultiheadAttention", {16, 4}, drops),
                            Make("Dropout", {0.1})}));
    layers.push_back(block({Make("RMSNorm", {16}), Make("Linear", {16, 24}), Make("GELU"),
                            Make("Linear", {24, 16}), Make("Dropout", {0.1})}));
  }
  for (int i = 0; i < 2; ++i) {
    layers.push_back(Make("TransformerEncoderLayer", {16, 4}, encoder));
  }
  // These use three times what they normalise.
  layers.push_back(Make("TransformerDecoderLayer", {16, 4}, encoder));
  layers.push_back(block({block({Make("LayerNorm", {16}), Make("Linear", {16, 16})})}));
  layers.insert(layers.end(), {Make("LayerNorm", {16}), Make("Linear", {16, 96})});
  return {layers, Tokens().keys};
}

/// The layers of Llama's blocks.
Model Llama() {
  const Value::Map heads = {{"num_kv_heads", 2}, {"rope_theta", 10000.0}};
  return {{Make("Embedding", {96, 32}), Make("RMSNorm", {32}),
           Make("GroupedQueryAttention", {32, 4}, heads), Make("RMSNorm", {32}),
           Make("SwiGLU", {32, 48}), Make("RMSNorm", {32}), Make("Linear", {32, 96})},
          Tokens().keys};
}

Model TiedTokens() {
  LayerSpec last = Tied(Make("Embedding", {64, 16}));
  last.tied_forward = {1, "net.lua:9", "digest"};
  return {{Tied(Make("Embedding", {64, 16})), Make("Linear", {16, 16}), Make("LayerNorm", {16}),
           Make("Linear", {16, 16}), last},
          {{"input", MapOf({{"shape", Value::IntList({10})}, {"dtype", "int64"}})},
           {"tie_check", 3},  // in the first step, which is not counted
           {"data", MapOf({{"train", Function(3)}})}}};
}

/// Attention within the documents of packed rows.
Model Packed() {
  const Value::Map transformer = {
      {"dim_feedforward", 24}, {"batch_first", true}, {"dropout", 0}, {"causal", true}};
  return {{Make("documents"), Make("Embedding", {64, 16}),
           Make("TransformerEncoderLayer", {16, 4}, transformer),
           Make("GroupedQueryAttention", {16, 4}), Make("Linear", {16, 64})},
          {{"data", MapOf({{"train", Function(4)}})}}};
}

Model ModelOf(const std::string& name) {
  if (name == "dense") return Dense();
  if (name == "large") return Large();
  if (name == "images") return Images();
  if (name == "tokens") return Tokens();
  if (name == "skips") return Skips();
  if (name == "llama") return Llama();
  if (name == "residuals") return Residuals();
  if (name == "packed") return Packed();
  return TiedTokens();
}

/// Of the test data, or of micro-batches that no step has.
EvalResult Evaluate(Engine& engine, const Job& job) {
  if (!job.test_data.kind.empty()) return engine.EvaluateTestData();
  const auto micro_batch = ScriptOf().data.at(job.train_data.function.id);
  MicroBatches batches;
  for (int i = 0; i < 4; ++i) batches.list.push_back(micro_batch(100 + i));
  return engine.EvalBatch(batches, nullptr);
}

/// Runs the steps of a rank's engine. `meet`: waits for all ranks, and then runs its argument once.
Outcome Steps(Engine& engine, const Job& job,
              const std::function<void(const std::function<void()>&)>& meet) {
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    const StepResult result = engine.TrainStep();
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    outcome.losses.insert(outcome.losses.end(), result.micro_batch_losses.begin(),
                          result.micro_batch_losses.end());
    if (step == 0) meet([] { Machine::Get().ResetCounts(); });
  }
  meet([&] { outcome.counts = Machine::Get().counts(); });
  if (!job.save.dir.empty()) engine.Save();
  const EvalResult test = Evaluate(engine, job);
  outcome.losses.insert(outcome.losses.end(), {test.loss, test.metric});
  for (const TensorDigest& tensor : engine.Parameters()) {
    outcome.digests.push_back(tensor.path + " " + tensor.digest);
  }
  engine.Close();
  return outcome;
}

}  // namespace

std::vector<LayerSpec> LayersOf(const std::string& model) { return ModelOf(model).layers; }

std::string Case::Name() const {
  std::string name = Str(model, "_", schedule, "_pipe", pipe);
  if (data > 1) name += Str("_data", data);
  if (model_axis > 1) name += Str("_model", model_axis);
  for (const auto& [key, value] : more) {
    name += "_" + key;
    if (value.is_int()) name += Str(value.as_int());
    for (const auto& part : value.is_map() ? value.as_map() : Value::Map()) {
      if (part.second.is_string()) name += "_" + part.second.as_string();
    }
  }
  return name;
}

FakeScript ScriptOf() {
  FakeScript script;
  const auto labels = [](int64_t i) { return at::arange(8).mul(7).add(3 * i).remainder(5); };
  const auto waves = [](int64_t i, std::vector<int64_t> sizes) {
    const int64_t count = c10::multiply_integers(sizes);
    return at::arange(count, at::kFloat).add(31 * i).mul(0.37).sin().view(sizes);
  };
  const auto tokens = [](int64_t i) {
    return at::arange(80).mul(7 + i).remainder(64).view({8, 10});
  };
  script.data[1] = [=](int64_t i) { return MicroBatch{{waves(i, {8, 6})}, {labels(i)}}; };
  script.data[2] = [=](int64_t i) { return MicroBatch{{waves(i, {8, 1, 8, 8})}, {labels(i)}}; };
  script.data[3] = [=](int64_t i) { return MicroBatch{{tokens(i)}, {tokens(i + 1)}}; };
  script.data[4] = [=](int64_t i) {  // two documents in each row, cut at another place in each
    const at::Tensor place = at::arange(10), first = at::arange(i, i + 8).remainder(9).add(1);
    const at::Tensor second = place.sub(first.unsqueeze(1));
    const at::Tensor places = at::where(second.lt(0), place, second);
    return MicroBatch{{tokens(i), places}, {tokens(i + 1)}};
  };
  script.layers[1] = [](testing::FunctionLayer& layer, const Tensors& x, const Pass&) {
    return Tensors{x[0].matmul(layer.weight().t())};
  };
  script.layers[kSecondOfTwo] = [](auto&, const Tensors& x, const Pass&) { return Tensors{x[1]}; };
  script.infer = [](const TensorSpecs& x) {
    if (x.size() == 2) return TensorSpecs{x[1]};
    return TensorSpecs{{{x[0].shape[0], 10, 64}, DType::kFloat32}};
  };
  return script;
}

Job JobOf(const Case& c) {
  Model model = ModelOf(c.model);
  if (!c.layers.empty()) model.layers = c.layers;
  Value::Map keys = {
      {"parallel", MapOf({{"pipe", c.pipe}, {"data", c.data}, {"model", c.model_axis}})},
      {"schedule", c.schedule},
      {"batch", MapOf({{"micro_batches", 4 * c.pipe / c.data}, {"micro_batch_size", 8}})},
      {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
      {"losses", true},
      {"steps", 3}};
  keys.insert(keys.end(), model.keys.begin(), model.keys.end());
  for (const auto& [key, value] : c.more) {
    std::erase_if(keys, [&, k = key](const auto& entry) { return entry.first == k; });
    keys.emplace_back(key, value);
  }
  return testing::MakeJob(model.layers, Make("CrossEntropyLoss"), keys);
}

Plan PlanOn(const std::string& device, const Job& job, EngineScript& script) {
  Device(0);  // registers them
  Plan plan = PlanJob(job, {}, &script);
  plan.device = device;
  return plan;
}

std::vector<std::string> TrainOver(FakeNccl& nccl, const Case& c, const std::string& device,
                                   Outcome& outcome, const Wrap& wrap) {
  const Job job = JobOf(c);
  FakeScript planning = ScriptOf();
  const Plan plan = PlanOn(device, job, planning);
  std::vector<Outcome> outcomes(c.ranks());
  HostMeeting meeting(c.ranks());
  const auto train = [&](std::unique_ptr<Transport> transport) {
    if (wrap) transport = wrap(std::move(transport));
    FakeScript script = ScriptOf();
    const int rank = transport->rank();
    RankPlace place;
    place.rank = place.local_rank = rank;
    place.world_size = place.local_world_size = c.ranks();
    const auto engine = MakeRankEngine(job, plan, script, std::move(transport), place);
    const auto meet = [&](const std::function<void()>& work) {
      Machine::Get().Meet(meeting, rank, "the test");
      if (rank == 0) work();
      Machine::Get().Meet(meeting, rank, "the test");
    };
    outcomes[rank] = Steps(*engine, job, meet);
  };
  const auto errors = RunRanks(nccl, c.ranks(), LinksOf(plan), GroupsOf(plan), train);
  outcome = outcomes[0];
  return errors;
}

Outcome Train(const Case& c, const std::string& device, const std::string& transport) {
  if (transport == "nccl") {
    FakeNccl nccl;
    Outcome outcome;
    EXPECT_THAT(TrainOver(nccl, c, device, outcome), ::testing::Each(::testing::IsEmpty()));
    EXPECT_THAT(nccl.misuses(), ::testing::IsEmpty());
    EXPECT_EQ(nccl.aborted(), 0);
    return outcome;
  }
  const Job job = JobOf(c);
  FakeScript script = ScriptOf();
  const auto engine = MakeThreadsEngine(job, PlanOn(device, job, script), script);
  return Steps(*engine, job, [](const std::function<void()>& function) { function(); });
}

}  // namespace strata::shadow
