// Builds a stage, copies recorded values into it and runs the recorded actions.
#include "engine/runtime/check/replay.h"

#include <ATen/core/grad_mode.h>

#include <memory>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/comm/current.h"
#include "engine/job/parameter_groups.h"
#include "engine/runtime/check/step_record.h"
#include "engine/runtime/stage/feed.h"

namespace strata {
namespace {

using schedule::Kind;

/// Takes the tensors of a packet one after the other.
class Reader {
 public:
  explicit Reader(const Tensors& tensors) : left_(tensors) {}
  std::span<const at::Tensor> Take(size_t count) {
    STRATA_CHECK(count <= left_.size()) << count << " of " << left_.size() << " tensors";
    const auto taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  Tensors Copies(size_t count) {
    const auto taken = Take(count);
    return ExactCopies({taken.begin(), taken.end()});
  }
  /// Copies the next tensors into these.
  void Fill(const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) tensor.copy_(Take(1)[0]);
  }

 private:
  std::span<const at::Tensor> left_;
};

/// The shapes of one micro-batch, whose data are set from a record.
class RecordedFeed : public Feed {
 public:
  explicit RecordedFeed(const TensorSpecs& input) : Feed(Origin(), 1, {input}) {}
  Tensors Input(int) override { return {}; }
  Tensors Target(int) override { return {}; }

 private:
  static const DataOrigin& Origin() {
    static const DataOrigin origin = {"a record", ""};
    return origin;
  }
};

Boundaries BoundariesOf(const Value& value) {
  Boundaries boundaries;
  for (const Value& list : value.as_list()) {
    TensorSpecs& specs = boundaries.emplace_back();
    for (const Value& spec : list.as_list()) {
      specs.push_back(
          {spec.as_list()[1].as_ints(), static_cast<DType>(spec.as_list()[0].as_int())});
    }
  }
  return boundaries;
}

std::unique_ptr<Stage> Build(int stage, const RankContext& context) {
  const MutedProgress muted;
  const Job& job = context.job;
  StageParts parts = BuildStage(job, context.plan, stage, context.device, context.script);
  parts.block_bytes = 0;  // all gradients are in memory
  return std::make_unique<Stage>(std::move(parts), [&job](int layer, const std::string& parameter) {
    return FindParameterGroup(job.optimizer, job.layers, layer, parameter);
  });
}

/// Makes the sums of weight gradients those of the record.
void SetSums(Stage& stage, const std::vector<int64_t>& are_there, Reader& reader) {
  FlatParameters& parameters = stage.parameters();
  parameters.ClearGradients();
  const std::vector<const PlacedParameter*> learning = Learning(stage);
  STRATA_CHECK(learning.size() == are_there.size()) << learning.size() << " gradients";
  for (size_t i = 0; i < learning.size(); ++i) {
    if (are_there[i] == 0) continue;
    parameters.stale()->Take(learning[i]->gradient);
    learning[i]->gradient.copy_(reader.Take(1)[0]);
  }
}

void Prepare(Stage& stage, Kind kind, const Value& action, Reader& reader) {
  const at::NoGradGuard no_grad;
  std::vector<size_t> counts;
  for (const int64_t count : action["counts"].as_ints()) {
    counts.push_back(static_cast<size_t>(count));
  }
  size_t next = 0;
  if (kind == Kind::kForward) {
    stage.SetInput(0, reader.Copies(counts.at(next++)));
    Tensors target = reader.Copies(counts.at(next++));
    if (!target.empty()) stage.SetTarget(0, std::move(target));
    STRATA_CHECK(LayerBuffersOf(stage).size() == counts.at(next++)) << "layers' buffers";
    reader.Fill(LayerBuffersOf(stage));
  }
  const bool takes_gradient = kind == Kind::kBackward || kind == Kind::kInputGrad;
  if (takes_gradient && !stage.is_last()) {
    stage.SetOutputGradient(0, reader.Copies(counts.at(next++)));
  }
  if (AddsGradients(stage, kind)) SetSums(stage, action["sums"].as_ints(), reader);
}

void Run(Stage& stage, Kind kind, Keep keep) {
  switch (kind) {
    case Kind::kForward:
      return stage.Forward(0, keep);
    case Kind::kRecompute:
      return stage.Recompute(0);
    case Kind::kBackward:
      return stage.Backward(0);
    case Kind::kInputGrad:
      return stage.BackwardInput(0);
    case Kind::kWeightGrad:
      return stage.BackwardWeights(0);
    default:
      STRATA_CHECK(false) << "kind " << static_cast<int>(kind) << " is not recorded";
  }
}

/// The tensors of an update, in the order in which they are sent.
Tensors UpdateTensors(const std::vector<OptimizerState>& states) {
  Tensors tensors;
  for (const OptimizerState& state : states) {
    tensors.push_back(state.buffer.values);
    tensors.push_back(state.buffer.gradients);
    for (const Moment& moment : state.moments) tensors.push_back(moment.values);
    for (const Factor& factor : state.factors) tensors.push_back(factor.values);
  }
  return tensors;
}

}  // namespace

Digests ReplayActions(const TensorPacket& packet, const RankContext& context, Flip* flip) {
  const CurrentRank none(nullptr);
  const std::unique_ptr<Stage> stage =
      Build(static_cast<int>(packet.header["stage"].as_int()), context);
  Reader reader(packet.tensors);
  {
    const at::NoGradGuard no_grad;
    reader.Fill(ValuesOf(*stage));
  }
  stage->parameters().MarkCopiesStale();
  const Boundaries boundaries = BoundariesOf(packet.header["boundaries"]);
  RecordedFeed feed(boundaries.front());
  RunSpec run;
  run.feed = &feed;
  run.first_micro_batch = packet.header["number"].as_int();
  run.loss_scale = packet.header["loss_scale"].as_double();
  run.boundaries = {&boundaries};
  stage->Begin(run);
  Digests digests;
  for (const Value& action : packet.header["actions"].as_list()) {
    const auto kind = static_cast<Kind>(action["kind"].as_int());
    Prepare(*stage, kind, action, reader);
    try {
      Run(*stage, kind, static_cast<Keep>(action["keep"].as_int()));
    } catch (const ConfigError& error) {
      throw ConfigError(Str("check repeats the work of stage ", stage->number(),
                            " on another rank: ", error.what()));
    }
    DigestResults(*stage, kind, 0, flip, digests);
  }
  return digests;
}

TensorPacket UpdatePacket(Stage& stage, const Optimizer& optimizer, double lr_factor,
                          double divisor) {
  const auto [steps, began] = optimizer.steps_done();
  Value of_parameters = Value::MakeMap(), places = Value::List{};
  for (const auto& [path, step] : began) of_parameters.Set(path, step);
  const std::vector<OptimizerState> states = optimizer.state();
  const std::vector<FlatBuffer>& buffers = stage.parameters().buffers();
  for (const OptimizerState& state : states) {
    const at::Tensor& values = state.buffer.values;
    size_t whole = 0;
    while (!buffers.at(whole).values.is_alias_of(values)) ++whole;
    places.Append(Value::List{static_cast<int64_t>(whole),
                              values.storage_offset() - buffers[whole].values.storage_offset(),
                              values.numel()});
  }
  return {Value::MakeMap({{"stage", stage.number()},
                          {"lr_factor", lr_factor},
                          {"divisor", divisor},
                          {"steps", steps},
                          {"began", of_parameters},
                          {"places", places}}),
          ExactCopies(UpdateTensors(states))};
}

Digests UpdatedBits(const Optimizer& optimizer) {
  Digests digests;
  for (const OptimizerState& state : optimizer.state()) {
    digests.emplace_back("the updated parameters", BitsOf(state.buffer.values));
    for (const Moment& moment : state.moments) {
      digests.emplace_back(Str("the updated ", moment.name), BitsOf(moment.values));
    }
    for (const Factor& factor : state.factors) {
      digests.emplace_back(Str("the updated ", factor.name, " of ", factor.path),
                           BitsOf(factor.values));
    }
  }
  return digests;
}

Digests ReplayUpdate(const TensorPacket& packet, const RankContext& context, Flip* flip) {
  const at::NoGradGuard no_grad;
  const Value& header = packet.header;
  const std::unique_ptr<Stage> stage = Build(static_cast<int>(header["stage"].as_int()), context);
  std::vector<FlatBuffer> updated;
  for (const Value& place : header["places"].as_list()) {
    const std::vector<int64_t> numbers = place.as_ints();
    FlatBuffer buffer = stage->parameters().buffers().at(static_cast<size_t>(numbers[0]));
    if (numbers[2] != buffer.values.numel()) buffer.copy = nullptr;
    buffer.values = buffer.values.narrow(0, numbers[1], numbers[2]);
    buffer.gradients = buffer.gradients.narrow(0, numbers[1], numbers[2]);
    updated.push_back(std::move(buffer));
  }
  const std::unique_ptr<Optimizer> optimizer =
      MakeOptimizer(context.job.optimizer, updated, stage->parameters().parameters());
  std::map<std::string, int64_t> began;
  for (const auto& [path, step] : header["began"].as_map()) began[path] = step.as_int();
  optimizer->set_steps_done(header["steps"].as_int(), began);
  Reader(packet.tensors).Fill(UpdateTensors(optimizer->state()));
  optimizer->Step(header["lr_factor"].as_double(), header["divisor"].as_double());
  if (flip) flip->Reach(FlipAt::kUpdate, {updated.empty() ? at::Tensor() : updated[0].values});
  return UpdatedBits(*optimizer);
}

}  // namespace strata
