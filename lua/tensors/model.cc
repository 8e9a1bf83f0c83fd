#include "lua/tensors/model.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/axis/axis_scope.h"
#include "engine/layers/axis/crossing.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {

at::Tensor CrossUnlocked(lua_State* L, const at::Tensor& x, Crossing how, int64_t dim) {
  const int64_t dims = std::max<int64_t>(x.dim(), 1);
  if (dim < -dims || dim >= dims) {
    throw ConfigError(Str("strata.model: a tensor ", DescribeTensor(x), " has no dim ", dim));
  }
  const std::shared_ptr<AxisComm> axis = CurrentAxis();
  if (!axis) return x;
  State& state = State::Of(L);
  const Random random = state.core().random;  // others draw from theirs meanwhile
  at::Tensor y;
  {
    const Unlocked unlocked(state);
    y = Cross(x, how, axis, dim);
  }
  state.core().random = random;
  return y;
}

namespace {

template <Crossing kHow>
int CrossTo(lua_State* L) {
  const at::Tensor x = TensorArgument(L, 1, "a tensor");
  constexpr bool kHasDim = kHow != Crossing::kCopy && kHow != Crossing::kReduce;
  int64_t dim = kHasDim ? -1 : 0;
  if (kHasDim && !lua_isnoneornil(L, 2)) dim = IntArgument(L, 2, "a dim");
  PushTensor(L, CrossUnlocked(L, x, kHow, dim));
  return 1;
}

int Rank(lua_State* L) {
  const auto axis = CurrentAxis();
  lua_pushinteger(L, axis ? axis->rank() : 0);
  return 1;
}

int Size(lua_State* L) {
  const auto axis = CurrentAxis();
  lua_pushinteger(L, axis ? axis->size() : 1);
  return 1;
}

int UnknownFunction(lua_State* L) {
  const std::string name = TextArgument(L, 2, "a name");
  const std::vector<std::string> names = ShapeOf(L, 1).names;
  throw ConfigError(Str("there is no strata.model.", name, DidYouMean(name, names, names.size())));
}

}  // namespace

void OpenModel(lua_State* L) {
  lua_getfield(L, -1, "model");
  const NamedFunction functions[] = {
      {"rank", Bound<Rank>, "strata.model.rank(): this rank on the model axis"},
      {"size", Bound<Size>, "strata.model.size(): ranks of the model axis"},
      {"copy", Bound<CrossTo<Crossing::kCopy>>,
       "strata.model.copy(x): x; the ranks' gradients are summed"},
      {"reduce", Bound<CrossTo<Crossing::kReduce>>,
       "strata.model.reduce(x): the sum over the ranks; the gradient stays"},
      {"gather", Bound<CrossTo<Crossing::kGather>>,
       "strata.model.gather(x [, dim]): the ranks' parts behind each other; the gradient: the own "
       "part"},
      {"scatter", Bound<CrossTo<Crossing::kScatter>>,
       "strata.model.scatter(x [, dim]): the own part; the gradient: all parts"},
      {"gather_summed", Bound<CrossTo<Crossing::kGatherSummed>>,
       "strata.model.gather_summed(x [, dim]): as gather; the gradient: the own part of the sum"},
      {"reduce_scatter", Bound<CrossTo<Crossing::kReduceScatter>>,
       "strata.model.reduce_scatter(x [, dim]): the own part of the sum; the gradient: all parts"}};
  SetFunctions(L, functions);
  SetUnknownName(L, Bound<UnknownFunction>);
  lua_pop(L, 1);
}

}  // namespace strata::lua
