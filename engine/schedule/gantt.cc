#include "engine/schedule/gantt.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/text.h"

namespace strata::schedule {
namespace {

constexpr int kLargestWidth = 160;

// The fill character and the colour of a kind.
struct Style {
  char fill;
  const char* color;
};

Style StyleOf(Kind kind) {
  switch (kind) {
    case Kind::kForward:
    case Kind::kRecompute:
      return {'-', "\x1b[34m"};
    case Kind::kInputGrad:
    case Kind::kBackward:
      return {'=', "\x1b[32m"};
    case Kind::kWeightGrad:
      return {'~', "\x1b[33m"};
    case Kind::kOverlap:
      return {'#', "\x1b[36m"};
    default:
      return {'*', "\x1b[35m"};
  }
}

/// A number as text: whole numbers with all digits, others with six digits.
std::string ForEyes(double number) {
  return std::round(number) == number ? FormatDouble(number) : Str(number);
}

class Picture {
 public:
  Picture(const Program& program, const Simulation& simulation, const GanttOptions& options)
      : program_(program),
        simulation_(simulation),
        options_(options),
        with_stages_(program.stages() > program.ranks()),
        scale_(Scale()) {}

  std::string Draw() const {
    const size_t digits = Str(program_.ranks() - 1).size();
    std::string picture;
    for (int r = 0; r < program_.ranks(); ++r) {
      const std::string rank = Str(r);
      picture += Str("rank ", std::string(digits - rank.size(), ' '), rank, " |", Row(r), "|\n");
    }
    return picture + Summary();
  }

 private:
  // The name in an action's box: "F0", "2F0"; "F3B1" for an overlap.
  std::string NameOf(const Action& action) const {
    std::string name;
    for (const Action& part : ActionParts(action)) {
      name += with_stages_ ? ToText(part) : ToShortText(part);
    }
    return name;
  }

  // The number of columns per unit of time.
  double Scale() const {
    if (simulation_.makespan <= 0) return 0;
    double scale = options_.width / simulation_.makespan;
    if (options_.width > 0) return scale;
    for (int r = 0; r < program_.ranks(); ++r) {
      for (size_t i = 0; i < program_.rows[r].size(); ++i) {
        const Interval& time = simulation_.times[r][i];
        if (time.end <= time.start) continue;
        // A name that begins with a stage needs a fill character before the next name.
        const size_t columns = NameOf(program_.rows[r][i]).size() + (with_stages_ ? 1 : 0);
        scale = std::max(scale, columns / (time.end - time.start));
      }
    }
    return std::min(scale, kLargestWidth / simulation_.makespan);
  }

  int ColumnOf(double time) const { return static_cast<int>(std::lround(time * scale_)); }

  std::string Row(int rank) const {
    std::string row;
    int column = 0;
    const auto idle_until = [&](int end) {
      if (end > column) row += std::string(end - column, '.');
      column = std::max(column, end);
    };
    for (size_t i = 0; i < program_.rows[rank].size(); ++i) {
      const int begin = ColumnOf(simulation_.times[rank][i].start);
      const int end = ColumnOf(simulation_.times[rank][i].end);
      if (end == begin) continue;
      idle_until(begin);
      row += Box(program_.rows[rank][i], end - begin);
      column = end;
    }
    idle_until(ColumnOf(simulation_.makespan));
    return row;
  }

  std::string Box(const Action& action, int width) const {
    const Style style = StyleOf(action.kind);
    std::string box = NameOf(action);
    const size_t columns = static_cast<size_t>(width);
    if (box.size() > columns && action.kind == Kind::kForward) {
      box = box.substr(box.size() - columns);
    }
    box.resize(columns, style.fill);
    return options_.color ? Str(style.color, box, "\x1b[0m") : box;
  }

  std::string Summary() const {
    const auto& peaks = simulation_.peak_activations;
    const int peak = peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end());
    const double percent = std::round(simulation_.bubble * 1000) / 10;
    const double makespan = simulation_.makespan;
    return Str("makespan ", options_.in_seconds ? FormatSeconds(makespan) : ForEyes(makespan),
               ", bubble ", FormatDouble(percent), "%, at most ", Plural(peak, "activation"),
               " alive on a rank\n");
  }

  const Program& program_;
  const Simulation& simulation_;
  const GanttOptions& options_;
  const bool with_stages_;
  const double scale_;
};

}  // namespace

std::string Gantt(const Program& program, const Simulation& simulation,
                  const GanttOptions& options) {
  STRATA_CHECK(simulation.times.size() == program.rows.size()) << "of another program";
  return Picture(program, simulation, options).Draw();
}

std::string GanttLegend(const Program& program) {
  constexpr std::pair<Kind, const char*> kWords[] = {{Kind::kForward, "F forward"},
                                                     {Kind::kBackward, "B backward"},
                                                     {Kind::kInputGrad, "I input gradient"},
                                                     {Kind::kWeightGrad, "W weight gradient"},
                                                     {Kind::kRecompute, "R recompute"}};
  std::set<Kind> kinds;
  for (const auto& row : program.rows) {
    for (const Action& action : row) {
      for (const Action& part : ActionParts(action)) kinds.insert(part.kind);
    }
  }
  std::vector<std::string> words;
  for (const auto& [kind, word] : kWords) {
    if (kinds.contains(kind)) words.emplace_back(word);
  }
  const bool with_stages = program.stages() > program.ranks();
  return Str(Join(words, ", "),
             with_stages ? "; the first number is the stage, the second the micro-batch\n"
                         : "; the number is the micro-batch\n");
}

}  // namespace strata::schedule
