#include "engine/forecast/summary.h"

#include <array>
#include <cmath>

#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"
#include "engine/plan/plan_text.h"

namespace strata {
namespace {

/// The sums over all layers. For activations it is the sum over all stages.
LayerSummary Total(const std::vector<LayerSummary>& layers) {
  LayerSummary total;
  for (const LayerSummary& layer : layers) {
    total.frozen += layer.frozen;
    total.flops += layer.flops;
    total.training_flops += layer.training_flops;
    total.activation_bytes += layer.activation_bytes;
    total.weight_bytes += layer.weight_bytes;
  }
  return total;
}

std::string Parameters(int64_t parameters, int64_t frozen) {
  return FormatCount(parameters) + (frozen > 0 ? Str(" (", FormatCount(frozen), " frozen)") : "");
}

/// What the weights in few bits take (adapt.base); "" if there are none.
std::string PackedText(const ModelCosts& costs) {
  int64_t elements = 0, bytes = 0;
  for (const LayerCost& layer : costs.layers) {
    elements += layer.packed;
    bytes += layer.packed_bytes;
  }
  if (elements == 0) return "";
  return Str("\n", FormatCount(elements), " of the frozen ones are held in ", ShowBytes(bytes),
             Printf(", %.2f bits each, and unpacked for each product",
                    8.0 * static_cast<double>(bytes) / static_cast<double>(elements)));
}

}  // namespace

std::vector<LayerSummary> Summarize(const Plan& plan, const ModelCosts& costs) {
  const std::vector<int> segments = plan.segments();
  std::vector<LayerSummary> layers;
  const std::vector<LayerPlan> shown = ShownLayers(plan);
  for (size_t i = 0; i < shown.size(); ++i) {
    const LayerPlan& planned = shown[i];
    const int index = planned.index;
    const int next =
        i + 1 < shown.size() ? shown[i + 1].index : static_cast<int>(plan.layers.size());
    LayerSummary& layer = layers.emplace_back(LayerSummary{planned});
    for (int part = index; part < next; ++part) {
      const LayerCost& cost = costs.layers[part];
      layer.flops += cost.forward.flops;
      layer.weight_bytes += cost.weight_bytes;
      layer.is_guess |= cost.is_guess;
    }
    // The difference between the stage with and without the layer, as the layer's share depends on
    // its neighbours.
    const int begin = plan.stages[planned.stage].begin;
    const StageCost with = SumLayers(costs, begin, next, segments);
    const StageCost without =
        index > begin ? SumLayers(costs, begin, index, segments) : StageCost();
    layer.activation_bytes = with.kept_bytes - without.kept_bytes;
    layer.training_flops = with.forward.flops + with.input_grad.flops + with.weight_grad.flops -
                           without.forward.flops - without.input_grad.flops -
                           without.weight_grad.flops;
  }
  return layers;
}

std::string SummaryText(const Plan& plan, const ModelCosts& costs) {
  TextTable table(
      {"layer", "type", "output", "parameters", "forward", "activations", "weights", "stage"});
  const std::vector<LayerSummary> layers = Summarize(plan, costs);
  bool guesses = false;
  for (const LayerSummary& layer : layers) {
    guesses = guesses || layer.is_guess;
    table.Add({layer.path, layer.type + (layer.is_guess ? " *" : ""), FormatShapes(layer.output),
               Parameters(layer.parameters, layer.frozen), FormatFlops(layer.flops),
               ShowBytes(layer.activation_bytes), ShowBytes(layer.weight_bytes), Str(layer.stage)});
  }
  const LayerSummary total = Total(layers);
  table.Add({"all", "", "", Parameters(plan.parameters, total.frozen), FormatFlops(total.flops),
             ShowBytes(total.activation_bytes), ShowBytes(total.weight_bytes), "-"});
  std::string text = table.Render();
  text += Str("for one micro-batch of ", plan.batch.micro_batch_size, "; forward and backward ",
              FormatFlops(total.training_flops), ", a step of ",
              Plural(plan.batch.micro_batches, "micro-batch"), " ",
              FormatFlops(total.training_flops * static_cast<double>(plan.batch.micro_batches)));
  if (plan.topology.Size("model") > 1) text += "; on one rank of the model axis";
  if (total.frozen > 0) {
    const int64_t all = plan.parameters + total.frozen;
    text += Str(
        "\ntrains ", FormatCount(plan.parameters), " of ", FormatCount(all), " parameters, ",
        Printf("%.3g %%", 100.0 * static_cast<double>(plan.parameters) / static_cast<double>(all)));
  }
  text += PackedText(costs);
  if (!plan.class_dim_text.empty()) text += "\n" + plan.class_dim_text;
  if (costs.chunk_rows > 0) {
    text += Str("\n", layers.back().path, " and the loss run ", costs.chunk_rows,
                " rows at a time, so that the whole output never exists; the forward does the work "
                "of their backward");
  }
  if (guesses) text += "\n* written in Lua: its work is a guess";
  return text + "\n";
}

Value SummaryValue(const Plan& plan, const ModelCosts& costs) {
  const std::vector<LayerSummary> layers = Summarize(plan, costs);
  const CutNames names = CutNamesOf(plan);
  Value::List list;
  for (const LayerSummary& layer : layers) {
    list.push_back(Value::MakeMap({{"index", std::stoi(names.LayerAt(layer.index))},
                                   {"path", layer.path},
                                   {"type", layer.type},
                                   {"output", FormatShapes(layer.output)},
                                   {"parameters", layer.parameters},
                                   {"frozen", layer.frozen},
                                   {"flops", layer.flops},
                                   {"training_flops", layer.training_flops},
                                   {"activation_bytes", layer.activation_bytes},
                                   {"weight_bytes", layer.weight_bytes},
                                   {"stage", layer.stage}}));
  }
  const LayerSummary total = Total(layers);
  return Value::MakeMap({{"layers", list},
                         {"parameters", plan.parameters},
                         {"frozen", total.frozen},
                         {"flops", total.flops},
                         {"training_flops", total.training_flops},
                         {"activation_bytes", total.activation_bytes},
                         {"weight_bytes", total.weight_bytes}});
}

std::string FormatFlops(double flops) {
  if (flops == 0) return "0";
  constexpr std::array kUnits = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  size_t unit = 0;
  for (; flops >= 999.5 && unit + 1 < kUnits.size(); ++unit) flops /= 1000;
  const int digits = flops >= 99.95 ? 0 : flops >= 9.995 ? 1 : 2;
  return Printf("%.*f %s", unit == 0 ? 0 : digits, flops, kUnits[unit]);
}

}  // namespace strata
