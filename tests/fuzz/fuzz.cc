// One reader under libFuzzer: STRATA_FUZZ=NAME fuzz [OPTION...] [FOLDER...]; see campaign.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/readers.h"

namespace {
const strata::fuzz::Reader* reader = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("STRATA_FUZZ");
  reader = strata::fuzz::FindReader(name ? name : "");
  if (reader) return 0;
  std::fprintf(stderr, "STRATA_FUZZ is one of:");
  for (const auto& known : strata::fuzz::Readers()) std::fprintf(stderr, " %s", known.name);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  strata::fuzz::Takes(*reader, {reinterpret_cast<const char*>(bytes), size});
  return 0;
}
