#include "tests/shadow/machine.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/text.h"
#include "engine/runtime/watch/named_range.h"

namespace strata::shadow {
namespace {

void Join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool Overlap(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

bool Covers(const Use& a, const Use& b) {
  return a.begin <= b.begin && a.begin + a.bytes >= b.begin + b.bytes;
}

/// "mm in 1F3, layer 2 (Linear)".
std::string By(const std::string& what) {
  const std::string place = NamedRange::Place();
  return place.empty() ? what : Str(what, " in ", place);
}

}  // namespace

Machine& Machine::Get() {
  static Machine* machine = new Machine;  // tensors may outlive everything else
  return *machine;
}

Machine::Machine() {
  for (int device = 0; device < kDevices; ++device) streams_.push_back({device, {}, {}, {}});
}

void Machine::Reset() {
  const Lock lock(mutex_);
  for (Stream& stream : streams_) {
    stream.queue.clear();
    stream.copies.clear();
  }
  Bury();
  reports_.clear();
  reported_.clear();
  counts_.clear();
  cycle_.clear();
  failing_.clear();
  drops_ = nullptr;
}

std::vector<std::string> Machine::reports() const {
  const Lock lock(mutex_);
  return reports_;
}

std::map<std::string, Counts> Machine::counts() const {
  const Lock lock(mutex_);
  return counts_;
}

void Machine::ResetCounts() {
  const Lock lock(mutex_);
  counts_.clear();
}

int64_t Machine::bytes(int device) const {
  const Lock lock(mutex_);
  return bytes_[device];
}

int64_t Machine::peak_bytes(int device) const {
  const Lock lock(mutex_);
  return peak_[device];
}

void Machine::ResetPeak(int device) {
  const Lock lock(mutex_);
  peak_[device] = bytes_[device];
}

void Machine::Sabotage(std::function<bool(Ordering, const std::string& host)> drops) {
  const Lock lock(mutex_);
  drops_ = std::move(drops);
}

bool Machine::Drops(Ordering kind) {
  const int host = ThisHost();
  const Lock lock(mutex_);
  return drops_ && drops_(kind, hosts_[host].name);
}

// Streams

int Machine::NewStream(int device) {
  const Lock lock(mutex_);
  streams_.push_back({device, {}, {}, {}});
  return static_cast<int>(streams_.size()) - 1;
}

c10::Stream Machine::StreamOf(int number) const {
  const Lock lock(mutex_);
  const c10::Device device(kType, static_cast<c10::DeviceIndex>(streams_[number].device));
  return c10::Stream(c10::Stream::UNSAFE, device, number < kDevices ? 0 : number);
}

std::string Machine::NameOf(int stream) const {
  return Str(stream < kDevices ? "the default stream" : Str("stream ", stream),
             " of shadow:", streams_[stream].device);
}

/// The stream does its next thing, which comes after all that the launching host waited for.
void Machine::Tick(int stream) {
  Clock& clock = streams_[stream].clock;
  if (clock.size() <= static_cast<size_t>(stream)) clock.resize(stream + 1);
  ++clock[stream];
}

std::shared_ptr<Point> Machine::Record(int stream) {
  const int host = ThisHost();
  const auto point = std::make_shared<Point>();
  point->stream = stream;
  if (Drops(Ordering::kRecord)) {
    point->reached = true;
    return point;
  }
  const Lock lock(mutex_);
  Act(host);
  Join(streams_[stream].clock, hosts_[host].clock);
  streams_[stream].queue.push_back({point, nullptr, {}, By("event")});
  Progress();
  return point;
}

void Machine::Wait(int stream, const std::shared_ptr<Point>& point) {
  if (Drops(Ordering::kWait)) return;
  const Lock lock(mutex_);
  streams_[stream].queue.push_back({nullptr, point, {}, By("wait")});
  Progress();
}

/// A host that asks a second time in a row waits for it.
bool Machine::HasReached(const Point& point) {
  const int number = ThisHost();
  const Lock lock(mutex_);
  Host& host = hosts_[number];
  if (!point.reached && ++host.asked > 1) {
    host.waits = Str("asks in ", By("an event"));
    host.stream = point.stream;
    if (cycle_.empty()) cycle_ = FindCycle(number);
  }
  if (!cycle_.empty()) throw CycleError(cycle_);
  if (!point.reached) return false;
  Act(number);
  DoCopies(point.clock);
  return true;
}

void Machine::Synchronise(const std::shared_ptr<Point>& point, const std::string& why) {
  const int host = ThisHost();
  Lock lock(mutex_);
  Count(why, 0, 0);
  WaitHere(lock, Str("waits in ", By(why)), point->stream, nullptr, [&] { return point->reached; });
  Join(hosts_[host].clock, point->clock);
  DoCopies(point->clock);
}

void Machine::Synchronise(int stream, const std::string& why) { Synchronise(Record(stream), why); }

// Kernels

void Machine::Launch(int stream, const std::string& kernel, const std::vector<Use>& uses) {
  const int host = ThisHost();
  Lock lock(mutex_);
  if (!kernel.empty() && kernel == failing_) {
    failing_.clear();
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 710,
                                Str("device-side assert triggered in ", kernel));
  }
  Count("", 1, 0);
  ++counts_[NamedRange::Outermost()].kernels[kernel];
  WaitHere(lock, Str("launches ", By(kernel)), stream, nullptr,
           [&] { return streams_[stream].queue.empty(); });
  Join(streams_[stream].clock, hosts_[host].clock);
  Tick(stream);
  for (const Use& use : uses) Check(use, stream, By(kernel));
}

void Machine::AlsoUses(int stream, const std::string& kernel, const std::vector<Use>& uses) {
  const Lock lock(mutex_);
  for (const Use& use : uses) Check(use, stream, By(kernel));
}

void Machine::FailNext(const std::string& kernel) {
  const Lock lock(mutex_);
  failing_ = kernel;
}

void Machine::CountTransfer() {
  const Lock lock(mutex_);
  Count("", 0, 1);
}

void Machine::Count(const std::string& synchronises, int64_t launches, int64_t transfers) {
  Counts& counts = counts_[NamedRange::Outermost()];
  counts.launches += launches;
  counts.transfers += transfers;
  if (synchronises.empty()) return;
  ++counts.synchronisations;
  ++counts.synchronising[synchronises];
}

void Machine::CopyLater(int stream, std::function<void()> copy) {
  const Lock lock(mutex_);
  streams_[stream].copies.push_back({streams_[stream].clock[stream], std::move(copy)});
}

void Machine::DoCopies(const Clock& clock) {
  for (size_t s = 0; s < std::min(streams_.size(), clock.size()); ++s) {
    auto& copies = streams_[s].copies;
    while (!copies.empty() && copies.front().first <= clock[s]) {
      copies.front().second();
      copies.erase(copies.begin());
    }
  }
}

bool Machine::Precedes(uint64_t time, int stream, const Clock& clock) const {
  return static_cast<size_t>(stream) < clock.size() && clock[stream] >= time;
}

/// Also of memory that the host has freed, but that waits until a stream has used it.
std::vector<Machine::Access>* Machine::AccessesOf(const Use& use) {
  if (Block* block = FindBlock(use.begin)) return &block->accesses;
  for (Grave& grave : graves_) {
    if (Overlap(use.begin, use.bytes, grave.begin, grave.bytes)) return &grave.accesses;
  }
  return nullptr;
}

/// Compares a use with all that overlap it, and remembers it.
void Machine::Check(const Use& use, int stream, const std::string& by) {
  if (use.bytes == 0) return;
  std::vector<Access>* const accesses = AccessesOf(use);
  if (!accesses) return Report(Str(by, " uses memory that is not allocated: ", use.what));
  const Clock& clock = streams_[stream].clock;
  for (const Access& old : *accesses) {
    if (!use.writes && !old.use.writes) continue;
    if (!Overlap(use.begin, use.bytes, old.use.begin, old.use.bytes)) continue;
    if (old.stream == stream || Precedes(old.time, old.stream, clock)) continue;
    Report(Str(by, " ", use.writes ? "writes " : "reads ", use.what, " on ", NameOf(stream),
               old.use.writes ? " that was written by " : " that may still be read by ", old.by,
               " on ", NameOf(old.stream), " with no event between"));
  }
  // What it covers and comes before it need not be remembered: who is ordered behind this use is
  // behind those too.
  std::erase_if(*accesses, [&](const Access& old) {
    const bool before = old.stream == stream || Precedes(old.time, old.stream, clock);
    const bool same_kind = use.writes || (!old.use.writes && old.stream == stream);
    return before && same_kind && Covers(use, old.use);
  });
  accesses->push_back({use, stream, clock[stream], by});
}

void Machine::Report(const std::string& text) {
  if (reported_.insert(text).second) reports_.push_back(text);
}

// Meetings

void Machine::Launch(int stream,
                     const std::vector<std::pair<std::shared_ptr<Meeting>, int>>& ends) {
  const int host = ThisHost();
  const Lock lock(mutex_);
  if (!cycle_.empty()) throw CycleError(cycle_);
  Act(host);
  Join(streams_[stream].clock, hosts_[host].clock);
  for (const auto& [meeting, end] : ends) {
    Count("", 1, 0);
    ++counts_[NamedRange::Outermost()].meetings;
    STRATA_CHECK(meeting->ends[end].stream < 0) << meeting->name << " was launched twice";
    meeting->ends[end].stream = stream;
  }
  streams_[stream].queue.push_back({nullptr, nullptr, ends, By(ends.front().first->name)});
  Progress();
}

void Machine::Cancel(Meeting& meeting) {
  const Lock lock(mutex_);
  meeting.over = true;
  Progress();
}

void Machine::Happen(Meeting& meeting) {
  Clock all;
  for (const Meeting::End& end : meeting.ends) Tick(end.stream);
  for (const Meeting::End& end : meeting.ends) {
    for (const Use& use : end.uses) {
      Check(use, end.stream, streams_[end.stream].queue.front().by);
    }
    Join(all, streams_[end.stream].clock);
  }
  for (const Meeting::End& end : meeting.ends) Join(streams_[end.stream].clock, all);
  if (meeting.happen) meeting.happen();
  meeting.over = true;
}

/// Whether the head of the stream's queue could be done.
bool Machine::Advance(int number) {
  Stream& stream = streams_[number];
  if (stream.queue.empty()) return false;
  Item& item = stream.queue.front();
  if (item.wait) {
    if (!item.wait->reached) return false;
    Join(stream.clock, item.wait->clock);
  } else if (item.mark) {
    item.mark->reached = true;
    item.mark->clock = stream.clock;
    if (item.mark->clock.size() <= static_cast<size_t>(number)) item.mark->clock.resize(number + 1);
  } else {
    for (const auto& [meeting, end] : item.ends) meeting->ends[end].reached = true;
    for (const auto& [meeting, end] : item.ends) {
      const auto has_come = [](const Meeting::End& e) { return e.reached; };
      if (!meeting->over && std::ranges::all_of(meeting->ends, has_come)) Happen(*meeting);
    }
    const auto is_over = [](const auto& end) { return end.first->over; };
    if (!std::ranges::all_of(item.ends, is_over)) return false;
  }
  stream.queue.pop_front();
  return true;
}

void Machine::Progress() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < static_cast<int>(streams_.size()); ++s) {
      while (Advance(s)) moved = true;
    }
  }
  Bury();
  changed_.notify_all();
}

// Hosts

int Machine::ThisHost() {
  thread_local int number = -1;
  if (number >= 0) return number;
  const Lock lock(mutex_);
  number = static_cast<int>(hosts_.size());
  hosts_.emplace_back().name = Str("thread ", number);
  return number;
}

void Machine::NameThisHost(const std::string& name) {
  const int host = ThisHost();
  const Lock lock(mutex_);
  hosts_[host].name = name;
}

void Machine::Polls(const std::string& what, const Hosts& waits_for) {
  const int number = ThisHost();
  const Lock lock(mutex_);
  Host& host = hosts_[number];
  host.waits = By(what);
  host.stream = -1;
  host.for_hosts = waits_for;
  if (cycle_.empty()) cycle_ = FindCycle(number);
  if (cycle_.empty()) return;
  host.waits.clear();
  changed_.notify_all();
  throw CycleError(cycle_);
}

void Machine::GoesOn() {
  const int number = ThisHost();
  const Lock lock(mutex_);
  Act(number);
}

void Machine::Act(int host) {
  hosts_[host].waits.clear();
  hosts_[host].asked = 0;
}

void Machine::Meet(HostMeeting& meeting, int place, const std::string& what) {
  const int host = ThisHost();
  Lock lock(mutex_);
  meeting.hosts[place] = host;
  const int call = ++meeting.calls[place];
  const auto missing = [&meeting, call] {
    std::vector<int> hosts;
    for (size_t i = 0; i < meeting.hosts.size(); ++i) {
      if (meeting.calls[i] < call && meeting.hosts[i] >= 0) hosts.push_back(meeting.hosts[i]);
    }
    return hosts;
  };
  changed_.notify_all();
  WaitHere(lock, Str("waits in ", By(what)), -1, missing, [&] {
    return std::ranges::all_of(meeting.calls, [&](int calls) { return calls >= call; });
  });
}

void Machine::EndThisHost() {
  const int number = ThisHost();
  const Lock lock(mutex_);
  hosts_[number].is_over = true;
  // Those that wait look again.
  for (int host = 0; host < static_cast<int>(hosts_.size()) && cycle_.empty(); ++host) {
    if (!hosts_[host].waits.empty()) cycle_ = FindCycle(host);
  }
  changed_.notify_all();
}

void Machine::Stop(const std::string& why) {
  const Lock lock(mutex_);
  if (cycle_.empty()) cycle_ = why;
  changed_.notify_all();
}

void Machine::WaitHere(Lock& lock, const std::string& what, int stream, const Hosts& hosts,
                       const std::function<bool()>& ready) {
  const int number = ThisHost();
  Act(number);
  while (cycle_.empty() && !ready()) {
    Host& host = hosts_[number];
    host.waits = what;
    host.stream = stream;
    host.for_hosts = hosts;
    cycle_ = FindCycle(number);
    if (!cycle_.empty()) break;
    changed_.wait(lock);
  }
  hosts_[number].waits.clear();
  if (cycle_.empty()) return;
  changed_.notify_all();
  throw CycleError(cycle_);
}

/// Follows who waits for whom, from a host that waits. Every one waits for all that it leads to, so
/// one way back to where it came from, or to a host that has ended, is enough. "" = there is none.
std::string Machine::FindCycle(int start) const {
  struct Node {
    bool is_host;
    int number;
    auto operator<=>(const Node&) const = default;
  };
  std::vector<std::pair<Node, std::string>> path;
  std::set<Node> done;
  std::string found;
  const std::function<void(Node)> visit = [&](Node node) {
    const auto again = std::ranges::find(path, node, [](const auto& step) { return step.first; });
    if (again != path.end()) {
      found = "a cycle, in which each waits for the next:";
      for (auto step = again; step != path.end(); ++step) found += Str("\n  ", step->second);
    }
    if (!found.empty() || !done.insert(node).second) return;
    const auto follow = [&](const std::string& why, Node next) {
      if (!found.empty()) return;
      path.push_back({node, why});
      visit(next);
      path.pop_back();
    };
    if (node.is_host) {
      const Host& host = hosts_[node.number];
      if (host.is_over) {
        found = "a wait for what will not come:";
        for (const auto& step : path) found += Str("\n  ", step.second);
        found += Str("\n  ", host.name, " has ended");
        return;
      }
      if (host.waits.empty()) return;
      if (host.stream >= 0) {
        follow(Str(host.name, " ", host.waits, " on ", NameOf(host.stream)), {false, host.stream});
      } else if (host.for_hosts) {
        for (const int next : host.for_hosts()) {
          follow(Str(host.name, " ", host.waits, " for ", hosts_[next].name), {true, next});
        }
      }
      return;
    }
    if (streams_[node.number].queue.empty()) return;
    const Item& item = streams_[node.number].queue.front();
    if (item.wait) {
      follow(Str(NameOf(node.number), " waits for an event of ", NameOf(item.wait->stream)),
             {false, item.wait->stream});
    }
    for (const auto& [meeting, own] : item.ends) {
      for (const Meeting::End& end : meeting->ends) {
        if (meeting->over || end.reached) continue;
        if (end.stream < 0 && end.host >= 0) {
          follow(Str(NameOf(node.number), " has ", item.by, ", whose other end ",
                     hosts_[end.host].name, " has not launched"),
                 {true, end.host});
        } else if (end.stream >= 0) {
          follow(Str(NameOf(node.number), " has ", item.by, ", whose other end is queued on ",
                     NameOf(end.stream)),
                 {false, end.stream});
        }
      }
    }
  };
  visit({true, start});
  return found;
}

// Memory

Machine::Block* Machine::FindBlock(const void* memory) {
  const auto* begin = static_cast<const std::byte*>(memory);
  auto found = blocks_.upper_bound(begin);
  if (found == blocks_.begin()) return nullptr;
  --found;
  return begin < found->first + found->second.bytes ? &found->second : nullptr;
}

void Machine::Allocated(const void* memory, size_t bytes, int stream) {
  const Lock lock(mutex_);
  const int device = streams_[stream].device;
  const auto [block, is_new] = blocks_.try_emplace(static_cast<const std::byte*>(memory),
                                                   Block{bytes, device, stream, 0, {}, {}});
  ++block->second.owners;
  if (!is_new) return;
  bytes_[device] += static_cast<int64_t>(bytes);
  peak_[device] = std::max(peak_[device], bytes_[device]);
}

void Machine::RecordStream(const void* memory, int stream) {
  if (Drops(Ordering::kRecordStream)) return;
  const Lock lock(mutex_);
  if (Block* block = FindBlock(memory)) block->recorded.insert(stream);
}

bool Machine::IsPending(const std::byte* begin, size_t bytes, int stream) const {
  return std::ranges::any_of(streams_[stream].queue, [&](const Item& item) {
    return std::ranges::any_of(item.ends, [&](const auto& entry) {
      const auto& [meeting, end] = entry;
      return !meeting->over && std::ranges::any_of(meeting->ends[end].uses, [&](const Use& use) {
        return Overlap(use.begin, use.bytes, begin, bytes);
      });
    });
  });
}

void Machine::Freed(const void* memory, std::function<void()> release) {
  const auto* begin = static_cast<const std::byte*>(memory);
  const int host = ThisHost();
  const Lock lock(mutex_);
  const auto found = blocks_.find(begin);
  if (found == blocks_.end() || --found->second.owners > 0) {
    graves_.push_back({begin, 0, std::move(release), {}});
    return Bury();
  }
  const Block block = std::move(found->second);
  blocks_.erase(found);
  bytes_[block.device] -= static_cast<int64_t>(block.bytes);
  // Who gets this memory next uses it on the same stream, at the earliest now.
  Clock own = streams_[block.stream].clock;
  Join(own, hosts_[host].clock);
  for (const Access& access : block.accesses) {
    const int s = access.stream;
    if (s == block.stream || block.recorded.count(s) > 0 || Precedes(access.time, s, own)) continue;
    Report(Str("memory of ", access.use.what, ", allocated on ", NameOf(block.stream),
               ", is freed while ", access.by, " on ", NameOf(s),
               " may use it: no event between, no record_stream"));
  }
  for (int s = 0; s < static_cast<int>(streams_.size()); ++s) {
    if (s == block.stream || block.recorded.count(s) > 0 || !IsPending(begin, block.bytes, s))
      continue;
    Report(Str("memory of ", block.bytes, " bytes, allocated on ", NameOf(block.stream),
               ", is freed while ", NameOf(s), " has still to use it: no record_stream"));
  }
  graves_.push_back({begin, block.bytes, std::move(release), block.accesses});
  Bury();
}

/// Gives back what nothing under way uses any more.
void Machine::Bury() {
  std::vector<Grave> kept;
  for (Grave& grave : graves_) {
    bool pending = false;
    for (int s = 0; s < static_cast<int>(streams_.size()) && !pending; ++s) {
      pending = IsPending(grave.begin, grave.bytes, s);
    }
    if (pending) {
      kept.push_back(std::move(grave));
    } else {
      grave.release();
    }
  }
  graves_ = std::move(kept);
}

bool Machine::IsOn(int device, const void* memory, size_t bytes) const {
  const Lock lock(mutex_);
  const Block* block = const_cast<Machine*>(this)->FindBlock(memory);
  if (bytes == 0) return true;
  const auto* begin = static_cast<const std::byte*>(memory);
  return block != nullptr && block->device == device &&
         const_cast<Machine*>(this)->FindBlock(begin + bytes - 1) == block;
}

}  // namespace strata::shadow
