// FlightRing: the last thousand actions and collectives of a rank, in memory that its launcher
// shares. So it can be read even if the rank is stopped, stuck or dead. Torch-free.
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

/// An action or a collective. Times are nanoseconds of the machine's monotonic clock.
struct FlightEvent {
  std::string what;
  int stage = -1;      ///< -1 for the whole rank
  int peer = -1;       ///< the rank that it waited for last; -1 if none, or unknown
  int64_t step = -1;   ///< -1 before the first
  int64_t bytes = -1;  ///< of a collective; -1 for an action
  int64_t start = 0;
  int64_t waited = 0;  ///< the part of the time since `start` spent waiting for others
  int64_t end = 0;     ///< 0 while it is in progress
};

/// Consists of plain atomics without pointers, because several processes map the same memory. An
/// action costs about 20 stores and two readings of the clock.
class FlightRing {
 public:
  static constexpr size_t kEvents = 1000;  ///< the most events that Events() returns
  static constexpr size_t kStackBytes = 8192;

  /// The current time: nanoseconds of a clock that all processes of one machine share.
  static int64_t Now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  // For the rank's thread. Order of calls for an action: Start [Wait Go]* End; a failed action has
  // no End.
  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }
  void Start(std::string_view what, int stage);
  void Wait(int peer);
  void Go();
  void End();
  /// Total nanoseconds that actions spent in waits that have ended.
  int64_t waited() const { return all_waited_; }

  // For any thread of the rank's process.
  /// Records a collective that has ended.
  void Add(std::string_view what, int64_t bytes, int64_t start, int64_t end);
  /// Stores the call stack of the rank's thread, as lines.
  void set_stack(std::string_view stack);
  /// Records that the watchdog found a hang.
  void set_hung() { hung_.store(true, std::memory_order_release); }

  // For any thread of any process, at any time.
  /// Returns the events, oldest first, without those that were overwritten while being read.
  std::vector<FlightEvent> Events() const;
  std::string Stack() const;
  bool hung() const { return hung_.load(std::memory_order_acquire); }

 private:
  using Word = std::atomic<int64_t>;
  using Name = std::array<int64_t, 4>;  // a text of at most 32 bytes
  struct Slot {
    // The number of its event, from 1; 0 while the slot is being written.
    std::atomic<uint64_t> number = 0;
    std::array<Word, 4> what = {};
    Word stage = 0, peer = 0, step = 0, bytes = 0, start = 0, waited = 0, end = 0;
  };

  /// Writes a new event and returns its number.
  uint64_t Begin(std::string_view what, int stage, int64_t bytes, int64_t start, int64_t end);
  /// The slot of the current action; null if a later event has overwritten it.
  Slot* Open();

  std::array<Slot, 1024> slots_ = {};
  std::atomic<uint64_t> count_ = 0;
  std::atomic<int64_t> step_ = -1;
  std::atomic<bool> hung_ = false;
  std::atomic<uint32_t> stack_size_ = 0;
  std::array<std::atomic<char>, kStackBytes> stack_ = {};
  // Used by the rank's thread only.
  uint64_t open_ = 0;                // the number of the current action; 0 if none
  const char* open_what_ = nullptr;  // its name
  int64_t waits_since_ = 0;          // 0 while it does not wait
  int64_t all_waited_ = 0;
};

/// The rings of all ranks of one process.
class FlightMemory {
 public:
  FlightMemory() = default;
  /// Allocates anonymous memory, shared with forked processes and with those that get its
  /// descriptor.
  static FlightMemory Make(int ranks);
  /// Maps the same memory in another process. The descriptor is not needed afterwards.
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

/// Converts a ring to a rank's entry of a flight record: {rank, events, stack, hung}; times in
/// seconds of the machine's clock.
Value FlightOf(const FlightRing& ring, int rank);

/// Makes the flight record of a job, for a file. `ranks`: a list of FlightOf() entries; `now`: by
/// the same clock.
Value FlightRecord(const std::string& why, double now, const Value& ranks);
/// True if `text` begins like such a file.
bool IsFlightRecord(std::string_view text);
/// Describes the last `last` events of each rank, for people. Throws ConfigError if `record` is no
/// flight record.
std::string FlightText(const Value& record, int last);

}  // namespace strata
