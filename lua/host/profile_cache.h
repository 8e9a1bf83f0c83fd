// ProfileCache: the file in the shared cache folder that keeps what layers were measured to take on
// this machine: alone (engine/runtime/profiler.h), and in the steps of trainings.
//
// A run beside another program took longer than the next one will, and in another plan other layers
// ran beside these. So of each job some runs are kept, with where their layers were. A plan goes by
// those most like it, a choice of plans by all; each number is a median.
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

/// $STRATA_CACHE/profiles/DIGEST.json, one for each processor (or GPU), number of threads and of
/// ranks side by side, and version of LibTorch. A file that is broken, or of another machine, is
/// ignored, with a notice on standard error, and written anew. What was measured alone while other
/// programs had the processor holds for ten minutes.
class ProfileCache {
 public:
  /// `version`: of LibTorch.
  ProfileCache(const MeasureTask& task, const std::string& version);

  /// What layers take alone.
  const KnownSeconds& layers() const { return alone_.layers; }
  /// Between two processes; takes no time where it was not measured.
  const LinkRates& link() const { return link_; }
  /// All of the job, measured alone; none where something of it is not known.
  std::optional<Profile> Find(const MeasureTask& task) const;
  /// What the job's own runs took: with task.plan those that were most like it, without layers
  /// where there are none. Else all of them, else of each layer what it took in another job's, else
  /// alone; without layers where none is known.
  Profile Known(const MeasureTask& task) const;

  /// Layers that were measured just now; the others may never be.
  void Add(const KnownSeconds& layers, double processor_share);
  /// A cache that cannot be written costs time, not the command: a line says so.
  void Add(const MeasureTask& task, const Profile& profile);
  void Add(const LinkRates& link);
  /// What the steps of a training with task.plan took, in place of what the oldest one did.
  /// Nobody hears of a cache that cannot be written: the next training measures anyway.
  void AddRun(const MeasureTask& task, const Profile& profile);

  /// Waits while another process calibrates, so that the two do not slow each other down, and reads
  /// what it has found. Nobody waits for longer than that takes, or where no file can be locked.
  Fd Lock();

 private:
  /// By LayerKey(), and by job what it has beside them.
  struct Alone {
    KnownSeconds layers;
    std::map<std::string, Profile> jobs;
  };
  struct Run {
    PlanTraits plan;
    Profile profile;
  };
  using Runs = std::vector<Run>;
  /// By LayerKey(), and by job its runs, the oldest first.
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
  int64_t disturbed_at_ = 0;  // when something was measured beside other programs; 0 = nothing was
};

}  // namespace strata::lua
