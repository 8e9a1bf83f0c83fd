// LaneCode: a lane's actions as a short text for a page, about a character for each predicted
// action and five for each measured one. The page's script decodes it (page.html, decodeLane); so
// does DecodeLane() here, for tests.
//
// A number is written with 5 bits to a character, lowest first, in base64url's alphabet; 32 is
// added to all but the last. A signed number n is written as 2n or -2n-1. An action is
//
//   16 * place + flags [kind stage [backward_kind backward_stage]]
//   [1: micro_batch [backward_micro_batch]] [2: gap] [4: duration] [8: memory]
//
// `place` is where its kind and stage stand in the list of those that the lane had so far; at the
// list's end comes a new one, which is defined at once. A flag says that something is written
// because it is not what was to be expected after the last action of this kind and stage: the next
// micro-batch (the first: 0), the same duration (0), the same change of memory (0); and no gap to
// the action before. Micro-batches and durations are written as signed differences to that, the
// gap and the change of memory as they are. Stages count from 1 here, since -1 is none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/picture/picture.h"

namespace strata::picture {

/// What times and bytes are multiples of.
struct Grain {
  double tick = 1;
  int64_t bytes = 1;
};

/// A power of two of which the timeline's span has about a million, so that simple costs stay
/// exact; and for measured bytes a 65,536th of the most.
Grain GrainOf(const Timeline& timeline);

/// REQUIRES: `lane.times` ascending and without overlap.
std::string EncodeLane(const Lane& lane, const Grain& grain, const Detail& detail = {});

/// The lane that was written, with times and bytes in whole grains. `memory_before`: none for a
/// lane without memory. Throws ConfigError for what EncodeLane() does not write.
Lane DecodeLane(std::string_view code, const Grain& grain, std::optional<int64_t> memory_before);

}  // namespace strata::picture
