// OutputQueue: what this process shows on its standard output and standard error. Its reader may be
// slow or stopped (a pager, a full pipe), and the launcher must go on all the same.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/fd.h"
#include "launcher/process/waiting.h"

namespace strata::launcher {

struct OutputFailure {
  std::string what;        ///< "cannot write to NAME: ..."
  bool is_closed = false;  ///< the reader has ended
};

/// Texts for one or several descriptors, written in the order in which they came.
class OutputQueue {
 public:
  /// Waits until everything is written, unless set_waits(false) was called. When writing fails,
  /// what waits for that descriptor is dropped, and WorldError "cannot write to NAME: ..." is
  /// thrown; or, of a queue that does not wait, kept as failure(); or, after Hurry(), nobody is
  /// told. REQUIRES: SIGPIPE is ignored, where the end of a reader shall be a failure.
  void Write(int fd, std::string_view text, const char* name);
  /// false: Write() and Flush() write only what the descriptors take at once.
  void set_waits(bool waits);
  /// From now on waits for the readers at most `seconds` in all, and then drops what they do not
  /// take, as it does what cannot be written.
  void Hurry(double seconds) { deadline_ = MonotonicSeconds() + seconds; }

  void Flush();
  /// The first failure since set_waits(false). Null: there was none.
  const OutputFailure* failure() const { return failure_ ? &*failure_ : nullptr; }
  bool empty() const { return texts_.empty(); }
  /// True when more waits than should: then nothing more should be read that leads to output.
  bool is_full() const { return bytes_ > kMost; }
  /// Adds the source that writes on; none when nothing waits.
  void AddTo(std::vector<Source>& sources);

 private:
  static constexpr size_t kMost = 1 << 20;  // bytes
  struct Text {
    int fd;
    const char* name;
    std::string rest;
  };

  bool may_block() const { return waits_ && deadline_ == kNever; }
  int Descriptor(int fd);
  ssize_t WriteSome(const Text& text);
  void OnFailure(int error);
  void WaitUntilEmpty();
  void Drop(int fd);

  std::deque<Text> texts_;
  size_t bytes_ = 0;
  bool waits_ = true;
  double deadline_ = kNever;
  std::optional<OutputFailure> failure_;
  std::map<int, Fd> nonblocking_;  // the descriptors, opened again
};

}  // namespace strata::launcher
