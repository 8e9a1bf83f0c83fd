// Picture: what a drawing of a plan shows, as plain data: when the actions of every rank run, how
// much memory they hold, where the list of layers is cut. Written as a page (page.h) or as an SVG
// drawing (svg.h). Torch-free.
//
// Names come from users' scripts and may hold anything; the writers escape them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/schedule/action.h"
#include "engine/schedule/simulator.h"

namespace strata::picture {

/// The largest file that is written.
inline constexpr size_t kMaxBytes = 1'000'000;

struct Layer {
  std::string path;
  std::string type;
  std::string output;  ///< shapes, for people: "(8, 64, 55, 55)"
  int64_t parameters = 0;
  int stage = 0;
};

struct Stage {
  int rank = 0;  ///< on the pipe axis
  int begin = 0;
  int end = 0;  ///< one past its last layer
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
  /// Bytes that the rank holds after each action; empty: not known.
  std::vector<int64_t> memory = {};
  int64_t memory_before = 0;  ///< the first one
};

/// When the actions of one step run.
struct Timeline {
  std::string name;         ///< "predicted"; "measured, step 12"
  bool in_seconds = false;  ///< else in the units of costs that nobody measured
  std::vector<Lane> lanes;

  double span() const;  ///< when the last action ends
};

struct Picture {
  std::string title;
  std::vector<std::string> facts;  ///< a line each
  std::vector<Layer> layers;
  std::vector<Stage> stages;
  std::string cost_unit = "s";      ///< of Stage::cost: "s", "FLOP", "parameters"
  std::vector<Timeline> timelines;  ///< one below the other
};

/// What is left out of a picture that would be too large.
struct Detail {
  bool communication = true;  ///< sends and receives are drawn
  size_t every = 1;           ///< of the ranks every so many-th is, and the last one

  bool Shows(const schedule::Action& action) const {
    return communication || !schedule::IsCommunication(action.kind);
  }
  bool ShowsLane(size_t lane, size_t lanes) const { return lane % every == 0 || lane + 1 == lanes; }
  /// What the reader should know of it; "" = everything is there.
  std::string Note() const;
};

/// The most detailed of `write(detail)` that has at most kMaxBytes. Throws ConfigError where not
/// even the first and the last rank fit.
std::string WriteWithin(const Picture& picture,
                        const std::function<std::string(const Detail&)>& write);

/// Text that any document may hold: U+FFFD stands for bytes that are not UTF-8 and for control
/// characters; what is longer than `limit` bytes is cut off.
std::string CleanText(const std::string& text, size_t limit = 120);

/// More layers, or stages, are not drawn one by one.
inline constexpr size_t kMostParts = 1000;

}  // namespace strata::picture
