#include "engine/picture/page.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/text.h"

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

/// The unit in which times are written, as whole numbers: a power of two, about a millionth of the
/// span. So simple costs stay exact.
double TickOf(const Timeline& timeline) {
  return timeline.span() > 0 ? std::exp2(std::ceil(std::log2(timeline.span())) - 20) : 1;
}

/// REQUIRES: the lane's times ascend and do not overlap.
Value LaneValue(const Lane& lane, double tick, const Detail& detail) {
  STRATA_CHECK(lane.actions.size() == lane.times.size());
  STRATA_CHECK(lane.memory.empty() || lane.memory.size() == lane.actions.size());
  Value::List shapes, shape, micro, other, gap, took, memory;
  std::vector<schedule::Action> known;  // the actions of `shapes`, without micro-batches
  int64_t now = 0, held = lane.memory_before;
  for (size_t i = 0; i < lane.actions.size(); ++i) {
    schedule::Action action = lane.actions[i];
    if (action.kind == schedule::Kind::kIdle || !detail.Shows(action)) continue;
    micro.push_back(action.micro_batch);
    other.push_back(action.backward_micro_batch);
    action.micro_batch = action.backward_micro_batch = -1;
    const auto place = std::ranges::find(known, action) - known.begin();
    if (place == std::ssize(known)) {
      known.push_back(action);
      shapes.push_back(Value::List{static_cast<int>(action.kind), action.stage,
                                   static_cast<int>(action.backward_kind), action.backward_stage});
    }
    shape.push_back(place);
    const int64_t start = std::llround(lane.times[i].start / tick);
    const int64_t end = std::llround(lane.times[i].end / tick);
    gap.push_back(start - now);
    took.push_back(end - start);
    now = end;
    if (lane.memory.empty()) continue;
    memory.push_back(lane.memory[i] - held);
    held = lane.memory[i];
  }
  return Value::MakeMap({{"rank", lane.rank},
                         {"before", lane.memory.empty() ? Value() : Value(lane.memory_before)},
                         {"shapes", shapes},
                         {"shape", shape},
                         {"micro", micro},
                         {"other", other},
                         {"gap", gap},
                         {"took", took},
                         {"memory", memory}});
}

Value TimelineValue(const Timeline& timeline, const Detail& detail) {
  const double tick = TickOf(timeline);
  Value::List lanes;
  for (size_t i = 0; i < timeline.lanes.size(); ++i) {
    if (!detail.ShowsLane(i, timeline.lanes.size())) continue;
    lanes.push_back(LaneValue(timeline.lanes[i], tick, detail));
  }
  return Value::MakeMap({{"name", CleanText(timeline.name)},
                         {"in_seconds", timeline.in_seconds},
                         {"tick", tick},
                         {"span", timeline.span()},
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
  return WriteWithin(kMaxPageBytes, picture, [&](const Detail& detail) {
    return Str(kTemplate.substr(0, place), ScriptJson(PageData(picture, detail)),
               kTemplate.substr(place + kPlace.size()));
  });
}

}  // namespace strata::picture
