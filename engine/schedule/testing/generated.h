// Named schedules of random sizes for tests.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/generators/generators.h"

namespace strata::schedule::testing {

/// True if the schedule `name` has two stages per rank on a V.
inline bool IsV(const std::string& name) {
  return name == "zbv" || name == "v_half" || name == "v_min" || name == "dualpipev";
}

/// Sizes that the schedule can have: two stages per rank for a V, enough micro-batches.
inline Sizes SizesFor(const std::string& name, int ranks, int micro_batches) {
  const int least = name == "dualpipev" ? 2 * ranks : 1;
  return {.ranks = ranks,
          .stages_per_rank = IsV(name) ? 2 : 1,
          .micro_batches = std::max(micro_batches, least)};
}

/// Random sizes that the schedule can have. To be called inside rc::check.
inline Sizes AnySizes(const std::string& name) {
  const bool any_stages =
      name == "interleaved_1f1b" || name == "interleaved_zb" || name == "looped_bfs";
  Sizes sizes = SizesFor(name, *rc::gen::inRange(1, 9), 1);
  if (any_stages) sizes.stages_per_rank = *rc::gen::inRange(1, 5);
  sizes.micro_batches += *rc::gen::inRange(0, 30);
  return sizes;
}

/// The names of all schedules except auto, whose search takes too long for small tests.
inline std::vector<std::string> Names() {
  std::vector<std::string> names = GeneratorNames();
  std::erase(names, "auto");
  return names;
}

/// A random schedule with random sizes that it can have.
inline std::pair<std::string, Sizes> AnyGenerated() {
  const std::string name = *rc::gen::elementOf(Names());
  return {name, AnySizes(name)};
}

}  // namespace strata::schedule::testing
