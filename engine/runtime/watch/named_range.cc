// Ranges of NVTX, if its headers are available.
#include "engine/runtime/watch/named_range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define STRATA_HAS_NVTX 1
#else
#define STRATA_HAS_NVTX 0
#endif

namespace strata {
namespace {

thread_local const NamedRange* innermost = nullptr;

#if STRATA_HAS_NVTX
void Push(const char* name) { nvtxRangePushA(name); }
void Pop() { nvtxRangePop(); }
#else
void Push(const char*) {}
void Pop() {}
#endif

}  // namespace

NamedRange::NamedRange(const char* name) : name_(name), outer_(innermost) {
  innermost = this;
  Push(name);
}

NamedRange::~NamedRange() {
  Pop();
  innermost = outer_;
}

std::string NamedRange::Place() {
  std::string place;
  for (const NamedRange* range = innermost; range != nullptr; range = range->outer_) {
    place = place.empty() ? range->name_ : range->name_ + (", " + place);
  }
  return place;
}

std::string NamedRange::Outermost() {
  std::string name;
  for (const NamedRange* range = innermost; range != nullptr; range = range->outer_) {
    name = range->name_;
  }
  return name;
}

bool HasNamedRanges() { return STRATA_HAS_NVTX; }

}  // namespace strata
