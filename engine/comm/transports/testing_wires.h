// Helpers for tests of wires: ranks that are threads of the test.
#pragma once

#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/comm/transports/wires.h"

namespace strata::testing {

/// A board in memory, for ranks that are threads of this test.
class Texts {
 public:
  Board board() {
    return {.set = [this](const std::string& key, const std::string& text) { Set(key, text); },
            .get = [this](const std::string& key) { return Get(key); }};
  }
  void Set(const std::string& key, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_[key] = text;
    changed_.notify_all();
  }
  std::string Get(const std::string& key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return texts_.contains(key); });
    return texts_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> texts_;
};

inline RankPlace Place(int rank, int world_size) {
  RankPlace place;
  place.rank = rank;
  place.world_size = place.local_world_size = world_size;
  place.secret = "the secret of this test";
  return place;
}

inline const Patience kNoPatience(std::chrono::nanoseconds(0));

inline std::unique_ptr<Wires> Connect(Texts& texts, int rank, int world_size,
                                      const std::set<WireKey>& wanted, double timeout = 60) {
  return Wires::Connect(Place(rank, world_size), wanted, texts.board(), kNoPatience, timeout);
}

using WiresOfRanks = std::vector<std::unique_ptr<Wires>>;

/// Connects all ranks; wanted[r] are the wires that rank r wants.
inline WiresOfRanks ConnectAll(const std::vector<std::set<WireKey>>& wanted) {
  Texts texts;
  const int count = static_cast<int>(wanted.size());
  std::vector<std::future<std::unique_ptr<Wires>>> coming;
  for (int rank = 0; rank < count; ++rank) {
    coming.push_back(std::async(std::launch::async, [&texts, &wanted, rank, count] {
      return Connect(texts, rank, count, wanted[rank]);
    }));
  }
  WiresOfRanks wires;
  for (auto& one : coming) wires.push_back(one.get());
  return wires;
}

}  // namespace strata::testing
