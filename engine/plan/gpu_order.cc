#include "engine/plan/gpu_order.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/base/text.h"
#include "engine/spec/layers/parts.h"

namespace strata {
namespace {

bool Always(const Value&) { return true; }

/// Windows that share elements; a pool's stride is its window where none is given.
bool Overlaps(const Value& args) { return args["stride"] != args["kernel_size"]; }

/// Into one window of everything each element goes once.
bool HasWindows(const Value& args) {
  return std::ranges::any_of(args["output_size"].as_list(),
                             [](const Value& size) { return size != Value(1); });
}

bool CopiesBorders(const Value& args) {
  const std::string& mode = args["padding_mode"].as_string();
  return mode == "reflect" || mode == "replicate";
}

bool TakesMaxima(const Value& args) { return args["mode"] == Value("max"); }

bool Interpolates(const Value& args) { return !args["mode"].as_string().starts_with("nearest"); }

struct Unordered {
  std::string_view type;
  bool (*holds)(const Value& args);
};

constexpr std::array kUnordered = {
    Unordered{"AdaptiveAvgPool3d", HasWindows}, Unordered{"AdaptiveMaxPool2d", HasWindows},
    Unordered{"AdaptiveMaxPool3d", HasWindows}, Unordered{"AvgPool3d", Overlaps},
    Unordered{"Conv2d", CopiesBorders},         Unordered{"Conv3d", CopiesBorders},
    Unordered{"EmbeddingBag", TakesMaxima},     Unordered{"MaxPool3d", Overlaps},
    Unordered{"ReflectionPad2d", Always},       Unordered{"ReflectionPad3d", Always},
    Unordered{"ReplicationPad2d", Always},      Unordered{"ReplicationPad3d", Always},
    Unordered{"Upsample", Interpolates},
};

/// The first such type in the layer; "" = none.
std::string_view UnorderedIn(const LayerSpec& layer) {
  const auto found = std::ranges::find_if(kUnordered, [&](const Unordered& one) {
    return !layer.scripted && one.type == layer.type && one.holds(layer.args);
  });
  if (found != kUnordered.end()) return found->type;
  for (const LayerSpec& child : layer.children) {
    if (const std::string_view type = UnorderedIn(child); !type.empty()) return type;
  }
  return "";
}

}  // namespace

std::string AddedInAnyOrder(const std::vector<LayerSpec>& layers) {
  std::vector<std::string> found;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string_view type = UnorderedIn(layers[i]);
    if (type.empty()) continue;
    found.push_back(Str("layer ", LayerNumber(layers, static_cast<int>(i)), " ", type));
  }
  return Join(found, ", ");
}

}  // namespace strata
