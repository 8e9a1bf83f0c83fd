// NamedRange: what a thread does, by name, for a profiler that listens (NVTX: Nsight Systems and
// others). Without one it costs a look at a pointer. Torch-free.
#pragma once

namespace strata {

/// From its making to its end the thread is at `name`; they nest.
class NamedRange {
 public:
  explicit NamedRange(const char* name);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

/// Whether NVTX is compiled in: its headers come with CUDA's. Else nothing is ever named.
bool HasNamedRanges();

}  // namespace strata
