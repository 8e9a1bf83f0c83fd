// Each rank registers at the store. The last one, or one that objects, writes the verdict.
#include "engine/comm/meeting/rendezvous.h"

#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
std::string ProcessKey(int rank) { return Str("process/", rank); }
std::string TimesKey(int rank) { return Str("times/", rank); }

// How many QuietStores live, and c10d's log level from before the first of them.
std::mutex quiet_mutex;
int quiet_depth = 0;
int loud_level = 0;

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string Where(const RankPlace& place) {
  if (IsPathOfDescriptor(place.store_file)) return "the launcher's store";
  if (!place.store_file.empty()) return place.store_file;
  return Str(place.store_host, ":", place.store_port);
}

/// "host1 (process 1234)".
std::string ThisProcess() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  return Str(host.data(), " (process ", ::getpid(), ")");
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
  std::string host = place.store_host;
  if (options.isServer) {
    // TCPStore gets a socket of ours, since one that it binds itself listens on all addresses.
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
  }
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// What a rank does at the store: it registers, and waits for the verdict.
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
    if (verdict != kAllThere) throw ConfigError(verdict);
  }

 private:
  void AgreeOnSize() {
    const std::string mine = std::to_string(place_.world_size);
    const std::string first = Text(store_->compareSet(kSize, Bytes(""), Bytes(mine)));
    if (first == mine) return;
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

  /// Throws `why` here and on all ranks that wait.
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
  FLAGS_caffe2_log_level = std::max(loud_level, c10::GLOG_ERROR);
}

QuietStore::~QuietStore() {
  const std::lock_guard lock(quiet_mutex);
  if (--quiet_depth == 0) FLAGS_caffe2_log_level = loud_level;
}

StorePtr MeetAtStore(const RankPlace& place, double timeout) {
  const QuietStore quiet;
  const std::chrono::milliseconds limit(static_cast<int64_t>(timeout * 1000));
  StorePtr store;
  const std::string trouble = TorchTrouble([&] {
    store = OpenStore(place, limit);
    // A file is as private as its folder, and the launcher's has no name at all.
    if (!place.secret.empty() && place.store_file.empty()) {
      store = MakeSealedStore(store, place.secret);
    }
    store = c10::make_intrusive<c10d::PrefixStore>(Str("strata/", place.job_id), store);
    Meeting meeting(place, store);
    meeting.Arrive();
    meeting.WaitForOthers(limit);
  });
  if (trouble.empty()) return store;
  throw PeerError(Str("rank ", place.rank, " cannot use the store at ", Where(place), ": ",
                      Split(trouble, '\n').front()));
}

}  // namespace strata
