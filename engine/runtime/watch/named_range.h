// NamedRange: names what a thread does, for a profiler (NVTX: Nsight Systems and others) and for
// reports of the thread itself. Without a profiler it costs a few stores. Torch-free.
#pragma once

#include <string>

namespace strata {

/// The calling thread is in the range `name` while the object exists. Ranges nest.
class NamedRange {
 public:
  explicit NamedRange(const char* name);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

  /// The ranges of the calling thread, outermost first: "1F3, Linear 2"; "" if there are none.
  static std::string Place();
  /// The outermost range of the calling thread: "1F3".
  static std::string Outermost();

 private:
  const char* const name_;
  const NamedRange* const outer_;
};

/// True if NVTX, whose headers come with CUDA, is compiled in.
bool HasNamedRanges();

}  // namespace strata
