#include "engine/picture/page.h"

#include "engine/base/check.h"
#include "engine/base/text.h"
#include "engine/picture/lane_code.h"

namespace strata::picture {
namespace {

constexpr std::string_view kTemplate =
#include "engine/picture/page.inc"
    ;
constexpr std::string_view kPlace = "@DATA@";

Value LayerValue(const Layer& layer) {
  return Value::List{CleanText(layer.path), CleanText(layer.type), CleanText(layer.output),
                     layer.parameters, layer.stage};
}

Value StageValue(const Stage& stage) {
  return Value::List{stage.rank, stage.layers,      stage.parameters,
                     stage.cost, stage.input_bytes, stage.output_bytes};
}

template <class Part, class ToValue>
Value PartsValue(const std::vector<Part>& parts, const ToValue& to_value) {
  Value::List list;
  if (parts.size() > kMostParts) return list;
  for (const Part& part : parts) list.push_back(to_value(part));
  return list;
}

Value KindNames() {
  Value::List names;
  for (int kind = 0; kind <= static_cast<int>(schedule::Kind::kReshard); ++kind) {
    names.emplace_back(schedule::KindName(static_cast<schedule::Kind>(kind)));
  }
  return names;
}

Value TimelineValue(const Timeline& timeline, const Detail& detail) {
  const Grain grain = GrainOf(timeline);
  Value::List lanes;
  for (size_t i = 0; i < timeline.lanes.size(); ++i) {
    if (!detail.ShowsLane(i, timeline.lanes.size())) continue;
    const Lane& lane = timeline.lanes[i];
    lanes.push_back(Value::List{lane.rank, EncodeLane(lane, grain, detail),
                                lane.memory.empty() ? Value() : Value(lane.memory_before)});
  }
  return Value::MakeMap({{"name", CleanText(timeline.name)},
                         {"in_seconds", timeline.in_seconds},
                         {"tick", grain.tick},
                         {"span", timeline.span()},
                         {"bytes", grain.bytes},
                         {"lane_count", static_cast<int64_t>(timeline.lanes.size())},
                         {"lanes", lanes}});
}

/// JSON that is safe inside a <script> element: no text in it ends the script or begins a comment.
std::string ScriptJson(const Value& value) {
  std::string escaped;
  for (const char c : value.ToJson()) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

Value PageData(const Picture& picture, const Detail& detail) {
  Value::List facts, timelines;
  for (const std::string& fact : picture.facts) facts.emplace_back(CleanText(fact, 500));
  for (const Timeline& timeline : picture.timelines) {
    timelines.push_back(TimelineValue(timeline, detail));
  }
  return Value::MakeMap({{"title", CleanText(picture.title)},
                         {"facts", facts},
                         {"note", detail.Note()},
                         {"kinds", KindNames()},
                         {"cost_unit", CleanText(picture.cost_unit)},
                         {"layer_count", static_cast<int64_t>(picture.layers.size())},
                         {"layers", PartsValue(picture.layers, LayerValue)},
                         {"stage_count", static_cast<int64_t>(picture.stages.size())},
                         {"stages", PartsValue(picture.stages, StageValue)},
                         {"timelines", timelines}});
}

std::string ToHtml(const Picture& picture) {
  const size_t place = kTemplate.find(kPlace);
  STRATA_CHECK(place != std::string_view::npos) << "page.html has no " << kPlace;
  return WriteWithin(picture, [&](const Detail& detail) {
    return Str(kTemplate.substr(0, place), ScriptJson(PageData(picture, detail)),
               kTemplate.substr(place + kPlace.size()));
  });
}

}  // namespace strata::picture
