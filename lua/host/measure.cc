// Measuring layers, here or in children, where the cache does not know them.
#include "lua/host/measure.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/comm/place.h"
#include "engine/cost/link_table.h"
#include "engine/forecast/run_profile.h"
#include "engine/plan/plan_costs.h"
#include "engine/schedule/lowering.h"
#include "lua/core/core.h"
#include "lua/host/children.h"
#include "lua/host/engine_api.h"
#include "lua/host/profile_cache.h"

namespace strata::lua {
namespace {

/// A bar on standard error where somebody sees it.
class Bar {
 public:
  explicit Bar(const MeasureTask& task)
      : most_seconds_(task.most_seconds),
        what_(most_seconds_ > 0 ? "layers, once" : Plural(std::ssize(task.job->layers), "layer")),
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
Profile MeasureNow(const MeasureTask& task, ProfileCache& cache, State& state) {
  const Bar bar(task);
  return LoadEngine().MeasureLayers(
      task, cache.layers(), state, [&](double share) { bar.Show(share); },
      [&](const KnownSeconds& layers, double share) { cache.Add(layers, share); });
}

// The child's answer: {"profile" = {...}} or {"error" = text, "is_config" = whose fault}.

std::string AnswerOf(const MeasureTask& task, ProfileCache& cache, State& state) {
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

Profile MeasureInChild(const MeasureTask& task, ProfileCache& cache, State& state) {
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
LinkRates LinkOf(const MeasureTask& task, MeasureIn where, ProfileCache& cache) {
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

Profile Measured(const MeasureTask& task, MeasureIn where, ProfileCache& cache, State& state) {
  if (task.only_known) return cache.Known(task);
  if (std::optional<Profile> known = cache.Find(task)) return *known;
  Profile profile;
  Fd lock;
  if (task.most_seconds > 0) {
    lock = cache.Lock();
    if (std::optional<Profile> known = cache.Find(task)) return *known;
  }
  if (where == MeasureIn::kChild) {
    profile = MeasureInChild(task, cache, state);
  } else {
    const Unlocked unlocked(state);  // the caller is a script
    profile = MeasureNow(task, cache, state);
  }
  if (task.most_seconds > 0 && std::ranges::count(profile.layers, PassSeconds()) > 0) {
    profile.seconds_from = SecondsFrom::kMeasuredRates;  // time did not suffice for all
    return profile;
  }
  cache.Add(task, profile);
  return profile;
}

}  // namespace

Measure MeasureHere(State& state, MeasureIn where) {
  return [&state, where](const MeasureTask& task) {
    ProfileCache cache(task, LoadEngine().Version());
    Profile profile = Measured(task, where, cache, state);
    profile.link = LinkOf(task, where, cache);
    return profile;
  };
}

void RememberRun(const Job& job, const Plan& plan, const schedule::Program& program,
                 const MeasuredStep& step) {
  try {
    const MeasureTask task = TaskOf(job, plan);
    const schedule::Program lowered =
        schedule::LowerAndCheck(program, {.tied_stages = plan.tied_stages()});
    const Profile profile = ProfileOfRun(job, plan, step, lowered);
    ProfileCache(task, LoadEngine().Version()).AddRun(task, profile);
  } catch (const std::exception&) {
    // A training is no worse for it.
  }
}

}  // namespace strata::lua
