// ProfileCache: the file in the shared cache folder that keeps how long layers took on this
// machine, measured alone (engine/runtime/profiler.h) and in the steps of trainings.
//
// A run beside another program is slower than the next one will be, and under another plan other
// layers ran at the same time. So several runs of each job are kept, together with the ranks of
// their layers. To forecast one plan, the runs with the most similar plans are used; to choose
// among plans, all runs. Each number is a median.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/value.h"
#include "engine/cost/profile.h"

namespace strata::lua {

/// The file is $STRATA_CACHE/profiles/DIGEST.json. There is one for each combination of processor
/// (or GPU), number of threads, number of ranks side by side, and version of LibTorch. A file that
/// is broken or comes from another machine is ignored, with a notice on standard error, and written
/// anew. If other programs used the processor while layers were measured alone, those results are
/// valid for ten minutes.
class ProfileCache {
 public:
  /// `version` is EngineApi::Version().
  ProfileCache(const MeasureTask& task, const std::string& version);

  /// The seconds of layers that were measured alone.
  const KnownSeconds& layers() const { return alone_.layers; }
  /// The link between two processes of this machine; takes_time() is false if it was not measured.
  const LinkRates& link() const { return link_; }
  /// The job's profile from layers measured alone; nothing if any part of it is not known.
  std::optional<Profile> Find(const MeasureTask& task) const;
  /// The job's profile from its own runs. With task.plan, only the runs with the most similar plans
  /// count; without any, the result has no layers. Without task.plan, all runs count; if there are
  /// none, each layer's seconds come from runs of other jobs, or else from measuring it alone. The
  /// result has no layers if none is known.
  Profile Known(const MeasureTask& task) const;

  /// Stores layers that were just measured, in case the measurement of the others is interrupted.
  void Add(const KnownSeconds& layers, double processor_share);
  /// Stores a whole measurement. If the cache cannot be written, a line on standard error says so;
  /// the only cost is that the next process measures again.
  void Add(const MeasureTask& task, const Profile& profile);
  void Add(const LinkRates& link);
  /// Stores the step times of a training with task.plan; if there are too many runs, the oldest is
  /// dropped. Errors while writing the cache are ignored: the next training measures again.
  void AddRun(const MeasureTask& task, const Profile& profile);

  /// Takes the lock under which processes calibrate, so that they do not slow each other down, and
  /// reads the cache again. It waits for at most as long as a calibration takes, and not at all if
  /// no file can be locked; it returns in any case.
  Fd Lock();

 private:
  /// Measured alone: layers by LayerKey(), and the rest of each job by RestKey().
  struct Alone {
    KnownSeconds layers;
    std::map<std::string, Profile> jobs;
  };
  struct Run {
    PlanTraits plan;
    Profile profile;
  };
  using Runs = std::vector<Run>;
  /// Measured in trainings: layers by LayerKey(), and the runs of each job by RunKey(), oldest
  /// first.
  struct InRuns {
    KnownSeconds layers;
    std::map<std::string, Runs> jobs;
  };

  Runs RunsOf(const MeasureTask& task) const;
  static double Distance(const Run& run, const PlanTraits& plan);
  static Runs Nearest(Runs runs, const PlanTraits& plan);
  static Profile Median(const Runs& runs);
  void ReadAlone(const Value& value);
  void ReadRuns(const Value& value);

  void TellDisturbed(double processor_share);
  void Read();
  std::string Write() const;

  const std::string circumstances_;
  const std::string path_;
  Alone alone_;
  InRuns runs_;
  LinkRates link_;
  int64_t disturbed_at_ = 0;  // time of a measurement beside other programs; 0 = none
};

}  // namespace strata::lua
