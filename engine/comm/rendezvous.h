// Rendezvous: where the ranks of a job meet before they can talk.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "engine/comm/place.h"

namespace strata {

/// While one lives, c10d keeps its warnings of lost connections, which are back-traces, to itself:
/// our errors say the same in words.
class QuietStore {
 public:
  QuietStore();
  ~QuietStore();
  QuietStore(const QuietStore&) = delete;
  QuietStore& operator=(const QuietStore&) = delete;
};

/// Opens the store of `place` and waits there until all ranks have come, at most `timeout` seconds.
/// The keys of the result are this job's own. Rank 0 serves the store as long as it holds it.
///
/// Throws ConfigError at once when a rank comes twice (both processes are named), or ranks differ
/// on their number; who waits already hears it too, or finds the store gone with rank 0. Throws
/// PeerError that names the ranks which have not come in time, or the store that cannot be used.
c10::intrusive_ptr<c10d::Store> MeetAtStore(const RankPlace& place, double timeout);

}  // namespace strata
