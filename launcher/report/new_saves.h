// NewSaves: what a job has saved since its launcher began. A job that is started again goes on from
// there; where nothing is new, it begins as it did the first time.
#pragma once

#include <string>

namespace strata::launcher {

class NewSaves {
 public:
  /// Before anything is saved to `folder`, job.save.dir; "" = the job has none. Notes what is
  /// there.
  void Begin(const std::string& folder);
  /// The path of a save that was reported. The folder may be one of another machine, unseen here.
  void Add(const std::string& path);

  /// Whether the job has a folder for saves.
  bool can_be() const { return !last_.folder.empty(); }
  /// What --resume takes to go on: "latest"; where only the best was saved (job.save.best), the
  /// path of that; "" where nothing is new.
  std::string Resume() const;

 private:
  struct Place {
    std::string folder = {};
    std::string before = {};  // the newest save when the launcher began
    std::string told = {};    // the path of a newer one
    bool is_here = false;     // that is on this machine
    void Begin(const std::string& path);
    std::string Newest() const;
  };

  Place last_, best_;
};

}  // namespace strata::launcher
