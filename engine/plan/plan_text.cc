#include "engine/plan/plan_text.h"

#include <algorithm>

#include "engine/base/text.h"

namespace strata {
namespace {

std::string LayerTable(const Plan& plan) {
  TextTable table({"layer", "type", "parameters", "output", "stage"});
  for (const LayerPlan& layer : ShownLayers(plan)) {
    const std::string frozen =
        layer.frozen > 0 ? Str(" (", FormatCount(layer.frozen), " frozen)") : "";
    table.Add({layer.path, layer.type, FormatCount(layer.parameters) + frozen,
               FormatShapes(layer.output), std::to_string(layer.stage)});
  }
  return table.Render();
}

/// The ranks that hold the stage, of all replicas.
std::string RanksOf(const Plan& plan, const StagePlan& stage) {
  const RankList ranks = plan.topology.AxisList(kPipeAxis, stage.rank);
  if (ranks.size() == 1) return std::to_string(ranks[0]);
  return Str(ranks.front(), " to ", ranks.back());
}

/// The speed of a rank with this slowness, in three digits: "0.5".
std::string FormatSpeed(double slowness) { return Printf("%.3g", 1 / slowness); }

std::string StageTable(const Plan& plan) {
  const char* ranks = plan.topology.world_size() > plan.topology.Size(kPipeAxis) ? "ranks" : "rank";
  std::vector<std::string> header = {"stage", ranks, "layers", "parameters", "share", "receives"};
  if (!plan.slowness.empty()) header.emplace_back("speed");
  if (!plan.memories.empty()) header.emplace_back("memory");
  TextTable table(header);
  const CutNames names = CutNamesOf(plan);
  for (const StagePlan& stage : plan.stages) {
    const double share = plan.parameters == 0 ? 0
                                              : 100.0 * static_cast<double>(stage.parameters) /
                                                    static_cast<double>(plan.parameters);
    std::vector<std::string> row = {std::to_string(stage.stage),
                                    RanksOf(plan, stage),
                                    names.Range(stage.begin, stage.end),
                                    FormatCount(stage.parameters),
                                    Str(static_cast<int>(share + 0.5), "%"),
                                    FormatShapes(stage.input)};
    if (!plan.slowness.empty()) row.push_back(FormatSpeed(plan.SlownessOf(stage.rank)));
    if (!plan.memories.empty()) {
      row.push_back(FormatBytes(static_cast<double>(plan.MemoryOf(stage.rank))));
    }
    table.Add(std::move(row));
  }
  return table.Render();
}

Value LayerValue(const LayerPlan& layer, const CutNames& names) {
  return Value::MakeMap({{"index", std::stoi(names.LayerAt(layer.index))},
                         {"type", layer.type},
                         {"path", layer.path},
                         {"parameters", layer.parameters},
                         {"frozen", layer.frozen},
                         {"output", ToValue(layer.output)},
                         {"stage", layer.stage},
                         {"recompute", layer.segment >= 0}});
}

Value StageValue(const Plan& plan, const StagePlan& stage, const CutNames& names) {
  const Value ends = names.Numbers({stage.begin, stage.end});
  Value value = Value::MakeMap({{"stage", stage.stage},
                                {"rank", stage.rank},
                                {"begin", ends.as_list()[0]},
                                {"end", ends.as_list()[1]},
                                {"parameters", stage.parameters},
                                {"input", ToValue(stage.input)},
                                {"output", ToValue(stage.output)}});
  if (!plan.slowness.empty()) value.Set("speed", 1 / plan.SlownessOf(stage.rank));
  if (!plan.memories.empty()) value.Set("memory", plan.MemoryOf(stage.rank));
  return value;
}

/// "; 7 layers run forward again before the backward"; "" if none does.
std::string Recomputed(const Plan& plan) {
  const std::vector<LayerPlan> layers = ShownLayers(plan);
  const auto count = std::ranges::count_if(layers, [](const auto& l) { return l.segment >= 0; });
  if (count == 0) return "";
  return Str("; ", Plural(count, "layer"), count == 1 ? " runs" : " run",
             " forward again before the backward");
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
             CutsText(plan, ", "), "; ", Plural(plan.batch.micro_batches, "micro-batch"), " of ",
             plan.batch.micro_batch_size, Recomputed(plan), "\n");
}

const char* PipeRank(const Plan& plan) {
  return plan.topology.world_size() > plan.pipe() ? "pipe rank " : "rank ";
}

std::string WholePath(const LayerPlan& layer) {
  const size_t part = PartNumber(layer.type) < 0 ? 0 : layer.type.size() - layer.type.find('.');
  return layer.path.substr(0, layer.path.size() - part);
}

std::vector<LayerPlan> ShownLayers(const Plan& plan) {
  std::vector<LayerPlan> shown;
  const auto size = plan.layers.size();
  for (size_t begin = 0, end = 0; begin < size; begin = end) {
    const LayerPlan& first = plan.layers[begin];
    for (end = begin + 1; end < size && PartNumber(plan.layers[end].type) > 0;) ++end;
    const bool is_cut = plan.layers[end - 1].stage != first.stage;
    if (is_cut || end == begin + 1) {
      shown.insert(shown.end(), plan.layers.begin() + begin, plan.layers.begin() + end);
      continue;
    }
    LayerPlan& whole = shown.emplace_back(first);
    whole.path = WholePath(first);
    whole.type = first.type.substr(0, first.type.find('.'));
    whole.output = plan.layers[end - 1].output;
    for (size_t i = begin + 1; i < end; ++i) {
      const LayerPlan& part = plan.layers[i];
      whole.parameters += part.parameters;
      whole.frozen += part.frozen;
      whole.segment = std::max(whole.segment, part.segment);
    }
  }
  return shown;
}

CutNames CutNamesOf(const Plan& plan) { return CutNames::Of(plan.layers); }

std::string CutsText(const Plan& plan, const char* separator) {
  return CutNamesOf(plan).Text(plan.bounds, separator);
}

std::string MovesText(const Plan& before, const Plan& after) {
  const std::vector<int> from = before.stage_ranks(), to = after.stage_ranks();
  const std::string rank = PipeRank(before);
  const CutNames names = CutNamesOf(before);
  std::vector<std::string> moves;
  const auto layers = static_cast<int>(before.layers.size());
  for (int begin = 0, end = 0; begin < layers; begin = end) {
    const auto move_of = [&](int i) {
      return std::pair(from[before.layers[i].stage], to[after.layers[i].stage]);
    };
    const auto move = move_of(begin);
    for (end = begin + 1; end < layers && move_of(end) == move;) ++end;
    if (move.first == move.second) continue;
    const std::string which = names.Range(begin, end, "..");
    const char* layer = which.find("..") == which.npos ? "layer " : "layers ";
    moves.push_back(Str(layer, which, " from ", rank, move.first, " to ", rank, move.second));
  }
  return Join(moves, ", ");
}

Value PlanValue(const Plan& plan) {
  const CutNames names = CutNamesOf(plan);
  Value::List layers, stages;
  for (const LayerPlan& layer : ShownLayers(plan)) layers.push_back(LayerValue(layer, names));
  for (const StagePlan& stage : plan.stages) stages.push_back(StageValue(plan, stage, names));
  return Value::MakeMap(
      {{"parameters", plan.parameters},
       {"bounds", names.Numbers(plan.bounds)},
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
