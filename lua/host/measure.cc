// Measures the layers that the cache does not know, in this process or in children.
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
#include "engine/base/progress_line.h"
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

/// A progress bar on standard error if that is a terminal, otherwise lines about progress.
class Bar {
 public:
  explicit Bar(const MeasureTask& task)
      : most_seconds_(task.most_seconds),
        what_(most_seconds_ > 0 ? "layers, once" : Plural(std::ssize(task.job->layers), "layer")),
        is_seen_(::isatty(STDERR_FILENO) == 1) {}
  ~Bar() {
    if (is_seen_) std::fputs("\r\x1b[K", stderr);
  }
  void Show(double share) {
    constexpr int kColumns = 24;
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start_;
    if (most_seconds_ > 0) share = std::max(share, since.count() / most_seconds_);
    share = std::min(share, 1.0);
    if (!is_seen_) {
      const auto percent = static_cast<int64_t>(100 * share);
      return line_.Advance(percent - std::exchange(percent_, percent));
    }
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
  ProgressLine line_{"measuring " + what_, 100};
  int64_t percent_ = 0;  // that line_ has counted
};

/// Measures here. Each layer is stored in the cache as soon as it is measured, so a measurement
/// after an interrupted one continues there.
Profile MeasureNow(const MeasureTask& task, ProfileCache& cache, State& state) {
  Bar bar(task);
  return LoadEngine().MeasureLayers(
      task, cache.layers(), state, [&](double share) { bar.Show(share); },
      [&](const KnownSeconds& layers, double share) { cache.Add(layers, share); });
}

// The child's answer: {"profile" = {...}}, or {"error" = text, "is_config" = true for a
// ConfigError}.

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
  LoadEngine();  // loaded once, before the fork, for both processes
  const Value answer =
      Value::FromJson(InChildren(1, "the process that measures the layers", /*seconds=*/0,
                                 [&](int) { return AnswerOf(task, cache, state); }));
  if (answer.Has("profile")) return ReadProfile(answer["profile"], task, "the measured costs");
  if (answer["is_config"].as_bool()) throw ConfigError(answer["error"].as_string());
  throw WorldError(answer["error"].as_string());
}

/// The limit for measuring a link, which takes about a second. If it hangs, the default link is
/// used.
constexpr int kLinkSeconds = 15;

/// Measures the link between two processes of this machine, over the transport that ranks of a job
/// would use.
LinkRates MeasureLink() {
  const Fd meeting(::memfd_create("strata links", MFD_CLOEXEC));
  if (!meeting.is_open()) ThrowErrno("cannot make a file in memory");
  const std::string what = "the processes that measure a link";
  LoadEngine();  // loaded once, before the forks
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

/// The link between two processes: from the cache, or measured, or the default if it cannot be
/// measured.
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
    const Unlocked unlocked(state);  // a script is the caller and holds the turn
    profile = MeasureNow(task, cache, state);
  }
  if (task.most_seconds > 0 && std::ranges::count(profile.layers, PassSeconds()) > 0) {
    profile.is_whole = false;  // the time did not suffice for all layers
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
    // Keeping the run is optional, so its errors do not disturb the training.
  }
}

}  // namespace strata::lua
