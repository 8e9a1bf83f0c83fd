#include "launcher/commands/rank_places.h"

#include <utility>

#include "engine/comm/meeting/secret.h"
#include "launcher/process/pipes.h"

namespace strata::launcher {

RankRange RankPlaces::RangeOf(int processes) const {
  return {.first = placement_.first.rank,
          .count = placement_.is_part() ? placement_.ranks : processes,
          .world_size = processes};
}

void RankPlaces::OpenMeeting(const RankRange& range) {
  range_ = range;
  if (placement_.is_part() || range.world_size == 1) return;
  store_ = MakeMemoryFile();
  secret_ = RandomBytes(kSecretBytes);
}

void RankPlaces::OnForked() { Fd(std::exchange(placement_.first.store_fd, -1)).Close(); }

RankPlace RankPlaces::Of(int rank) const {
  RankPlace place = placement_.first;
  place.local_rank += rank - range_.first;
  place.rank = rank;
  if (placement_.is_part()) return place;
  place.world_size = place.local_world_size = range_.world_size;
  if (store_.is_open()) place.store_file = PathOfDescriptor(store_.get());
  place.secret = secret_;
  return place;
}

}  // namespace strata::launcher
