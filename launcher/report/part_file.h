// PartFile: a file that gets its name once it is whole, and that a later run goes on with.
//
// F.part has what was written, F.part.log a line for each part that is whole: where in F.part
// it ends, its digest, and what the writer wants to know again. So whatever is killed
// at whatever moment, the next run finds the last part that counts, and nothing takes F.part for F.
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
  /// Goes on with F.part behind the last part that counts, or begins it. `what` says what is
  /// written: F.part of anything else is refused. The first `head` bytes may change until the end.
  /// Throws WorldError when something is at `path`, or another process writes F.part; ConfigError
  /// for F.part of something else.
  PartFile(std::string path, const std::string& what, int64_t head);
  /// Removes F.part where no part of it counts.
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// As Add() was told of the last part that counts; null = there is none.
  const Value& state() const { return state_; }
  int64_t parts() const { return parts_; }
  /// Writes the next part.
  void Add(std::string_view bytes, const Value& state);
  /// The bytes of a part. REQUIRES: part < parts().
  std::string Part(int64_t part) const;
  /// Nothing of it counts any more: the next run begins anew.
  void Discard();
  /// Writes the first bytes, and gives the file its name.
  void Finish(std::string_view head);
  /// In its place: what was written and synced at `beside` (PlaceBeside()) gets the name.
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
