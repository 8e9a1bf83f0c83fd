// PartFile: a file that gets its name only when it is complete, and that a later run can continue.
//
// F.part contains what was written so far. F.part.log has a line for each complete part: where in
// F.part it ends, its digest, and the writer's state. So whenever a process is killed, the next run
// finds the last valid part, and nobody mistakes F.part for F.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/value.h"

namespace strata::launcher {

class PartFile {
 public:
  /// Opens F.part after its last valid part, or begins it. `what` identifies the content: an F.part
  /// with another `what` is refused. The first `head` bytes may change until the end. Throws
  /// WorldError if something is at `path`, or if another process writes F.part; ConfigError if
  /// F.part has another content.
  PartFile(std::string path, const std::string& what, int64_t head);
  /// Removes F.part if it has no valid part.
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// The state that was given to Add() with the last valid part; null = there is none.
  const Value& state() const { return state_; }
  int64_t parts() const { return parts_; }
  /// Writes the next part.
  void Add(std::string_view bytes, const Value& state);
  /// The bytes of a part. REQUIRES: part < parts().
  std::string Part(int64_t part) const;
  /// Makes all parts invalid: the next run begins anew.
  void Discard();
  /// Writes the first bytes, and renames F.part to F.
  void Finish(std::string_view head);
  /// Instead of Finish(): gives the name F to the file `beside` (PlaceBeside()), which is written
  /// and synced.
  void FinishAs(const std::string& beside);

 private:
  void GoOn(const std::vector<std::string>& lines);
  std::string Bytes(int64_t begin, int64_t end) const;

  const std::string path_, part_, log_;
  Fd file_, lines_;
  Value state_;
  std::vector<int64_t> ends_;  // of the head, and of each part
  int64_t parts_ = 0;
};

}  // namespace strata::launcher
