// Picture: the content of a plan's drawing, as plain data. It holds when the actions of every rank
// run, how much memory each rank holds, and where the list of layers is cut. It is written as a
// page (page.h) or as an SVG drawing (svg.h). Torch-free.
//
// Names come from users' scripts and may hold any bytes; the writers escape them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/schedule/action.h"
#include "engine/schedule/simulator.h"

namespace strata::picture {

/// The largest sizes of written files.
inline constexpr size_t kMaxSvgBytes = 1'000'000, kMaxPageBytes = 4'000'000;

/// A layer of the flattened list.
struct Layer {
  std::string path;
  std::string type;
  std::string output;  ///< shapes, shown to the user: "(8, 64, 55, 55)"
  int64_t parameters = 0;
  int stage = 0;
};

struct Stage {
  int rank = 0;        ///< on the pipe axis
  std::string layers;  ///< shown to the user: "0 to 4.0"
  int64_t parameters = 0;
  double cost = 0;           ///< forward and backward of one micro-batch
  int64_t input_bytes = 0;   ///< of one micro-batch
  int64_t output_bytes = 0;  ///< of one micro-batch
};

/// One rank of a timeline.
struct Lane {
  int rank = 0;
  std::vector<schedule::Action> actions = {};
  std::vector<schedule::Interval> times = {};  ///< of each action; ascending, without overlap
  /// Bytes that the rank holds after each action; empty = unknown.
  std::vector<int64_t> memory = {};
  int64_t memory_before = 0;  ///< bytes that the rank holds before the first action
};

/// When the actions of one step run.
struct Timeline {
  std::string name;         ///< "predicted"; "measured, step 12"
  bool in_seconds = false;  ///< false: in the units of costs that were not measured
  std::vector<Lane> lanes;

  double span() const;  ///< when the last action ends
};

/// The whole content of a drawing.
struct Picture {
  std::string title;
  std::vector<std::string> facts;  ///< one line each
  std::vector<Layer> layers;
  std::vector<Stage> stages;
  std::string cost_unit = "s";      ///< of Stage::cost: "s", "FLOP", "parameters"
  std::vector<Timeline> timelines;  ///< one below the other
};

/// How much of a picture is drawn, so that a large one fits into its file.
struct Detail {
  bool communication = true;  ///< whether sends and receives are drawn
  size_t every = 1;           ///< lanes 0, every, 2*every, ... and the last one are drawn

  bool Shows(const schedule::Action& action) const {
    return communication || !schedule::IsCommunication(action.kind);
  }
  bool ShowsLane(size_t lane, size_t lanes) const { return lane % every == 0 || lane + 1 == lanes; }
  /// A sentence for the user that says what is left out; "" = nothing.
  std::string Note() const;
};

/// The result of write(detail) with the most detail that has at most `most` bytes. Throws
/// ConfigError when even the first and the last rank alone do not fit.
std::string WriteWithin(size_t most, const Picture& picture,
                        const std::function<std::string(const Detail&)>& write);

/// The text in a form that any document may hold. U+FFFD replaces control characters and bytes that
/// are not UTF-8. A text of more than `limit` bytes is cut off.
std::string CleanText(const std::string& text, size_t limit = 120);

/// The most layers, and the most stages, that are drawn one by one.
inline constexpr size_t kMostParts = 1000;

}  // namespace strata::picture
