// Copies what an action takes, and digests what it gives.
#include "engine/runtime/check/step_record.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "engine/base/tensors/late_memory.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/layers/packed_weight.h"
#include "engine/runtime/stage/feed.h"

namespace strata {
namespace {

using schedule::Kind;

std::string MessageName(int to, int m, bool is_gradient) {
  return Str(to, is_gradient ? "B" : "F", m);
}

std::string BitsOfAll(const Tensors& tensors) {
  Digests digests;
  for (const at::Tensor& tensor : tensors) digests.emplace_back("", BitsOf(tensor));
  return BitsOf(digests);
}

bool TakesOutputGradient(Kind kind) { return kind == Kind::kBackward || kind == Kind::kInputGrad; }

/// True if the sum is overwritten by the next product instead of being added to.
bool IsStale(const FlatParameters& parameters, const at::Tensor& gradient) {
  if (!parameters.stale()->Take(gradient)) return false;
  parameters.stale()->Mark(gradient);
  return true;
}

std::string ActionName(Kind kind) {
  return std::string(1, schedule::ToText(schedule::MakeAction(0, kind, 0))[1]);
}

}  // namespace

bool AddsGradients(const Stage& stage, Kind kind) {
  return TakesOutputGradient(kind) || kind == Kind::kWeightGrad || stage.adds_in_forward();
}

std::vector<const PlacedParameter*> Learning(Stage& stage) {
  std::vector<const PlacedParameter*> learning;
  for (const PlacedParameter& parameter : stage.parameters().parameters()) {
    if (parameter.gradient.defined()) learning.push_back(&parameter);
  }
  return learning;
}

Tensors SumsOf(Stage& stage) {
  Tensors sums;
  for (const PlacedParameter* parameter : Learning(stage)) {
    const at::Tensor& gradient = parameter->gradient;
    const bool is_there = HasMemory(gradient) && !IsStale(stage.parameters(), gradient);
    sums.push_back(is_there ? gradient : at::Tensor());
  }
  return sums;
}

Tensors ValuesOf(Stage& stage) {
  Tensors values;
  for (const FlatBuffer& buffer : stage.parameters().buffers()) values.push_back(buffer.values);
  for (const PlacedParameter& parameter : stage.parameters().parameters()) {
    if (parameter.packed) {
      values.push_back(parameter.packed->codes());
      values.push_back(parameter.packed->scales());
    } else if (!parameter.gradient.defined()) {
      values.push_back(parameter.value);
    }
  }
  return values;
}

Tensors LayerBuffersOf(Stage& stage) {
  Tensors buffers;
  for (const StageLayer& layer : stage.layers()) {
    for (const LayerBuffer& buffer : layer.layer->buffers()) buffers.push_back(buffer.value);
  }
  return buffers;
}

void DigestResults(Stage& stage, Kind kind, int m, Flip* flip, Digests& digests) {
  const at::NoGradGuard no_grad;
  const auto add = [&](const std::string& what, const at::Tensor& tensor) {
    digests.emplace_back(what, BitsOf(tensor));
  };
  const std::string in = Str(" in ", ActionName(kind));
  if (kind == Kind::kForward) {
    Tensors outputs = stage.is_last() ? Tensors{stage.loss(m).sum} : stage.output(m);
    if (flip) flip->Reach(FlipAt::kOutput, outputs);
    for (const at::Tensor& output : outputs)
      add(stage.is_last() ? "the loss" : "the output", output);
    if (stage.is_last()) {
      digests.emplace_back("the weight of the loss", Str(stage.loss(m).weight));
      for (const auto& [name, part] : stage.loss_parts(m)) add(Str("the loss part ", name), part);
    }
    for (const at::Tensor& buffer : LayerBuffersOf(stage)) add("a layer's buffer", buffer);
  }
  if (TakesOutputGradient(kind)) {
    if (flip) flip->Reach(FlipAt::kInputGradient, stage.input_gradient(m));
    for (const at::Tensor& gradient : stage.input_gradient(m)) add("the input gradient", gradient);
  }
  if (!AddsGradients(stage, kind)) return;
  const Tensors sums = SumsOf(stage);
  if (flip && kind != Kind::kForward) flip->Reach(FlipAt::kWeightGradient, sums);
  const std::vector<const PlacedParameter*> learning = Learning(stage);
  for (size_t i = 0; i < sums.size(); ++i) {
    add(Str("the weight gradient of ", learning[i]->path, in),
        sums[i].defined() ? sums[i] : at::zeros_like(learning[i]->value));
  }
}

void StepRecord::Before(Stage& stage, Kind kind, int m, bool has_message) {
  const bool takes_input = kind == Kind::kForward;
  if (has_message && takes_input) {
    used_[MessageName(stage.number(), m, false)] = BitsOfAll(stage.input(m));
  } else if (has_message && TakesOutputGradient(kind)) {
    used_[MessageName(stage.number(), m, true)] = BitsOfAll(stage.output_gradient(m));
  }
  if (!IsDrawn(stage, m)) return;
  Action& action = actions_.emplace_back();
  action.kind = kind;
  if (takes_input) {
    action.before = {ExactCopies(stage.input(m)), ExactCopies(stage.target(m)),
                     ExactCopies(LayerBuffersOf(stage))};
  }
  if (TakesOutputGradient(kind) && !stage.is_last()) {
    action.before = {ExactCopies(stage.output_gradient(m))};
  }
  if (!AddsGradients(stage, kind)) return;
  Tensors& copies = action.before.emplace_back();
  for (const at::Tensor& sum : SumsOf(stage)) {
    action.sums.push_back(sum.defined() ? 1 : 0);
    if (sum.defined()) copies.push_back(ExactCopy(sum));
  }
}

void StepRecord::After(Stage& stage, Kind kind, int m, Keep keep) {
  if (!IsDrawn(stage, m)) return;
  actions_.back().keep = keep;
  DigestResults(stage, kind, m, flip_, digests_);
}

Tensors StepRecord::Sends(int to, int m, bool is_gradient, Tensors tensors) {
  sent_[MessageName(to, m, is_gradient)] = BitsOfAll(tensors);
  if (flip_ && flip_->at == FlipAt::kMessage) {
    tensors = ExactCopies(tensors);  // the sender's own tensors stay
    flip_->Reach(FlipAt::kMessage, tensors);
  }
  return tensors;
}

TensorPacket StepRecord::ToPacket(Stage& stage, const RunSpec& run) {
  TensorPacket packet = {Value::MakeMap({{"stage", stage.number()}}), {}};
  if (actions_.empty()) return packet;
  const auto m = static_cast<size_t>(drawn_->micro_batch);
  Value::List boundaries, actions;
  for (const TensorSpecs& specs : *run.boundaries[m]) {
    Value::List list;
    for (const TensorSpec& spec : specs) {
      list.push_back(Value::List{static_cast<int>(spec.dtype), Value::IntList(spec.shape)});
    }
    boundaries.push_back(list);
  }
  packet.tensors = ValuesOf(stage);
  for (const Action& action : std::exchange(actions_, {})) {
    std::vector<int64_t> counts;
    for (const Tensors& tensors : action.before) {
      counts.push_back(static_cast<int64_t>(tensors.size()));
      packet.tensors.insert(packet.tensors.end(), tensors.begin(), tensors.end());
    }
    actions.push_back(Value::MakeMap({{"kind", static_cast<int>(action.kind)},
                                      {"keep", static_cast<int>(action.keep)},
                                      {"counts", Value::IntList(counts)},
                                      {"sums", Value::IntList(action.sums)}}));
  }
  packet.header.Set("micro_batch", drawn_->micro_batch);
  packet.header.Set("number", run.first_micro_batch + drawn_->micro_batch);
  packet.header.Set("loss_scale", run.loss_scale).Set("boundaries", boundaries);
  packet.header.Set("actions", actions).Set("digests", ToValue(digests_));
  return packet;
}

}  // namespace strata
