// OutputQueue: the queue of text for this process's standard output and standard error. A reader
// may be slow or stopped (a pager, a full pipe), and the launcher must continue all the same.
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

/// Texts for one or several descriptors, written in the order of the calls.
class OutputQueue {
 public:
  /// Queues the text, writes, and waits until everything is written, unless set_waits(false) was
  /// called. If writing fails, the queued texts for that descriptor are dropped. Then WorldError
  /// "cannot write to NAME: ..." is thrown; a queue that does not wait keeps it as failure()
  /// instead; after Hurry() it is ignored. REQUIRES: SIGPIPE is ignored, if the end of a reader
  /// shall be a failure.
  void Write(int fd, std::string_view text, const char* name);
  /// If false, Write() and Flush() write only what the descriptors take immediately.
  void set_waits(bool waits);
  /// From now on waits for the readers at most `seconds` in all, and then drops what they have not
  /// taken.
  void Hurry(double seconds) { deadline_ = MonotonicSeconds() + seconds; }

  void Flush();
  /// The first failure since set_waits(false); null if there was none.
  const OutputFailure* failure() const { return failure_ ? &*failure_ : nullptr; }
  bool empty() const { return texts_.empty(); }
  /// True if so much is queued that nothing more should be read that leads to output.
  bool is_full() const { return bytes_ > kMost; }
  /// Adds the source that continues writing; none if the queue is empty.
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
