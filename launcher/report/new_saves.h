// NewSaves: what a job has saved since its launcher began. A restarted job resumes from there; if
// nothing is new, it starts as it did the first time.
#pragma once

#include <string>

namespace strata::launcher {

class NewSaves {
 public:
  /// Call before anything is saved. `folder`: job.save.dir; "" = the job has none. Notes which
  /// saves exist.
  void Begin(const std::string& folder);
  /// Adds the path of a save that was reported. Its folder may be on another machine and not
  /// visible here.
  void Add(const std::string& path);

  /// True if the job has a folder for saves.
  bool can_be() const { return !last_.folder.empty(); }
  /// The value of --resume that continues the job: "latest"; the path of the best save if only that
  /// was saved (job.save.best); "" if nothing is new.
  std::string Resume() const;

 private:
  struct Place {
    std::string folder = {};
    std::string before = {};  // the newest save when the launcher began
    std::string told = {};    // the path of a newer save that was reported
    bool is_here = false;     // that save is visible on this machine
    void Begin(const std::string& path);
    std::string Newest() const;
  };

  Place last_, best_;
};

}  // namespace strata::launcher
