#include "engine/plan/plan_text.h"

#include <algorithm>

#include "engine/base/text.h"

namespace strata {
namespace {

std::string LayerTable(const Plan& plan) {
  TextTable table({"layer", "type", "parameters", "output", "stage"});
  for (const LayerPlan& layer : plan.layers) {
    const std::string frozen =
        layer.frozen > 0 ? Str(" (", FormatCount(layer.frozen), " frozen)") : "";
    table.Add({layer.path, layer.type, FormatCount(layer.parameters) + frozen,
               FormatShapes(layer.output), std::to_string(layer.stage)});
  }
  return table.Render();
}

/// All ranks that hold the stage, of every replica.
std::string RanksOf(const Plan& plan, const StagePlan& stage) {
  const RankList ranks = plan.topology.AxisList(kPipeAxis, stage.rank);
  if (ranks.size() == 1) return std::to_string(ranks[0]);
  return Str(ranks.front(), " to ", ranks.back());
}

std::string StageTable(const Plan& plan) {
  const char* ranks = plan.topology.world_size() > plan.topology.Size(kPipeAxis) ? "ranks" : "rank";
  TextTable table({"stage", ranks, "layers", "parameters", "share", "receives"});
  for (const StagePlan& stage : plan.stages) {
    const double share = plan.parameters == 0 ? 0
                                              : 100.0 * static_cast<double>(stage.parameters) /
                                                    static_cast<double>(plan.parameters);
    table.Add({std::to_string(stage.stage), RanksOf(plan, stage),
               stage.end - stage.begin == 1 ? std::to_string(stage.begin)
                                            : Str(stage.begin, " to ", stage.end - 1),
               FormatCount(stage.parameters), Str(static_cast<int>(share + 0.5), "%"),
               FormatShapes(stage.input)});
  }
  return table.Render();
}

Value ShapesValue(const TensorSpecs& specs) {
  Value::List list;
  for (const TensorSpec& spec : specs) {
    list.push_back(
        Value::MakeMap({{"shape", Value::IntList(spec.shape)}, {"dtype", DTypeName(spec.dtype)}}));
  }
  return list;
}

Value LayerValue(const LayerPlan& layer) {
  return Value::MakeMap({{"index", layer.index},
                         {"type", layer.type},
                         {"path", layer.path},
                         {"parameters", layer.parameters},
                         {"frozen", layer.frozen},
                         {"output", ShapesValue(layer.output)},
                         {"stage", layer.stage},
                         {"recompute", layer.segment >= 0},
                         {"join", layer.is_joined}});
}

Value StageValue(const StagePlan& stage) {
  return Value::MakeMap({{"stage", stage.stage},
                         {"rank", stage.rank},
                         {"begin", stage.begin},
                         {"end", stage.end},
                         {"parameters", stage.parameters},
                         {"joined", stage.joined},
                         {"input", ShapesValue(stage.input)},
                         {"output", ShapesValue(stage.output)}});
}

/// "; 7 layers run forward again before their backward", or nothing.
std::string Recomputed(const Plan& plan) {
  const auto count = std::count_if(plan.layers.begin(), plan.layers.end(),
                                   [](const LayerPlan& layer) { return layer.segment >= 0; });
  if (count == 0) return "";
  return Str("; ", Plural(count, "layer"), count == 1 ? " runs" : " run",
             " forward again before the backward");
}

/// A line for each stage that joins weight gradients.
std::string Joined(const Plan& plan) {
  std::string text;
  for (const StagePlan& stage : plan.stages) {
    if (stage.joined == 1) continue;
    std::vector<std::string> layers;
    for (int i = stage.begin; i < stage.end; ++i) {
      const LayerPlan& layer = plan.layers[i];
      if (layer.is_joined) layers.push_back(Str(layer.path, " ", layer.type));
    }
    text += Str("joined weight gradients of stage ", stage.stage, ", up to ", stage.joined,
                " micro-batches at a time: ", Join(layers, ", "), "\n");
  }
  return text;
}

}  // namespace

std::string FormatShapes(const TensorSpecs& specs) {
  std::vector<std::string> pieces;
  for (const TensorSpec& spec : specs) {
    const std::string dtype = spec.dtype == DType::kFloat32 ? "" : Str(DTypeName(spec.dtype), " ");
    pieces.push_back(dtype + FormatShape(spec.shape));
  }
  return Join(pieces, " ");
}

std::string PlanText(const Plan& plan) { return Str(LayerTable(plan), "\n", StagesText(plan)); }

std::string StagesText(const Plan& plan) {
  return Str(StageTable(plan), "\n", FormatCount(plan.parameters), " parameters; cuts ",
             Join(plan.bounds, ", "), "; ", Plural(plan.batch.micro_batches, "micro-batch"), " of ",
             plan.batch.micro_batch_size, Recomputed(plan), "\n", Joined(plan));
}

const char* PipeRank(const Plan& plan) {
  return plan.topology.world_size() > plan.pipe() ? "pipe rank " : "rank ";
}

std::string MovesText(const Plan& before, const Plan& after) {
  const std::vector<int> from = before.stage_ranks(), to = after.stage_ranks();
  const std::string rank = PipeRank(before);
  std::vector<std::string> moves;
  const auto layers = static_cast<int>(before.layers.size());
  for (int begin = 0, end = 0; begin < layers; begin = end) {
    const auto move_of = [&](int i) {
      return std::pair(from[before.layers[i].stage], to[after.layers[i].stage]);
    };
    const auto move = move_of(begin);
    for (end = begin + 1; end < layers && move_of(end) == move;) ++end;
    if (move.first == move.second) continue;
    const std::string which =
        end == begin + 1 ? Str("layer ", begin) : Str("layers ", begin, "..", end - 1);
    moves.push_back(Str(which, " from ", rank, move.first, " to ", rank, move.second));
  }
  return Join(moves, ", ");
}

Value PlanValue(const Plan& plan) {
  Value::List layers, stages, bounds;
  for (const LayerPlan& layer : plan.layers) layers.push_back(LayerValue(layer));
  for (const StagePlan& stage : plan.stages) stages.push_back(StageValue(stage));
  for (const int bound : plan.bounds) bounds.push_back(bound);
  return Value::MakeMap(
      {{"parameters", plan.parameters},
       {"bounds", bounds},
       {"layers", layers},
       {"stages", stages},
       {"parallel", Value::MakeMap({{"pipe", plan.topology.Size("pipe")},
                                    {"data", plan.topology.Size("data")},
                                    {"model", plan.topology.Size("model")}})},
       {"batch", Value::MakeMap({{"size", plan.batch.size},
                                 {"micro_batches", plan.batch.micro_batches},
                                 {"micro_batch_size", plan.batch.micro_batch_size}})}});
}

}  // namespace strata
