// Measuring layers, and the cache of what was measured.
#include "lua/host/measure.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/cache.h"
#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/comm/place.h"
#include "engine/plan/costs/link_table.h"
#include "engine/spec/layers/layers.h"
#include "lua/core/core.h"
#include "lua/host/children.h"
#include "lua/host/engine_api.h"

namespace strata::lua {
namespace {

namespace fs = std::filesystem;

/// The first line of a file of /proc that begins with `name`; "" where there is none.
std::string LineOf(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return line;
  }
  return "";
}

/// What seconds depend on beside the layer.
std::string Circumstances(const MeasureTask& task, const std::string& version) {
  const std::string device = task.device == "cuda" ? LineOf("/proc/driver/nvidia/version", "NVRM")
                                                   : LineOf("/proc/cpuinfo", "model name");
  return Str(task.device, "; ", device, "; ", task.threads, " threads; ", task.copies,
             " side by side; ", version);
}

/// The job beside its layers.
std::string RestKey(const MeasureTask& task) {
  const Value job = task.job->ToValue();
  Value key;
  for (const char* name : {"loss", "optimizer", "train_data"}) key.Append(job[name]);
  key.Append(ToString(task.outputs.back()));
  key.Append(task.batch.micro_batch_size);
  return "job " + Digest(key.ToJson());
}

/// What is measured for a whole job rather than for a layer.
constexpr std::pair<const char*, double Profile::*> kRest[] = {{"update", &Profile::update},
                                                               {"norm", &Profile::norm},
                                                               {"clear", &Profile::clear},
                                                               {"input", &Profile::input},
                                                               {"target", &Profile::target}};

Value RestValue(const Profile& rest) {
  Value value = Value::MakeMap({{"loss", ToValue(rest.loss)}});
  for (const auto& [name, seconds] : kRest) value.Set(name, rest.*seconds);
  return value;
}

/// A profile without layers.
Profile RestOf(const Value& value, const std::string& where) {
  Profile rest;
  rest.loss = PassSecondsOf(value["loss"], where);
  for (const auto& [name, seconds] : kRest) {
    rest.*seconds = value[name].as_double();
    if (rest.*seconds < 0) throw ConfigError(Str(where, ": \"", name, "\" is below 0"));
  }
  return rest;
}

/// With less of the processor measured seconds are not those of an idle machine: they hold for now,
/// and are measured again by the first process after so long.
constexpr double kLeastShare = 0.9;
constexpr int64_t kHoldsFor = 600;  // seconds

int64_t Now() { return static_cast<int64_t>(std::time(nullptr)); }

constexpr std::chrono::seconds kMostWait(10);
constexpr std::chrono::milliseconds kLook(50);

/// One file of the cache.
class Cache {
 public:
  Cache(const MeasureTask& task, const std::string& version)
      : circumstances_(Circumstances(task, version)),
        path_(CacheFolder() + "/profiles/" + Digest(circumstances_) + ".json") {
    Read();
  }

  const KnownSeconds& layers() const { return layers_; }
  /// Between two processes; takes no time where it was not measured.
  const LinkRates& link() const { return link_; }
  std::optional<Profile> FindRest(const std::string& key) const {
    const auto found = rests_.find(key);
    return found == rests_.end() ? std::nullopt : std::make_optional(found->second);
  }

  /// Layers that were measured just now; the others may never be.
  void Add(const KnownSeconds& layers, double processor_share) {
    Read();  // others may have measured meanwhile
    for (const auto& [key, seconds] : layers) layers_[key] = seconds;
    if (processor_share < kLeastShare) TellDisturbed(processor_share);
    Write();
  }

  /// A cache that cannot be written costs time, not the command.
  void Add(const MeasureTask& task, const Profile& profile) {
    Read();
    for (size_t i = 0; i < profile.layers.size(); ++i) {
      const bool was_measured = profile.layers[i] != PassSeconds();
      if (was_measured) layers_[LayerKey(task, i)] = profile.layers[i];
    }
    Profile& rest = rests_[RestKey(task)] = profile;
    rest.layers.clear();
    const std::string trouble = Write();
    if (trouble.empty()) return;
    std::fprintf(stderr, "strata: the measured costs are not kept, and measured again: %s\n",
                 trouble.c_str());
  }

  void Add(const LinkRates& link) {
    Read();
    link_ = link;
    Write();
  }

  /// Waits while another process calibrates, so that the two do not slow each other down, and reads
  /// what it has found. Nobody waits for longer than that takes, or where no file can be locked.
  Fd Lock() {
    std::error_code error;
    const std::string folder = CacheFolder();
    fs::create_directories(folder, error);
    Fd lock(::open((folder + "/profiles.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    const auto is_held = [&] {
      return lock.is_open() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    };
    const auto end = std::chrono::steady_clock::now() + kMostWait;
    while (is_held() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kLook);
    Read();
    return lock;
  }

 private:
  void TellDisturbed(double processor_share) {
    if (disturbed_at_ == 0 && ::isatty(STDERR_FILENO) == 1) {
      std::fprintf(stderr,
                   "strata: other programs had the processor while layers were measured (%.0f%% of "
                   "it was left): these seconds hold for %lld minutes\n",
                   100 * processor_share, static_cast<long long>(kHoldsFor / 60));
    }
    disturbed_at_ = Now();
  }

  void Read() {
    std::error_code error;
    if (!fs::is_regular_file(path_, error)) return;
    std::ifstream file(path_);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    try {
      const Value value = Value::FromJson(text);
      if (!value.is_map() || value["measured_on"] != Value(circumstances_)) {
        throw ConfigError("it is not of this machine");
      }
      const int64_t disturbed_at = value.Has("disturbed") ? value["disturbed"].as_int() : 0;
      if (disturbed_at > 0 && std::abs(Now() - disturbed_at) >= kHoldsFor) return;
      disturbed_at_ = std::max(disturbed_at_, disturbed_at);
      KnownSeconds layers;
      std::map<std::string, Profile> rests;
      for (const auto& [key, entry] : value["layers"].as_map()) {
        layers[key] = PassSecondsOf(entry, path_);
      }
      for (const auto& [key, entry] : value["jobs"].as_map()) rests[key] = RestOf(entry, path_);
      if (value.Has("link") && !link_.takes_time()) link_ = LinkRatesOf(value["link"], path_);
      layers_.merge(layers);  // what this process has measured holds
      rests_.merge(rests);
    } catch (const ConfigError& broken) {
      static std::set<std::string> told;  // once a process, however often the file is read
      if (!told.insert(path_).second) return;
      std::fprintf(stderr, "strata: measured again, as the file of costs is broken: %s: %s\n",
                   path_.c_str(), broken.what());
    }
  }

  /// Gives why the file cannot be written; "" where it was.
  std::string Write() const {
    Value layers = Value::MakeMap(), jobs = Value::MakeMap();
    for (const auto& [key, seconds] : layers_) layers.Set(key, ToValue(seconds));
    for (const auto& [key, rest] : rests_) jobs.Set(key, RestValue(rest));
    Value value =
        Value::MakeMap({{"measured_on", circumstances_}, {"layers", layers}, {"jobs", jobs}});
    if (link_.takes_time()) value.Set("link", ToValue(link_));
    if (disturbed_at_ > 0) value.Set("disturbed", disturbed_at_);
    const std::string beside = Str(path_, ".", ::getpid());
    std::error_code ignored;
    try {
      fs::create_directories(fs::path(path_).parent_path());
      WriteFile(beside, value.ToJson(1) + "\n");
      fs::rename(beside, path_);
      return "";
    } catch (const WorldError& error) {
      fs::remove(beside, ignored);
      return error.what();
    } catch (const fs::filesystem_error& error) {
      fs::remove(beside, ignored);
      return Str(path_, ": ", error.code().message());
    }
  }

  const std::string circumstances_;
  const std::string path_;
  KnownSeconds layers_;
  std::map<std::string, Profile> rests_;
  LinkRates link_;
  int64_t disturbed_at_ = 0;  // when something was measured beside other programs; 0 = nothing was
};

/// A bar on standard error where somebody sees it.
class Bar {
 public:
  /// What is measured within a time is the machine: by layers that the user's job does not have.
  explicit Bar(const MeasureTask& task)
      : most_seconds_(task.most_seconds),
        what_(most_seconds_ > 0 ? "this machine, once"
                                : Plural(std::ssize(task.job->layers), "layer")),
        is_seen_(::isatty(STDERR_FILENO) == 1) {}
  ~Bar() {
    if (is_seen_) std::fputs("\r\x1b[K", stderr);
  }
  void Show(double share) const {
    if (!is_seen_) return;
    constexpr int kColumns = 24;
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start_;
    if (most_seconds_ > 0) share = std::max(share, std::min(1.0, since.count() / most_seconds_));
    const int full = static_cast<int>(share * kColumns);
    std::fprintf(stderr, "\rmeasuring %s [%s%s] %3.0f%%\x1b[K", what_.c_str(),
                 std::string(static_cast<size_t>(full), '#').c_str(),
                 std::string(static_cast<size_t>(kColumns - full), ' ').c_str(), 100 * share);
    std::fflush(stderr);
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const double most_seconds_;
  const std::string what_;
  const bool is_seen_;
};

/// Each layer goes into the cache as soon as it is measured, so that what comes after a measurement
/// that was cut off goes on from there.
Profile MeasureNow(const MeasureTask& task, Cache& cache, State& state) {
  const Bar bar(task);
  return LoadEngine().MeasureLayers(
      task, cache.layers(), state, [&](double share) { bar.Show(share); },
      [&](const KnownSeconds& layers, double share) { cache.Add(layers, share); });
}

// The child's answer: {"profile" = {...}} or {"error" = text, "is_config" = whose fault}.

std::string AnswerOf(const MeasureTask& task, Cache& cache, State& state) {
  Value answer;
  try {
    answer.Set("profile", ProfileValue(MeasureNow(task, cache, state), task));
  } catch (const ConfigError& error) {
    answer.Set("error", error.what()).Set("is_config", true);
  } catch (const std::exception& error) {
    answer.Set("error", error.what()).Set("is_config", false);
  }
  return answer.ToJson();
}

Profile MeasureInChild(const MeasureTask& task, Cache& cache, State& state) {
  LoadEngine();  // once, for this process and the child
  const Value answer =
      Value::FromJson(InChildren(1, "the process that measures the layers", /*seconds=*/0,
                                 [&](int) { return AnswerOf(task, cache, state); }));
  if (answer.Has("profile")) return ReadProfile(answer["profile"], task, "the measured costs");
  if (answer["is_config"].as_bool()) throw ConfigError(answer["error"].as_string());
  throw WorldError(answer["error"].as_string());
}

/// They take one; a machine on which they hang has a stated link.
constexpr int kLinkSeconds = 15;

/// Between two processes of this machine, over what ranks of a job would use.
LinkRates MeasureLink() {
  const Fd meeting(::memfd_create("strata links", MFD_CLOEXEC));
  if (!meeting.is_open()) ThrowErrno("cannot make a file in memory");
  const std::string what = "the processes that measure a link";
  LoadEngine();  // as above
  const std::string text = InChildren(2, what, kLinkSeconds, [&](int rank) -> std::string {
    RankPlace place;
    place.rank = place.local_rank = rank;
    place.world_size = place.local_world_size = 2;
    place.store_file = PathOfDescriptor(meeting.get());
    try {
      return ToValue(LoadEngine().MeasureLinks("gloo", place, "here")).ToJson();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "strata: %s\n", error.what());
      ::_exit(1);
    }
  });
  return ReadLinks(Value::FromJson(text), what).Of(0, 1);
}

/// A machine whose link cannot be measured has a stated one.
LinkRates LinkOf(const MeasureTask& task, MeasureIn where, Cache& cache) {
  const bool is_known = cache.link().takes_time();
  const bool may_fork = where == MeasureIn::kChild && !task.only_known;
  if (is_known || !may_fork || task.device != "cpu" || task.copies < 2) return cache.link();
  try {
    cache.Add(MeasureLink());
  } catch (const Error& error) {
    std::fprintf(stderr, "strata: messages are taken to be as usual: %s\n", error.what());
  }
  return cache.link();
}

std::optional<Profile> FromCache(const Cache& cache, const MeasureTask& task) {
  std::optional<Profile> profile = cache.FindRest(RestKey(task));
  if (!profile) return std::nullopt;
  for (size_t i = 0; i < task.job->layers.size(); ++i) {
    const auto found = cache.layers().find(LayerKey(task, i));
    if (found == cache.layers().end()) return std::nullopt;
    profile->layers.push_back(found->second);
  }
  return profile;
}

Profile Measured(const MeasureTask& task, MeasureIn where, Cache& cache, State& state) {
  if (std::optional<Profile> known = FromCache(cache, task)) return *known;
  Profile profile;
  if (task.only_known) return profile;
  Fd lock;
  if (task.most_seconds > 0) {
    lock = cache.Lock();
    if (std::optional<Profile> known = FromCache(cache, task)) return *known;
  }
  if (where == MeasureIn::kChild) {
    profile = MeasureInChild(task, cache, state);
  } else {
    const Unlocked unlocked(state);  // the caller is a script
    profile = MeasureNow(task, cache, state);
  }
  cache.Add(task, profile);
  return profile;
}

}  // namespace

Measure MeasureHere(State& state, MeasureIn where) {
  return [&state, where](const MeasureTask& task) {
    Cache cache(task, LoadEngine().Version());
    Profile profile = Measured(task, where, cache, state);
    profile.link = LinkOf(task, where, cache);
    return profile;
  };
}

}  // namespace strata::lua
