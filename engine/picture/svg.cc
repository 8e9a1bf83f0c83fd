#include "engine/picture/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "engine/base/text.h"

namespace strata::picture {
namespace {

using schedule::Action;
using schedule::Interval;
using schedule::Kind;

constexpr double kWidth = 1200, kLeft = 64, kRight = 12;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kMemoryHeight = 120;
constexpr double kClose = 0.5;      // in pixels; smaller distances cannot be seen
constexpr double kCharacter = 6.4;  // the width of a character in pixels
constexpr size_t kClasses = 6;
// The CSS classes of boxes and of their keys. The colours are the terminal's
// (engine/schedule/gantt.h).
constexpr std::array<const char*, kClasses> kClassNames = {"f", "r", "b", "w", "v", "s"};
constexpr std::array<const char*, kClasses> kClassKeys = {
    "F forward",         "R forward again",      "B, I backward",
    "W weight gradient", "forward and backward", "messages, reductions, step"};

constexpr std::string_view kStyle = R"(<style>
text{font:11px system-ui,'DejaVu Sans',sans-serif;fill:#1d2430}
.h{font-size:15px;font-weight:600}.k{fill:#5d6878}.n{fill:#fff}.d{fill:#1d2430}.e{text-anchor:end}.m{text-anchor:middle}
.p{fill:#fff}.i{fill:#f1f3f6}.l{stroke:#5d6878;fill:none}.c{stroke:#d6336c;stroke-width:2}
.t{fill:none;stroke-width:1.2}rect{fill:currentColor}.o{fill:none;stroke:currentColor}
.f{color:#3b6fd4}.r{color:#8eaef0}.b{color:#2f9461}.w{color:#dba520}.v{color:#17a2b8}.s{color:#a846b3}
@media(prefers-color-scheme:dark){text{fill:#e6eaf0}.k{fill:#9aa6b6}.p{fill:#14181f}.i{fill:#1f2630}
.l{stroke:#9aa6b6}.c{stroke:#ff6b9a}
.f{color:#5b8bec}.r{color:#3c5688}.b{color:#3fae78}.w{color:#e0b13a}.v{color:#2bb7cd}
.s{color:#c06bca}}
</style>
)";

size_t ClassOf(Kind kind) {
  switch (kind) {
    case Kind::kForward:
      return 0;
    case Kind::kRecompute:
      return 1;
    case Kind::kInputGrad:
    case Kind::kBackward:
      return 2;
    case Kind::kWeightGrad:
      return 3;
    case Kind::kOverlap:
      return 4;
    default:
      return 5;
  }
}

/// A length, given in tenths of pixels: 123 -> "12.3", 7 -> ".7".
std::string Tenths(int64_t tenths) {
  std::string text = tenths < 0 ? "-" : "";
  const int64_t pixels = std::abs(tenths) / 10, rest = std::abs(tenths) % 10;
  if (pixels > 0 || rest == 0) text += std::to_string(pixels);
  if (rest != 0) text += "." + std::to_string(rest);
  return text;
}

/// A length in pixels, rounded to a tenth.
std::string Px(double value) { return Tenths(std::llround(value * 10)); }

std::string Escape(const std::string& text, size_t limit = 120) {
  std::string escaped;
  for (const char c : CleanText(text, limit)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string Time(const Timeline& timeline, double time) {
  return timeline.in_seconds && time > 0 ? FormatSeconds(time) : Str(time);
}

bool HasSeveralStages(const Timeline& timeline) {
  return std::ranges::any_of(timeline.lanes, [](const Lane& lane) {
    return std::ranges::any_of(lane.actions, [&](const Action& action) {
      return action.kind != Kind::kIdle && action.stage != lane.actions.front().stage;
    });
  });
}

/// The distance of an axis' marks: 1, 2 or 5 times a power of ten, so that there are about ten.
double StepOfAxis(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 10)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= span / 10) return factor * power;
  }
  return 10 * power;
}

/// The boxes of one class, as thick strokes.
class Boxes {
 public:
  /// Adds a box from `begin` to `end` (pixels); `y` is the middle of its row.
  void Add(double begin, double end, double y) {
    // Both ends are whole tenths of pixels, so that neighbours neither overlap nor leave a gap.
    const int64_t from = std::llround(begin * 10), to = std::llround(end * 10);
    const int64_t width = std::max<int64_t>(1, to - from - (to - from > 40 ? 7 : 0));
    if (path_.empty() || y != y_) {
      path_ += "M" + Tenths(from) + " " + Px(y);
    } else {
      path_ += "m" + Tenths(from - end_) + " 0";
    }
    path_ += "h" + Tenths(width);
    y_ = y;
    end_ = from + width;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  double y_ = 0;
  int64_t end_ = 0;
};

class Drawing {
 public:
  Drawing(const Picture& picture, const Detail& detail) : picture_(picture), detail_(detail) {}

  std::string Write() {
    Title();
    const double longest = LongestSpan();
    for (const Timeline& timeline : picture_.timelines) {
      DrawTimeline(timeline, longest > 0 ? longest : timeline.span());
    }
    for (const Timeline& timeline : picture_.timelines) {
      DrawMemory(timeline, longest > 0 ? longest : timeline.span());
    }
    DrawCuts();
    const std::string size = Str(Px(kWidth), " ", Px(y_ + 8));
    return Str(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 )", size,
               R"(" role="img"><title>)", Escape(picture_.title), "</title>\n", kStyle,
               R"(<rect class="p" width="100%" height="100%"/>)", "\n", text_, "</svg>\n");
  }

 private:
  // Shapes

  void Text(double x, double y, const char* style, const std::string& escaped) {
    text_ += Str("<text x=\"", Px(x), "\" y=\"", Px(y), "\" class=\"", style, "\">", escaped,
                 "</text>\n");
  }
  void Box(double x, double y, double width, double height, const char* style) {
    text_ += Str("<rect x=\"", Px(x), "\" y=\"", Px(y), "\" width=\"", Px(width), "\" height=\"",
                 Px(height), "\" class=\"", style, "\"/>\n");
  }
  void Line(const std::string& path, const std::string& style, const std::string& more = "") {
    if (!path.empty()) text_ += Str("<path class=\"", style, "\" d=\"", path, "\"", more, "/>\n");
  }

  void Heading(const std::string& text) {
    y_ += 30;
    Text(kLeft, y_, "h", Escape(text));
    y_ += 8;
  }

  void Title() {
    y_ = 22;
    Text(kLeft, y_, "h", Escape(picture_.title));
    std::vector<std::string> lines = picture_.facts;
    if (!detail_.Note().empty()) lines.push_back(detail_.Note());
    for (const std::string& line : lines) Text(kLeft, y_ += 16, "k", Escape(line, 200));
    DrawKeys();
  }

  void DrawKeys() {
    std::array<bool, kClasses> used = {};
    for (const Timeline& timeline : picture_.timelines) {
      for (const Lane& lane : timeline.lanes) {
        for (size_t i = 0; i < lane.actions.size(); ++i) {
          if (lane.times[i].end > lane.times[i].start) used[ClassOf(lane.actions[i].kind)] = true;
        }
      }
    }
    double x = kLeft;
    y_ += 24;
    for (size_t c = 0; c < kClasses; ++c) {
      if (!used[c]) continue;
      Box(x, y_ - 10, 12, 12, kClassNames[c]);
      Text(x + 17, y_, "k", kClassKeys[c]);
      x += 44 + kCharacter * static_cast<double>(std::string_view(kClassKeys[c]).size());
    }
  }

  /// The longest span of all timelines, if they can share an axis; else 0.
  double LongestSpan() const {
    double longest = 0;
    for (const Timeline& timeline : picture_.timelines) {
      if (timeline.in_seconds != picture_.timelines[0].in_seconds) return 0;
      longest = std::max(longest, timeline.span());
    }
    return longest;
  }

  // Timelines

  void DrawTimeline(const Timeline& timeline, double span) {
    const std::vector<const Lane*> lanes = Shown(timeline);
    Heading(Str("Timeline, ", timeline.name, ": ", Time(timeline, timeline.span())));
    const double count = static_cast<double>(std::max<size_t>(1, lanes.size()));
    const double pitch = std::clamp(std::floor(640 / count), 3.0, 20.0);
    const double height = pitch * count;
    Box(kLeft, y_, kPlot, height, "i");
    const bool with_stages = HasSeveralStages(timeline);
    std::array<Boxes, kClasses> boxes;
    std::vector<std::string> names;
    double y = y_;
    double last_name = y_ - 100;
    for (const Lane* lane : lanes) {
      AddLane(*lane, y, pitch, span, with_stages, boxes, names);
      if (y - last_name >= 11) {
        Text(kLeft - 6, y + pitch / 2 + 4, "k e", Str("rank ", lane->rank));
        last_name = y;
      }
      y += pitch;
    }
    const std::string thick = Str(" stroke-width=\"", Px(HeightOf(pitch)), "\"");
    for (size_t c = 0; c < kClasses; ++c) {
      Line(boxes[c].path(), Str("o ", kClassNames[c]), thick);
    }
    for (const std::string& name : names) text_ += name;
    y_ += height;
    Axis(timeline, span);
  }

  std::vector<const Lane*> Shown(const Timeline& timeline) const {
    std::vector<const Lane*> lanes;
    for (size_t i = 0; i < timeline.lanes.size(); ++i) {
      if (detail_.ShowsLane(i, timeline.lanes.size())) lanes.push_back(&timeline.lanes[i]);
    }
    return lanes;
  }

  static double HeightOf(double pitch) { return pitch > 5 ? pitch - 1 : pitch; }

  void AddLane(const Lane& lane, double y, double pitch, double span, bool with_stages,
               std::array<Boxes, kClasses>& boxes, std::vector<std::string>& names) {
    const double height = HeightOf(pitch);
    for (size_t i = 0; i < lane.actions.size();) {
      const size_t kind = ClassOf(lane.actions[i].kind);
      const double begin = X(lane.times[i].start, span);
      double end = X(lane.times[i].end, span);
      size_t next = i + 1;
      while (next < lane.actions.size() && end - begin < kClose &&
             ClassOf(lane.actions[next].kind) == kind &&
             X(lane.times[next].start, span) - end < kClose) {
        end = X(lane.times[next++].end, span);
      }
      if (lane.times[next - 1].end > lane.times[i].start && detail_.Shows(lane.actions[i])) {
        boxes[kind].Add(begin, end, y + height / 2);
        if (next == i + 1) AddName(lane.actions[i], begin, end, y, height, with_stages, names);
      }
      i = next;
    }
  }

  static void AddName(const Action& action, double begin, double end, double y, double height,
                      bool with_stages, std::vector<std::string>& names) {
    const std::string name = with_stages ? ToText(action) : ToShortText(action);
    const double needs = kCharacter * static_cast<double>(name.size()) + 3;
    if (height < 11 || end - begin < needs) return;
    const bool is_light = action.kind == Kind::kWeightGrad || action.kind == Kind::kRecompute;
    names.push_back(Str("<text x=\"", Px((begin + end) / 2), "\" y=\"", Px(y + height / 2 + 4),
                        "\" class=\"", is_light ? "d" : "n", " m\">", name, "</text>\n"));
  }

  static double X(double time, double span) {
    return span > 0 ? kLeft + kPlot * time / span : kLeft;
  }

  void Axis(const Timeline& timeline, double span) {
    if (span <= 0) return;
    const double step = StepOfAxis(span);
    std::string marks;
    for (int k = 0; k * step <= span * (1 + 1e-9); ++k) {
      const double x = X(k * step, span);
      marks += Str("M", Px(x), " ", Px(y_), "v4");
      Text(x, y_ + 15, "k m", Time(timeline, k * step));
    }
    Line(marks, "l");
    y_ += 20;
  }

  // Memory

  void DrawMemory(const Timeline& timeline, double span) {
    const std::vector<const Lane*> lanes = Shown(timeline);
    int64_t peak = 0;
    for (const Lane* lane : lanes) {
      if (lane->memory.empty()) continue;
      peak = std::max({peak, lane->memory_before, *std::ranges::max_element(lane->memory)});
    }
    if (peak == 0) return;
    const auto most = static_cast<double>(peak);
    Heading(Str("Memory, ", timeline.name, ": at most ", FormatBytes(most), " on a rank"));
    Box(kLeft, y_, kPlot, kMemoryHeight, "i");
    for (size_t i = 0; i < lanes.size(); ++i) {
      const size_t hue = 300 * i / std::max<size_t>(1, lanes.size() - 1);
      // The lines of many lanes overlap, so fewer points are enough.
      const double close = lanes.size() > 16 ? 4 * kClose : kClose;
      Line(MemoryPath(*lanes[i], most, span, close), "t",
           Str(" stroke=\"hsl(", hue, ",55%,50%)\""));
    }
    Text(kLeft - 6, y_ + 10, "k e", FormatBytes(most));
    Text(kLeft - 6, y_ + kMemoryHeight, "k e", "0");
    y_ += kMemoryHeight;
    Axis(timeline, span);
  }

  /// The path of a lane's memory over time, in steps. Of values closer together than `close` pixels
  /// only the smallest and the largest are drawn.
  std::string MemoryPath(const Lane& lane, double most, double span, double close) const {
    if (lane.memory.empty()) return "";
    const auto y_of = [&](int64_t bytes) {
      return y_ + kMemoryHeight - (kMemoryHeight - 6) * static_cast<double>(bytes) / most;
    };
    int64_t level = lane.memory_before;
    std::string path = Str("M", Px(kLeft), " ", Px(y_of(level)));
    for (size_t i = 0; i < lane.memory.size();) {
      const double x = X(lane.times[i].end, span);
      int64_t low = lane.memory[i], high = lane.memory[i];
      for (; i < lane.memory.size() && X(lane.times[i].end, span) - x < close; ++i) {
        low = std::min(low, lane.memory[i]);
        high = std::max(high, lane.memory[i]);
      }
      const int64_t after = lane.memory[i - 1];
      if (low == level && high == level) continue;
      path += "H" + Px(x);
      if (high > std::max(level, after)) path += "V" + Px(y_of(high));
      if (low < std::min(level, after)) path += "V" + Px(y_of(low));
      path += "V" + Px(y_of(after));
      level = after;
    }
    return Str(path, "H", Px(kLeft + kPlot));
  }

  // Cuts

  void DrawCuts() {
    const auto& stages = picture_.stages;
    if (stages.empty() || stages.size() > kMostParts) return;
    double sum = 0, most = 0;
    for (const Stage& stage : stages) {
      sum += stage.cost;
      most = std::max(most, stage.cost);
    }
    const double mean = sum / static_cast<double>(stages.size());
    const std::string balance =
        mean > 0 ? Str(": the slowest has ", FormatDouble(std::round(100 * most / mean) / 100),
                       " times the mean cost")
                 : "";
    Heading(Str("Stages", balance));
    const double pitch =
        std::clamp(std::floor(480 / static_cast<double>(stages.size())), 3.0, 18.0);
    for (size_t s = 0; s < stages.size(); ++s) {
      const Stage& stage = stages[s];
      const double width = most > 0 ? 500 * stage.cost / most : 0;
      Box(kLeft, y_, std::max(0.5, width), pitch > 5 ? pitch - 2 : pitch, s % 2 ? "b" : "f");
      if (pitch >= 11) {
        Text(kLeft - 6, y_ + pitch / 2 + 3, "k e", Str("stage ", s));
        Text(kLeft + width + 8, y_ + pitch / 2 + 3, "k", StageText(stage));
      }
      y_ += pitch;
    }
  }

  std::string StageText(const Stage& stage) const {
    const std::string cost = picture_.cost_unit == "s" ? FormatSeconds(stage.cost)
                                                       : Str(FormatCount(std::llround(stage.cost)),
                                                             " ", Escape(picture_.cost_unit));
    const char* layers = stage.layers.find(" to ") == stage.layers.npos ? "layer " : "layers ";
    return Str(layers, stage.layers, ", ", Plural(stage.parameters, "parameter"), ", ", cost,
               ", takes ", FormatBytes(static_cast<double>(stage.input_bytes)), ", gives ",
               FormatBytes(static_cast<double>(stage.output_bytes)));
  }

  const Picture& picture_;
  const Detail& detail_;
  std::string text_;
  double y_ = 0;
};

}  // namespace

std::string ToSvg(const Picture& picture) {
  return WriteWithin(kMaxSvgBytes, picture,
                     [&](const Detail& detail) { return Drawing(picture, detail).Write(); });
}

}  // namespace strata::picture
