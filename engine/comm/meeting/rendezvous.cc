// Each rank registers at the store: it compares its world size with the first rank's, claims its
// rank number, and increases a counter. The last rank writes the verdict "all there"; a rank that
// finds a contradiction writes the reason as the verdict instead. All ranks wait for the verdict.
// Each rank makes a constant number of requests.
#include "engine/comm/meeting/rendezvous.h"

#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/log.h"
#include "engine/base/machine/identity.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/address.h"
#include "engine/comm/meeting/sealed_store.h"
#include "engine/comm/peer_error.h"

C10_DECLARE_int(caffe2_log_level);

namespace strata {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr const char* kSize = "size";
constexpr const char* kCount = "count";
constexpr const char* kVerdict = "verdict";
constexpr const char* kAllThere = "all ranks are there";
constexpr const char* kSomeSecrets =
    "only some of the ranks have STRATA_SECRET: say the same one to all, or to none";
std::string ProcessKey(int rank) { return Str("process/", rank); }
std::string TimesKey(int rank) { return Str("times/", rank); }

// The number of QuietStore objects alive, and c10d's log level before the first of them.
std::mutex quiet_mutex;
int quiet_depth = 0;
int loud_level = 0;

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// False if the text has other bytes than printable ASCII. A rank without a secret uses it to
/// recognise a sealed value, whose seal it would otherwise take for a part of the text.
bool IsText(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); });
}

std::string Where(const RankPlace& place) {
  if (IsPathOfDescriptor(place.store_file)) return "the launcher's store";
  if (!place.store_file.empty()) return place.store_file;
  return Str(place.store_host, ":", place.store_port);
}

/// Names this process: "host1 (process 1234)".
std::string ThisProcess() { return Str(HostName(), " (process ", ::getpid(), ")"); }

using Clock = std::chrono::steady_clock;

/// Opens the store on a rank that does not serve it. One attempt of TCPStore takes up to two and a
/// half times its timeout, since it pauses longer and longer. So each attempt gets a third of the
/// time that is left.
StorePtr ConnectToStore(const RankPlace& place, c10d::TCPStoreOptions options) {
  const std::chrono::milliseconds timeout = options.timeout;
  const Clock::time_point end = Clock::now() + timeout;
  constexpr std::chrono::milliseconds kPause(500);  // TCPStore's first pause in an attempt
  for (auto left = timeout;;
       left = std::chrono::floor<std::chrono::milliseconds>(end - Clock::now())) {
    options.timeout = left / 3;
    try {
      auto store = c10::make_intrusive<c10d::TCPStore>(place.store_host, options);
      store->setTimeout(timeout);
      return store;
    } catch (const c10::DistNetworkError& error) {
      if (end - Clock::now() > kPause) continue;
      const std::string why = Split(error.what_without_backtrace(), '\n').front();
      const bool says_when =
          why.find("timed out") != why.npos;  // and would say the time of the last attempt only
      throw PeerError(Str("rank ", place.rank, " cannot use the store at ", Where(place),
                          ": it did not open within ",
                          FormatSeconds(std::chrono::duration<double>(timeout).count()),
                          says_when ? "" : Str(" (", why, ")")));
    }
  }
}

StorePtr OpenStore(const RankPlace& place, std::chrono::milliseconds timeout) {
  if (!place.store_file.empty()) {
    auto store = c10::make_intrusive<c10d::FileStore>(place.store_file, place.world_size);
    store->setTimeout(timeout);
    return store;
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.store_port);
  options.isServer = place.rank == 0 && !place.store_is_served;
  options.waitWorkers = false;
  options.timeout = timeout;
  if (!options.isServer) return ConnectToStore(place, options);
  // TCPStore gets a socket that Strata has bound, since one that it binds itself listens on all
  // addresses.
  std::string host = place.store_host;
  int fd = place.store_fd;
  if (fd < 0) {
    const ListeningSocket socket = ListenForRanks(place);
    fd = socket.fd;
    if (socket.everywhere) {
      STRATA_LOG(kWarning) << host << " is no address of this machine that others reach: rank 0 "
                           << "listens on all addresses, port " << socket.port;
      host = "localhost";
    }
  }
  options.masterListenFd = fd;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// Registers a rank at the store and waits for the verdict.
class Meeting {
 public:
  Meeting(const RankPlace& place, StorePtr store) : place_(place), store_(std::move(store)) {}

  void Arrive() {
    AgreeOnSize();
    AgreeOnRank();
    if (store_->add(kCount, 1) == place_.world_size) store_->set(kVerdict, Bytes(kAllThere));
  }

  void WaitForOthers(std::chrono::milliseconds timeout) {
    try {
      store_->wait({kVerdict}, timeout);
    } catch (const std::exception&) {
      ThrowMissing();
    }
    const std::string verdict = Text(store_->get(kVerdict));
    if (verdict != kAllThere) throw ConfigError(IsText(verdict) ? verdict : kSomeSecrets);
  }

 private:
  void AgreeOnSize() {
    const std::string mine = std::to_string(place_.world_size);
    std::string first;
    try {
      first = Text(store_->compareSet(kSize, Bytes(""), Bytes(mine)));
    } catch (const WorldError& error) {  // the value has the seal of another secret, or none
      store_->set(
          kVerdict,
          Bytes(
              error.what()));  // the others cannot read this verdict's seal either and stop waiting
      throw;
    }
    if (first == mine) return;
    if (!IsText(first)) Refuse(kSomeSecrets);
    Refuse(Str("the ranks differ on their number: rank ", place_.rank, " on ", ThisProcess(),
               " has a world of ", mine, ", an earlier one has ", first));
  }

  void AgreeOnRank() {
    if (store_->add(TimesKey(place_.rank), 1) == 1) {
      return store_->set(ProcessKey(place_.rank), Bytes(ThisProcess()));
    }
    Refuse(Str("rank ", place_.rank, " is there twice: on ",
               Text(store_->get(ProcessKey(place_.rank))), " and on ", ThisProcess()));
  }

  /// Throws ConfigError with the text `why` on this rank and on all ranks that wait.
  [[noreturn]] void Refuse(const std::string& why) {
    store_->set(kVerdict, Bytes(why));
    throw ConfigError(why);
  }

  [[noreturn]] void ThrowMissing() {
    constexpr size_t kShown = 10;
    std::vector<std::string> missing;
    for (int rank = 0; rank < place_.world_size && missing.size() <= kShown; ++rank) {
      if (!store_->check({ProcessKey(rank)})) missing.push_back(std::to_string(rank));
    }
    const bool more = missing.size() > kShown;
    if (more) missing.pop_back();
    throw PeerError(Str("rank ", place_.rank, " waits at ", Where(place_), " for ",
                        missing.size() == 1 ? "rank " : "ranks ", Join(missing, ", "),
                        more ? " and more" : "", ", which did not come within the timeout"));
  }

  const RankPlace& place_;
  StorePtr store_;
};

}  // namespace

QuietStore::QuietStore() {
  const std::lock_guard lock(quiet_mutex);
  if (quiet_depth++ > 0) return;
  loud_level = FLAGS_caffe2_log_level;
  FLAGS_caffe2_log_level = std::max(loud_level, c10::GLOG_FATAL);
}

QuietStore::~QuietStore() {
  const std::lock_guard lock(quiet_mutex);
  if (--quiet_depth == 0) FLAGS_caffe2_log_level = loud_level;
}

StorePtr MeetAtStore(const RankPlace& place, double timeout) {
  const QuietStore quiet;
  constexpr double kMost = 1e9;  // seconds; a larger time would overflow the clock
  const std::chrono::milliseconds limit(static_cast<int64_t>(std::min(timeout, kMost) * 1000));
  const Clock::time_point end = Clock::now() + limit;
  StorePtr store;
  const std::string trouble = TorchTrouble([&] {
    store = OpenStore(place, limit);
    // A file is protected by the permissions of its folder, and the launcher's store file has no
    // name, so neither needs seals.
    if (!place.secret.empty() && place.store_file.empty()) {
      store = MakeSealedStore(store, place.secret);
    }
    store = c10::make_intrusive<c10d::PrefixStore>(Str("strata/", place.job_id), store);
    Meeting meeting(place, store);
    meeting.Arrive();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    meeting.WaitForOthers(std::max(left, std::chrono::milliseconds(1)));
  });
  if (trouble.empty()) return store;
  throw PeerError(Str("rank ", place.rank, " cannot use the store at ", Where(place), ": ",
                      Split(trouble, '\n').front()));
}

}  // namespace strata
