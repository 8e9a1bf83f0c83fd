// The machine of the shadow devices: streams, events, memory, and who may do what when.
//
// An accelerator that this computer lacks. Its tensors lie in the host's memory and kernels run
// when they are launched; but what runs on two streams without an event between them is reported,
// as are memory that is freed while a stream may use it, and a wait that can never end. Only what
// needs another rank (a Meeting: a message, a collective) stays in its stream's queue until all
// have come; the host waits where it launches a kernel behind it, which a real host would not do.
//
// Who waits for whom is known: a host for a stream, for other hosts, or for one that has ended.
// What can never end is told at once, not after a time.
//
// Happens-before is kept as vector clocks: every stream and every host thread has one, an event
// carries one, a meeting gives all its streams the same one. (PyTorch's torch.cuda._sanitizer does
// so for a real GPU.)
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace strata::shadow {

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr int kDevices = 12;

/// A wait that can never end. The text has a line for each that waits for the next one: a cycle, or
/// a way to a host that has ended.
class CycleError : public WorldError {
 public:
  using WorldError::WorldError;
};

/// How far each stream had come, by number of stream.
using Clock = std::vector<uint64_t>;

/// Memory that a kernel or a message reads or writes.
struct Use {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
  bool writes = false;
  std::string what;  ///< "Float (2, 3)"
};

/// What was asked of the devices. A synchronisation is a wait of the host for a device.
struct Counts {
  int64_t launches = 0, synchronisations = 0, transfers = 0;
  int64_t meetings = 0;                          ///< of the launches: messages and collectives
  std::map<std::string, int64_t> synchronising;  ///< how often, by operation
  std::map<std::string, int64_t> kernels;        ///< launches by kernel
};

/// What orders streams, keeps memory, and keeps the host from waiting for copies.
enum class Ordering { kRecord, kWait, kRecordStream, kPin };

/// A point in a stream's queue.
struct Point {
  bool reached = false;
  int stream = -1;
  Clock clock;
};

/// Something that begins when all its ends are at the head of their streams.
struct Meeting {
  struct End {
    int host = -1;    ///< who has to launch it
    int stream = -1;  ///< -1 = not launched yet
    bool reached = false;
    std::vector<Use> uses;
  };
  std::string name;
  std::vector<End> ends;
  std::function<void()> happen;
  bool over = false;
};

/// Where hosts wait for each other, beside the devices. Each has a place.
struct HostMeeting {
  explicit HostMeeting(int size) : hosts(size, -1), calls(size) {}
  std::vector<int> hosts;  ///< by place; -1 = not known yet
  std::vector<int> calls;  ///< how often it has come
};

/// All shadow devices of this process. Functions may be called from any thread.
class Machine {
 public:
  using Lock = std::unique_lock<std::recursive_mutex>;
  static Machine& Get();
  /// Nothing happens on the devices while the caller has it.
  Lock Hold() const { return Lock(mutex_); }

  /// For tests of the tests: the calls for which `drops(kind, host)` is true are left out. An event
  /// that is not recorded counts as reached.
  void Sabotage(std::function<bool(Ordering, const std::string& host)> drops);
  /// Forgets reports, counts, cycles and sabotage. Nothing may be under way.
  void Reset();
  std::vector<std::string> reports() const;
  void ResetCounts();
  /// Of all threads, by what they were at (NamedRange), such as "1F3"; "" = nothing.
  std::map<std::string, Counts> counts() const;
  /// Bytes allocated on a device now, and the most since ResetPeak().
  int64_t bytes(int device) const;
  int64_t peak_bytes(int device) const;
  void ResetPeak(int device);

  // Streams, each with a number. The devices' default streams have the numbers 0 to kDevices - 1.
  int NewStream(int device);
  int NumberOf(const c10::Stream& stream) const {
    return static_cast<int>(stream.id()) + Default(stream);
  }
  c10::Stream StreamOf(int number) const;

  // Events.
  std::shared_ptr<Point> Record(int stream);
  void Wait(int stream, const std::shared_ptr<Point>& point);
  bool HasReached(const Point& point);
  /// The host waits; it counts as a synchronisation by `why`.
  void Synchronise(const std::shared_ptr<Point>& point, const std::string& why);
  void Synchronise(int stream, const std::string& why);

  // Kernels and copies. The host waits until the stream has nothing before it.
  void Launch(int stream, const std::string& kernel, const std::vector<Use>& uses);
  /// More that the stream's last kernel uses: memory that it allocated itself.
  void AlsoUses(int stream, const std::string& kernel, const std::vector<Use>& uses);
  void CountTransfer();
  /// Whether pinned memory is taken for such.
  bool KnowsPinned() { return !Drops(Ordering::kPin); }
  /// The next kernel of this name fails as CUDA's do. "" = none.
  void FailNext(const std::string& kernel);
  /// `copy` is what an asynchronous copy writes to the host's memory. It is done when the host has
  /// waited for it, as late as it may be.
  void CopyLater(int stream, std::function<void()> copy);

  /// Puts an end of each meeting into the stream, to begin together.
  void Launch(int stream, const std::vector<std::pair<std::shared_ptr<Meeting>, int>>& ends);
  /// Ends a meeting that did not happen; its streams go on.
  void Cancel(Meeting& meeting);

  // Hosts: threads that launch.
  int ThisHost();
  void NameThisHost(const std::string& name);
  std::string NameOfHost(int host) const { return hosts_[host].name; }
  /// The calling host asks again and again whether it may go on, and until GoesOn() waits for calls
  /// of the hosts that `waits_for()` gives. Throws CycleError.
  using Hosts = std::function<std::vector<int>()>;
  void Polls(const std::string& what, const Hosts& waits_for);
  void GoesOn();
  /// The calling host, which has this place, waits until all have come as often. Throws CycleError.
  void Meet(HostMeeting& meeting, int place, const std::string& what);
  /// The calling host will launch nothing more.
  void EndThisHost();
  /// From now on all waits throw CycleError(`why`).
  void Stop(const std::string& why);

  // Memory.
  /// On the device of the stream, whose later work may use it without an event.
  void Allocated(const void* memory, size_t bytes, int stream);
  /// Calls `release` once nothing under way uses the memory.
  void Freed(const void* memory, std::function<void()> release);
  /// The stream may use the memory until it is done with what it has got when that is freed.
  void RecordStream(const void* memory, int stream);
  /// Whether the bytes lie in one allocation of the device.
  bool IsOn(int device, const void* memory, size_t bytes) const;

  /// How a stream is called in reports: "stream 3 of shadow:0".
  std::string NameOf(int stream) const;

 private:
  struct Access {
    Use use;
    int stream;
    uint64_t time;
    std::string by;  // "mm in 1F3"
  };
  struct Block {
    size_t bytes;
    int device;
    int stream;  // it was allocated on
    int owners = 1;
    std::set<int> recorded;
    std::vector<Access> accesses;
  };
  struct Item {  // of a stream's queue
    std::shared_ptr<Point> mark, wait;
    std::vector<std::pair<std::shared_ptr<Meeting>, int>> ends;
    std::string by;
  };
  struct Stream {
    int device;
    Clock clock;
    std::deque<Item> queue;
    std::vector<std::pair<uint64_t, std::function<void()>>> copies;  // to the host, by time
  };
  struct Host {
    std::string name;
    Clock clock;
    std::string waits;  // what it does; "" = it does not wait
    int stream = -1;    // it waits for the end of this queue
    Hosts for_hosts;    // or for calls of these
    int asked = 0;      // how often in a row for a point that was not reached
    bool is_over = false;
  };
  struct Grave {
    const std::byte* begin;
    size_t bytes;
    std::function<void()> release;
    std::vector<Access> accesses;
  };

  static int Default(const c10::Stream& stream) {
    return stream.id() == 0 ? stream.device_index() : 0;
  }
  bool Drops(Ordering kind);
  void Tick(int stream);
  void Count(const std::string& synchronises, int64_t launches, int64_t transfers);
  std::vector<Access>* AccessesOf(const Use& use);
  void Check(const Use& use, int stream, const std::string& by);
  void Report(const std::string& text);
  bool Precedes(uint64_t time, int stream, const Clock& clock) const;
  bool IsPending(const std::byte* begin, size_t bytes, int stream) const;
  Block* FindBlock(const void* memory);
  void Progress();
  bool Advance(int stream);
  void Happen(Meeting& meeting);
  void Bury();
  void DoCopies(const Clock& clock);
  void Act(int host);
  void WaitHere(Lock& lock, const std::string& what, int stream, const Hosts& hosts,
                const std::function<bool()>& ready);
  std::string FindCycle(int host) const;

  mutable std::recursive_mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Stream> streams_;
  std::deque<Host> hosts_;
  std::map<const std::byte*, Block> blocks_;
  std::vector<Grave> graves_;
  std::vector<std::string> reports_;
  std::set<std::string> reported_;
  std::map<std::string, Counts> counts_;
  int64_t bytes_[kDevices] = {}, peak_[kDevices] = {};
  std::string cycle_, failing_;
  std::function<bool(Ordering, const std::string& host)> drops_;
  Machine();
};

}  // namespace strata::shadow
