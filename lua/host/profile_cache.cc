#include "lua/host/profile_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "engine/base/cache.h"
#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/base/text.h"
#include "engine/layers/layer_types.h"

namespace strata::lua {
namespace {

namespace fs = std::filesystem;

/// The first line of a file of /proc that begins with `name`; "" if there is none.
std::string LineOf(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return line;
  }
  return "";
}

/// The conditions on which the seconds of a layer depend.
std::string Circumstances(const MeasureTask& task, const std::string& version) {
  const std::string device = task.device == "cuda" ? LineOf("/proc/driver/nvidia/version", "NVRM")
                                                   : LineOf("/proc/cpuinfo", "model name");
  return Str(task.device, "; ", device, "; ", task.threads, " threads; ", task.copies,
             " side by side; ", version);
}

/// The key of the parts of a job other than its layers. The learning rate is left out, as it does
/// not change the time.
std::string RestKey(const MeasureTask& task) {
  Job of_any_rate = *task.job;
  of_any_rate.optimizer.options.Set("lr", 0);
  const Value job = of_any_rate.ToValue();
  Value key;
  for (const char* name : {"loss", "optimizer", "train_data"}) key.Append(job[name]);
  key.Append(ToString(task.outputs.back()));
  key.Append(task.batch.micro_batch_size);
  return "job " + Digest(key.ToJson());
}

/// The key of a job with all its layers, in order.
std::string RunKey(const MeasureTask& task) {
  std::string keys = RestKey(task);
  for (size_t i = 0; i < task.job->layers.size(); ++i) keys += LayerKey(task, i);
  return "run " + Digest(keys);
}

/// The members of a Profile that are measured for a whole job rather than for a layer.
constexpr std::pair<const char*, double Profile::*> kRest[] = {
    {"update", &Profile::update}, {"norm", &Profile::norm},   {"clear", &Profile::clear},
    {"action", &Profile::action}, {"input", &Profile::input}, {"target", &Profile::target}};

constexpr double PassSeconds::*kPasses[] = {&PassSeconds::forward, &PassSeconds::input_grad,
                                            &PassSeconds::weight_grad};

Value RestValue(const Profile& rest) {
  Value value = Value::MakeMap({{"loss", ToValue(rest.loss)}});
  for (const auto& [name, seconds] : kRest) value.Set(name, rest.*seconds);
  Value::List layers;
  for (const PassSeconds& seconds : rest.layers) layers.push_back(ToValue(seconds));
  if (!layers.empty()) value.Set("layers", std::move(layers));
  return value;
}

/// Reads the numbers of a job; only the entry of a run has layers as well.
Profile RestOf(const Value& value, const std::string& where) {
  Profile rest;
  rest.loss = PassSecondsOf(value["loss"], where);
  if (value.Has("layers")) {
    for (const Value& layer : value["layers"].as_list()) {
      rest.layers.push_back(PassSecondsOf(layer, where));
    }
  }
  for (const auto& [name, seconds] : kRest) {
    if (!value.Has(name) && name == std::string_view("action")) continue;  // an older file
    rest.*seconds = value[name].as_double();
    if (rest.*seconds < 0) throw ConfigError(Str(where, ": \"", name, "\" is below 0"));
  }
  return rest;
}

/// Seconds for which results count that other programs disturbed. After that, the first process
/// measures them again.
constexpr int64_t kHoldsFor = 600;  // seconds

int64_t Now() { return static_cast<int64_t>(std::time(nullptr)); }

// The name "link" is taken: earlier versions stored the time of messages through sockets under it.
constexpr const char* kLink = "local_link";

constexpr std::chrono::seconds kMostWait(10);
constexpr std::chrono::milliseconds kLook(50);

template <class Map>
const typename Map::mapped_type* FindIn(const Map& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

/// Adds the seconds of each distinct layer; equal layers get their mean.
void AddLayerMeans(const MeasureTask& task, const Profile& profile, KnownSeconds& layers) {
  std::map<std::string, int> counts;
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const PassSeconds& taken = profile.layers[i];
    if (taken == PassSeconds()) continue;
    const std::string key = LayerKey(task, i);
    PassSeconds& mean = layers[key];
    const int count = ++counts[key];
    for (double PassSeconds::*pass : kPasses) {
      const double before = count == 1 ? taken.*pass : mean.*pass;
      mean.*pass = before + (taken.*pass - before) / count;
    }
  }
}

std::vector<int> IntsOf(const Value& list) {
  const std::vector<int64_t> ints = list.as_ints();
  return {ints.begin(), ints.end()};
}

Value ListOf(const std::vector<int>& ints) { return Value::IntList({ints.begin(), ints.end()}); }

KnownSeconds LayersOf(const Value& value, const std::string& where) {
  KnownSeconds layers;
  for (const auto& [key, entry] : value.as_map()) layers[key] = PassSecondsOf(entry, where);
  return layers;
}

Value LayersValue(const KnownSeconds& layers) {
  Value value = Value::MakeMap();
  for (const auto& [key, seconds] : layers) value.Set(key, ToValue(seconds));
  return value;
}

/// The number of runs that are kept for equal plans, and for a job.
constexpr size_t kRunsOfPlan = 5, kRunsOfJob = 15;
/// Differences between plans, as shares of a run's time; see Distance(). Plans whose distances
/// differ by at most kAlike are treated as equally near. kOtherSchedule is the distance for another
/// schedule or transport.
constexpr double kAlike = 0.05, kOtherSchedule = 0.06;

}  // namespace

ProfileCache::ProfileCache(const MeasureTask& task, const std::string& version)
    : circumstances_(Circumstances(task, version)),
      path_(CacheFolder() + "/profiles/" + Digest(circumstances_) + ".json") {
  Read();
}

std::optional<Profile> ProfileCache::Find(const MeasureTask& task) const {
  const Profile* rest = FindIn(alone_.jobs, RestKey(task));
  if (!rest) return std::nullopt;
  Profile profile = *rest;
  for (size_t i = 0; i < task.job->layers.size(); ++i) {
    const PassSeconds* found = FindIn(alone_.layers, LayerKey(task, i));
    if (!found) return std::nullopt;
    profile.layers.push_back(*found);
  }
  return profile;
}

Profile ProfileCache::Known(const MeasureTask& task) const {
  const size_t count = task.job->layers.size();
  const Runs runs = Nearest(RunsOf(task), task.plan);
  if (!runs.empty()) {
    Profile median = Median(runs);
    for (const Run& run : runs) {
      const bool is_new = std::ranges::find(median.ran, run.plan.plan) == median.ran.end();
      if (is_new) median.ran.push_back(run.plan.plan);
    }
    return median;
  }
  if (!task.plan.places.empty()) return {};
  const Profile* rest = FindIn(alone_.jobs, RestKey(task));
  Profile known = rest ? *rest : Profile();
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::string key = LayerKey(task, i);
    const PassSeconds* best = FindIn(runs_.layers, key);
    if (!best) best = FindIn(alone_.layers, key);
    known.layers.push_back(best ? *best : PassSeconds());
    found += best ? 1 : 0;
  }
  if (found == 0) return {};
  if (!rest || found < count) known.is_whole = false;
  return known;
}

void ProfileCache::Add(const KnownSeconds& layers, double processor_share) {
  Read();  // other processes may have written meanwhile
  for (const auto& [key, seconds] : layers) alone_.layers[key] = seconds;
  if (processor_share < kLeastProcessorShare) TellDisturbed(processor_share);
  Write();
}

void ProfileCache::Add(const MeasureTask& task, const Profile& profile) {
  Read();
  AddLayerMeans(task, profile, alone_.layers);
  Profile& rest = alone_.jobs[RestKey(task)] = profile;
  rest.layers.clear();
  const std::string trouble = Write();
  if (trouble.empty()) return;
  std::fprintf(stderr, "strata: the measured costs are not kept, and measured again: %s\n",
               trouble.c_str());
}

void ProfileCache::Add(const LinkRates& link) {
  Read();
  link_ = link;
  Write();
}

void ProfileCache::AddRun(const MeasureTask& task, const Profile& profile) {
  const Fd lock = Lock();
  Runs runs = RunsOf(task);
  const auto is_alike = [&](const Run& run) { return run.plan == task.plan; };
  const bool is_full = std::ranges::count_if(runs, is_alike) == kRunsOfPlan;
  if (is_full) runs.erase(std::ranges::find_if(runs, is_alike));
  if (runs.size() == kRunsOfJob) runs.erase(runs.begin());
  runs.push_back({task.plan, profile});
  AddLayerMeans(task, Median(runs), runs_.layers);
  runs_.jobs[RunKey(task)] = std::move(runs);
  Write();
}

/// The job's runs in the cache. Entries whose number of layers is wrong, as in an edited file, are
/// left out.
ProfileCache::Runs ProfileCache::RunsOf(const MeasureTask& task) const {
  const Runs* found = FindIn(runs_.jobs, RunKey(task));
  if (!found) return {};
  Runs runs = *found;
  std::erase_if(runs, [&](const Run& run) {
    const size_t count = task.job->layers.size();
    return run.plan.places.size() != count || run.profile.layers.size() != count;
  });
  return runs;
}

/// The share of the run's time spent in layers that the plan puts on other ranks, plus
/// kOtherSchedule if the schedule or transport differs.
double ProfileCache::Distance(const Run& run, const PlanTraits& plan) {
  const bool is_like =
      run.plan.plan.schedule == plan.plan.schedule && run.plan.transport == plan.transport;
  double all = 0, elsewhere = 0;
  for (size_t i = 0; i < plan.places.size(); ++i) {
    const PassSeconds& layer = run.profile.layers[i];
    const double seconds = layer.forward + layer.input_grad + layer.weight_grad;
    all += seconds;
    if (run.plan.places[i] != plan.places[i]) elsewhere += seconds;
  }
  return (all > 0 ? elsewhere / all : 0) + (is_like ? 0 : kOtherSchedule);
}

/// The latest of the runs whose distance is within kAlike of the nearest one; all runs if there is
/// no plan.
ProfileCache::Runs ProfileCache::Nearest(Runs runs, const PlanTraits& plan) {
  if (plan.places.empty()) return runs;
  double nearest = 1 + kOtherSchedule;
  for (const Run& run : runs) nearest = std::min(nearest, Distance(run, plan));
  std::erase_if(runs, [&](const Run& run) { return Distance(run, plan) > nearest + kAlike; });
  if (runs.size() > kRunsOfPlan) runs.erase(runs.begin(), runs.end() - kRunsOfPlan);
  return runs;
}

/// The median of each number separately. Of two middle ones the lesser is taken, as disturbances
/// only make times longer. REQUIRES: at least one run.
Profile ProfileCache::Median(const Runs& runs) {
  const auto median = [&](const auto& number) {
    std::vector<double> numbers;
    for (const Run& run : runs) numbers.push_back(number(run.profile));
    return Quantile(std::move(numbers), 0.5);
  };
  Profile result = runs.back().profile;
  for (double PassSeconds::*pass : kPasses) {
    result.loss.*pass = median([=](const Profile& run) { return run.loss.*pass; });
    for (size_t i = 0; i < result.layers.size(); ++i) {
      result.layers[i].*pass = median([=](const Profile& run) { return run.layers[i].*pass; });
    }
  }
  for (const auto& [name, seconds] : kRest) {
    result.*seconds = median([seconds = seconds](const Profile& run) { return run.*seconds; });
  }
  return result;
}

Fd ProfileCache::Lock() {
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

void ProfileCache::TellDisturbed(double processor_share) {
  if (disturbed_at_ == 0 && ::isatty(STDERR_FILENO) == 1) {
    std::fprintf(stderr,
                 "strata: other programs had the processor while layers were measured (%.0f%% of "
                 "it was left): these seconds hold for %lld minutes\n",
                 100 * processor_share, static_cast<long long>(kHoldsFor / 60));
  }
  disturbed_at_ = Now();
}

void ProfileCache::Read() {
  std::error_code error;
  if (!fs::is_regular_file(path_, error)) return;
  std::ifstream file(path_);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  try {
    const Value value = Value::FromJson(text);
    if (!value.is_map() || value["measured_on"] != Value(circumstances_)) {
      throw ConfigError("it is not of this machine");
    }
    if (value.Has("runs")) ReadRuns(value["runs"]);
    const int64_t disturbed_at = value.Has("disturbed") ? value["disturbed"].as_int() : 0;
    if (disturbed_at > 0 && std::abs(Now() - disturbed_at) >= kHoldsFor) return;
    disturbed_at_ = std::max(disturbed_at_, disturbed_at);
    ReadAlone(value);
    if (value.Has(kLink) && !link_.takes_time()) link_ = LinkRatesOf(value[kLink], path_);
  } catch (const ConfigError& broken) {
    static std::set<std::string> told;  // once per process and file
    if (!told.insert(path_).second) return;
    std::fprintf(stderr, "strata: measured again, as the file of costs is broken: %s: %s\n",
                 path_.c_str(), broken.what());
  }
}

/// Adds what the file says to what this process has measured; the latter has priority.
void ProfileCache::ReadAlone(const Value& value) {
  Alone read = {.layers = LayersOf(value["layers"], path_), .jobs = {}};
  for (const auto& [key, entry] : value["jobs"].as_map()) read.jobs[key] = RestOf(entry, path_);
  alone_.layers.merge(read.layers);
  alone_.jobs.merge(read.jobs);
}

/// Reads the runs of trainings. Earlier versions also stored "jobs", the latest run of each job
/// under any plan; it is not read.
void ProfileCache::ReadRuns(const Value& value) {
  InRuns read = {.layers = LayersOf(value["layers"], path_), .jobs = {}};
  if (!value.Has("plans")) return;
  for (const auto& [key, runs] : value["plans"].as_map()) {
    for (const Value& run : runs.as_list()) {
      Run& last = read.jobs[key].emplace_back();
      last.profile = RestOf(run, path_);
      last.plan.transport = run["transport"].as_string();
      last.plan.plan = {IntsOf(run["cuts"]), IntsOf(run["ranks"]), run["schedule"].as_string()};
      for (const Value& place : run["places"].as_list()) {
        last.plan.places.push_back(place.as_string());
      }
    }
  }
  runs_ = std::move(read);
}

/// Writes the file; returns the reason if that fails, otherwise "".
std::string ProfileCache::Write() const {
  Value of_jobs = Value::MakeMap(), in_runs = Value::MakeMap();
  for (const auto& [key, rest] : alone_.jobs) of_jobs.Set(key, RestValue(rest));
  for (const auto& [key, runs] : runs_.jobs) {
    Value::List list;
    for (const auto& [plan, profile] : runs) {
      Value::List places(plan.places.begin(), plan.places.end());
      list.push_back(RestValue(profile)
                         .Set("transport", plan.transport)
                         .Set("places", places)
                         .Set("cuts", ListOf(plan.plan.bounds))
                         .Set("ranks", ListOf(plan.plan.stage_ranks))
                         .Set("schedule", plan.plan.schedule));
    }
    in_runs.Set(key, std::move(list));
  }
  Value value = Value::MakeMap({{"measured_on", circumstances_},
                                {"layers", LayersValue(alone_.layers)},
                                {"jobs", std::move(of_jobs)}});
  if (!runs_.layers.empty()) {
    value.Set("runs", Value::MakeMap(
                          {{"layers", LayersValue(runs_.layers)}, {"plans", std::move(in_runs)}}));
  }
  if (link_.takes_time()) value.Set(kLink, ToValue(link_));
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

}  // namespace strata::lua
