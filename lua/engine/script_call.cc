#include "lua/engine/script_call.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "engine/base/error.h"
#include "engine/base/tensors/dry_run.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

uint64_t DrawSeed() {
  const DryRun::Paused computes;
  return static_cast<uint64_t>(at::empty({}, at::kLong).random_().item<int64_t>());
}

}  // namespace

void RunIn(State& state, const std::function<void(lua_State*)>& body) {
  Session session(state, Watch::kLoosely);
  Random& current = state.core().random;
  struct Restore {
    Random& current;
    Random before;
    ~Restore() { current = std::move(before); }
  } restore{current, std::exchange(current, Random(DrawSeed))};
  session.Run([&](lua_State* L) {
    try {
      body(L);
    } catch (const c10::Error& error) {
      throw ConfigError(ErrorText(error));
    }
  });
}

}  // namespace strata::lua
