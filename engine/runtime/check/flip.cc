// Parses $STRATA_FLIP and flips the bit.
#include "engine/runtime/check/flip.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/split_mix.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr const char* kVariable = "STRATA_FLIP";
// In the order of FlipAt.
constexpr std::array<const char*, 9> kNames = {"output",    "input_gradient", "weight_gradient",
                                               "message",   "packet",         "parameter",
                                               "unchecked", "state",          "update"};

std::atomic<int64_t> made = 0;

}  // namespace

int64_t FlipsMade() { return made; }

void Flip::Reach(FlipAt where, const Tensors& tensors) {
  if (where != at || (has_happened && !lasts)) return;
  std::vector<at::Tensor> hit;
  for (const at::Tensor& tensor : tensors) {
    const bool has_memory = tensor.defined() && tensor.numel() > 0 && tensor.const_data_ptr();
    if (has_memory && tensor.is_non_overlapping_and_dense()) hit.push_back(tensor);
  }
  if (hit.empty()) return;
  const at::Tensor& tensor = hit[SplitMix(seed) % hit.size()];
  const uint64_t bit = SplitMix(seed + 1) % (8 * tensor.nbytes());
  static_cast<unsigned char*>(tensor.mutable_data_ptr())[bit / 8] ^= 1U << (bit % 8);
  has_happened = true;
  ++made;
}

Flip ParseFlip(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ':');
  const auto refuse = [&](const std::string& why) {
    return ConfigError(Str(kVariable, "=", text, ": expected RANK:PLACE:SEED[:lasting]; ", why));
  };
  if (parts.size() != 3 && parts.size() != 4) throw refuse("there are three parts, or four");
  const auto rank = ParseWhole(parts[0]), seed = ParseWhole(parts[2]);
  if (!rank || !seed) throw refuse("the rank and the seed are whole numbers");
  const auto name = std::ranges::find(kNames, parts[1]);
  if (name == kNames.end()) throw refuse(Str("places are ", Join(kNames, ", ")));
  if (parts.size() == 4 && parts[3] != "lasting") throw refuse("the last part is \"lasting\"");
  return {.rank = *rank,
          .at = static_cast<FlipAt>(name - kNames.begin()),
          .seed = static_cast<uint64_t>(*seed),
          .lasts = parts.size() == 4};
}

std::optional<Flip> FlipOf(int rank) {
  const char* text = std::getenv(kVariable);
  if (!text) return std::nullopt;
  const Flip flip = ParseFlip(text);
  if (flip.rank != rank) return std::nullopt;
  return flip;
}

}  // namespace strata
