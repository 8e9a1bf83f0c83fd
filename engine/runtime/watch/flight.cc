// Rings are written without locks. A slot has the number of its event, which is 0 while the slot is
// being written. A reader uses a slot only if it sees the same number before and after reading it.
#include "engine/runtime/watch/flight.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr const char* kFormat = "strata flight record";
constexpr int kVersion = 1;
constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

uint64_t FlightRing::Begin(std::string_view what, int stage, int64_t bytes, int64_t start,
                           int64_t end) {
  const uint64_t number = count_.fetch_add(1, kRelaxed) + 1;
  Slot& slot = slots_[number % slots_.size()];
  slot.number.store(0, kRelaxed);
  std::atomic_thread_fence(std::memory_order_release);
  Name name = {};
  std::memcpy(name.data(), what.data(), std::min(what.size(), sizeof(name)));
  for (size_t i = 0; i < name.size(); ++i) slot.what[i].store(name[i], kRelaxed);
  slot.stage.store(stage, kRelaxed);
  slot.peer.store(-1, kRelaxed);
  slot.step.store(step_.load(kRelaxed), kRelaxed);
  slot.bytes.store(bytes, kRelaxed);
  slot.start.store(start, kRelaxed);
  slot.waited.store(0, kRelaxed);
  slot.end.store(end, kRelaxed);
  slot.number.store(number, std::memory_order_release);
  return number;
}

FlightRing::Slot* FlightRing::Open() {
  Slot& slot = slots_[open_ % slots_.size()];
  return open_ > 0 && slot.number.load(kRelaxed) == open_ ? &slot : nullptr;
}

void FlightRing::Start(std::string_view what, int stage) {
  // The first action of a row also begins the row.
  const bool again = open_ > 0 && what.data() == open_what_;
  if (again) return;
  if (open_ > 0) End();
  waits_since_ = 0;
  open_what_ = what.data();
  open_ = Begin(what, stage, -1, Now(), 0);
}

void FlightRing::Wait(int peer) {
  if (Slot* slot = Open()) slot->peer.store(peer, kRelaxed);
  if (waits_since_ == 0) waits_since_ = Now();
}

void FlightRing::Go() {
  if (waits_since_ == 0) return;
  const int64_t waited = Now() - std::exchange(waits_since_, 0);
  all_waited_ += waited;
  if (Slot* slot = Open()) slot->waited.fetch_add(waited, kRelaxed);
}

void FlightRing::End() {
  Go();
  if (Slot* slot = Open()) slot->end.store(Now(), kRelaxed);
  open_ = 0;
}

void FlightRing::Add(std::string_view what, int64_t bytes, int64_t start, int64_t end) {
  Begin(what, -1, bytes, start, end);
}

void FlightRing::set_stack(std::string_view stack) {
  const size_t size = std::min(stack.size(), kStackBytes);
  stack_size_.store(0, std::memory_order_release);
  for (size_t i = 0; i < size; ++i) stack_[i].store(stack[i], kRelaxed);
  stack_size_.store(static_cast<uint32_t>(size), std::memory_order_release);
}

std::vector<FlightEvent> FlightRing::Events() const {
  const uint64_t count = count_.load(std::memory_order_acquire);
  std::vector<FlightEvent> events;
  for (uint64_t i = count > kEvents ? count - kEvents + 1 : 1; i <= count; ++i) {
    const Slot& slot = slots_[i % slots_.size()];
    if (slot.number.load(std::memory_order_acquire) != i) continue;
    FlightEvent event;
    Name name;
    for (size_t word = 0; word < name.size(); ++word) name[word] = slot.what[word].load(kRelaxed);
    const char* text = reinterpret_cast<const char*>(name.data());
    event.what = std::string(text, ::strnlen(text, sizeof(name)));
    event.stage = static_cast<int>(slot.stage.load(kRelaxed));
    event.peer = static_cast<int>(slot.peer.load(kRelaxed));
    event.step = slot.step.load(kRelaxed);
    event.bytes = slot.bytes.load(kRelaxed);
    event.start = slot.start.load(kRelaxed);
    event.waited = slot.waited.load(kRelaxed);
    event.end = slot.end.load(kRelaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.number.load(kRelaxed) == i) events.push_back(std::move(event));
  }
  return events;
}

std::string FlightRing::Stack() const {
  std::string stack;
  const size_t size = std::min<size_t>(stack_size_.load(std::memory_order_acquire), kStackBytes);
  for (size_t i = 0; i < size; ++i) stack += stack_[i].load(kRelaxed);
  return stack;
}

namespace {

/// Maps memory for rings. `fd`: -1 for memory of this process alone.
std::span<FlightRing> MapRings(int fd, size_t bytes) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) ThrowErrno("no memory of actions");
  return {static_cast<FlightRing*>(memory), bytes / sizeof(FlightRing)};
}

}  // namespace

FlightMemory FlightMemory::Make(int ranks) {
  Fd fd(::memfd_create("strata flight", MFD_CLOEXEC));
  const auto size = static_cast<off_t>(sizeof(FlightRing) * static_cast<size_t>(ranks));
  if (!fd.is_open()) ThrowErrno("no memory for the actions");
  // A limit on the size of files (ulimit -f) applies to this memory as well.
  const bool is_shared = ::ftruncate(fd.get(), size) == 0;
  if (!is_shared && errno != EFBIG) ThrowErrno("no memory for the actions");
  static std::once_flag told;
  if (!is_shared) {
    std::call_once(told, [] {
      STRATA_LOG(kWarning) << "no flight records: files may not be so large (ulimit -f)";
    });
  }
  FlightMemory memory =
      is_shared ? Map(fd) : FlightMemory(Fd(), MapRings(-1, static_cast<size_t>(size)));
  for (FlightRing& ring : memory.rings_) new (&ring) FlightRing;
  memory.fd_ = std::move(fd);
  return memory;
}

FlightMemory FlightMemory::Map(const Fd& fd) {
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) ThrowErrno("no memory of actions");
  if (status.st_size == 0) return {};
  return {Fd(), MapRings(fd.get(), static_cast<size_t>(status.st_size))};
}

FlightMemory::~FlightMemory() {
  if (!rings_.empty()) ::munmap(rings_.data(), rings_.size_bytes());
}

FlightMemory& FlightMemory::operator=(FlightMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(rings_, other.rings_);
  return *this;
}

Value FlightOf(const FlightRing& ring, int rank) {
  const auto seconds = [](int64_t time) { return 1e-9 * static_cast<double>(time); };
  Value::List events;
  for (const FlightEvent& event : ring.Events()) {
    Value entry = Value::MakeMap({{"what", event.what}, {"start", seconds(event.start)}});
    if (event.stage >= 0) entry.Set("stage", event.stage);
    if (event.step >= 0) entry.Set("step", event.step);
    if (event.peer >= 0) entry.Set("peer", event.peer);
    if (event.bytes >= 0) entry.Set("bytes", event.bytes);
    if (event.waited > 0) entry.Set("waited", seconds(event.waited));
    if (event.end != 0) entry.Set("end", seconds(event.end));
    events.push_back(std::move(entry));
  }
  Value flight = Value::MakeMap({{"rank", rank}, {"events", events}, {"stack", ring.Stack()}});
  return ring.hung() ? flight.Set("hung", true) : flight;
}

Value FlightRecord(const std::string& why, double now, const Value& ranks) {
  return Value::MakeMap(
      {{"format", kFormat}, {"version", kVersion}, {"why", why}, {"time", now}, {"ranks", ranks}});
}

bool IsFlightRecord(std::string_view text) {
  return text.substr(0, 200).find(Str("\"", kFormat, "\"")) != text.npos;
}

namespace {

/// Notes on an event: "waited 1.2 ms for rank 1", "64.0 KiB", "goes on".
std::string Notes(const Value& event) {
  std::vector<std::string> notes;
  if (!event.Has("end")) notes.push_back("goes on");
  if (event.Has("bytes")) notes.push_back(FormatBytes(event["bytes"].as_double()));
  const std::string whom = event.Has("peer") ? Str(" for rank ", event["peer"].as_int()) : "";
  if (event.Has("waited")) {
    notes.push_back(Str("waited ", FormatSeconds(event["waited"].as_double()), whom));
  } else if (!whom.empty()) {
    notes.push_back(Str("waits", whom));
  }
  return Join(notes, ", ");
}

std::string RankText(const Value& rank, double now, size_t last) {
  const Value::List& events = rank["events"].as_list();
  const Value* role = rank.Find("role");
  std::string text =
      Str("rank ", rank["rank"].as_int(),
          role && !role->as_string().empty() ? Str(" (", role->as_string(), ")") : "", ": ",
          Plural(static_cast<int64_t>(events.size()), "event"), "\n");
  if (const Value* position = rank.Find("position")) text += Str(position->as_string(), "\n");
  TextTable table({"ago", "step", "stage", "what", "took", ""});
  for (size_t i = events.size() - std::min(last, events.size()); i < events.size(); ++i) {
    const Value& event = events[i];
    const auto number = [&](const char* name) {
      return event.Has(name) ? std::to_string(event[name].as_int()) : "-";
    };
    const double start = event["start"].as_double();
    const double end = event.Has("end") ? event["end"].as_double() : now;
    table.Add({FormatSeconds(std::max(0.0, now - start)), number("step"), number("stage"),
               event["what"].as_string(), FormatSeconds(std::max(0.0, end - start)), Notes(event)});
  }
  if (!events.empty()) text += table.Render();
  const std::string& stack = rank["stack"].as_string();
  return stack.empty() ? text : Str(text, "stack:\n", stack, stack.ends_with('\n') ? "" : "\n");
}

}  // namespace

std::string FlightText(const Value& record, int last) {
  const Value* format = record.is_map() ? record.Find("format") : nullptr;
  if (!format || *format != Value(kFormat) || record["version"] != Value(kVersion)) {
    throw ConfigError(Str("this is no ", kFormat, " of version ", kVersion));
  }
  std::string text = Str(record["why"].as_string(), "\n");
  for (const Value& rank : record["ranks"].as_list()) {
    text += Str("\n", RankText(rank, record["time"].as_double(), static_cast<size_t>(last)));
  }
  return text;
}

}  // namespace strata
