// NamedRange: what a thread does, by name, for a profiler that listens (NVTX: Nsight Systems and
// others), and for reports of the thread itself. Without a profiler it costs some stores.
// Torch-free.
#pragma once

#include <string>

namespace strata {

/// From its making to its end the thread is at `name`; they nest.
class NamedRange {
 public:
  explicit NamedRange(const char* name);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

  /// Where the calling thread is, from the outside inwards: "1F3, Linear 2"; "" = nowhere.
  static std::string Place();
  /// The outermost of these: "1F3".
  static std::string Outermost();

 private:
  const char* const name_;
  const NamedRange* const outer_;
};

/// Whether NVTX is compiled in: its headers come with CUDA's. Else nothing is ever named.
bool HasNamedRanges();

}  // namespace strata
