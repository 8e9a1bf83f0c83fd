// FlightRing: the last thousand actions and collectives of a rank, in memory that its launcher
// sees, too. So it can be read of a rank that is stopped, stuck or dead. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/value.h"

namespace strata {

/// An action or a collective. Times are nanoseconds of the machine's clock.
struct FlightEvent {
  std::string what;
  int stage = -1;      ///< -1: the whole rank's
  int peer = -1;       ///< the rank that it waited for last; -1: none, or unknown
  int64_t step = -1;   ///< -1: before the first
  int64_t bytes = -1;  ///< of a collective; -1: an action
  int64_t start = 0;
  int64_t waited = 0;  ///< of the time since then, for others
  int64_t end = 0;     ///< 0: it goes on
};

/// Plain atomics, no pointers: another process maps the same memory. Writing costs some 20 stores
/// and two readings of the clock an action.
class FlightRing {
 public:
  static constexpr size_t kEvents = 1000;  ///< so many are given at most
  static constexpr size_t kStackBytes = 8192;

  /// Nanoseconds of the machine's clock: the same for all processes of one machine.
  static int64_t Now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  // For the rank's thread. Start [Wait Go]* End for every action; one that fails has no End.
  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }
  void Start(std::string_view what, int stage);
  void Wait(int peer);
  void Go();
  void End();
  /// Nanoseconds that all actions waited so far, of waits that are over.
  int64_t waited() const { return all_waited_; }

  // For any thread of the rank's process.
  /// A collective has ended.
  void Add(std::string_view what, int64_t bytes, int64_t start, int64_t end);
  /// Where the rank's thread is, in lines.
  void set_stack(std::string_view stack);
  /// The watchdog spoke.
  void set_hung() { hung_.store(true, std::memory_order_release); }

  // For anybody, at any time.
  /// Oldest first; without what was overwritten while it was read.
  std::vector<FlightEvent> Events() const;
  std::string Stack() const;
  bool hung() const { return hung_.load(std::memory_order_acquire); }

 private:
  using Word = std::atomic<int64_t>;
  using Name = std::array<int64_t, 4>;  // of at most 32 bytes
  struct Slot {
    std::atomic<uint64_t> number = 0;  // of its event, from 1; 0 while it is written
    std::array<Word, 4> what = {};
    Word stage = 0, peer = 0, step = 0, bytes = 0, start = 0, waited = 0, end = 0;
  };

  /// The number of a new event.
  uint64_t Begin(std::string_view what, int stage, int64_t bytes, int64_t start, int64_t end);
  /// Null where the action's slot belongs to a later one by now.
  Slot* Open();

  std::array<Slot, 1024> slots_ = {};
  std::atomic<uint64_t> count_ = 0;
  std::atomic<int64_t> step_ = -1;
  std::atomic<bool> hung_ = false;
  std::atomic<uint32_t> stack_size_ = 0;
  std::array<std::atomic<char>, kStackBytes> stack_ = {};
  // Of the rank's thread alone.
  uint64_t open_ = 0;                // the number of the action that runs
  const char* open_what_ = nullptr;  // its name
  int64_t waits_since_ = 0;          // 0: it does not wait
  int64_t all_waited_ = 0;
};

/// The rings of the ranks of one process.
class FlightMemory {
 public:
  FlightMemory() = default;
  /// Memory without a name, which forked processes and those that get its descriptor share.
  static FlightMemory Make(int ranks);
  /// The same memory in another process. The descriptor is needed no longer then.
  static FlightMemory Map(const Fd& fd);
  ~FlightMemory();
  FlightMemory(FlightMemory&& other) noexcept { *this = std::move(other); }
  FlightMemory& operator=(FlightMemory&& other) noexcept;

  std::span<FlightRing> rings() const { return rings_; }
  const Fd& fd() const { return fd_; }

 private:
  FlightMemory(Fd fd, std::span<FlightRing> rings) : fd_(std::move(fd)), rings_(rings) {}

  Fd fd_;
  std::span<FlightRing> rings_;
};

/// What a ring holds, as a rank's entry of a flight record: {rank, events, stack, hung}; times in
/// seconds of the machine's clock.
Value FlightOf(const FlightRing& ring, int rank);

/// The record of a job, for a file: `ranks` as FlightOf() gives them, `now` by the same clock.
Value FlightRecord(const std::string& why, double now, const Value& ranks);
/// Whether `text` begins as such a file does.
bool IsFlightRecord(std::string_view text);
/// The last `last` events of each rank in words. Throws ConfigError for what is no record.
std::string FlightText(const Value& record, int last);

}  // namespace strata
