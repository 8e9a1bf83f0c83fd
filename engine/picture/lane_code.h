// LaneCode: the actions of one lane as a short text for the page. A predicted action takes about
// one character, a measured one about five. The page's script decodes the text (page.html,
// decodeLane).
//
// A number is written in characters of 5 bits each, lowest bits first, in base64url's alphabet. 32
// is added to all characters but the last. A signed number n is written as 2n (n >= 0) or -2n-1.
// An action is written as
//
//   16 * place + flags [kind stage [backward_kind backward_stage]]
//   [1: micro_batch [backward_micro_batch]] [2: gap] [4: duration] [8: memory]
//
// `place` is the index of the action's kind and stage in a list of those that the lane had so far.
// A place at the end of the list adds a new entry, which the brackets then define. Here stages
// count from 1, and 0 is no stage.
//
// The reader expects that an action is like the last one of its kind and stage: the micro-batch
// after that one's (at first 0), the same duration (at first 0), the same change of memory (at
// first 0), and no gap to the action before. A flag means that a value differs and is written: for
// micro-batches and durations the signed difference from the expected value, for the gap and the
// change of memory the value itself.
#pragma once

#include <cstdint>
#include <string>

#include "engine/picture/picture.h"

namespace strata::picture {

/// The units in which times and bytes are written, as whole numbers.
struct Grain {
  double tick = 1;  ///< in the unit of the timeline's times
  int64_t bytes = 1;
};

/// A fitting grain. The tick is a power of two, about a millionth of the timeline's span; so simple
/// costs stay exact. For measured bytes the grain is 1/65,536 of the largest amount.
Grain GrainOf(const Timeline& timeline);

/// The lane's actions as text. REQUIRES: `lane.times` ascend and do not overlap.
std::string EncodeLane(const Lane& lane, const Grain& grain, const Detail& detail = {});

}  // namespace strata::picture
