// strata.model: the exchange among the ranks of the model axis.
#include "lua/tensors/model.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/axis/axis_scope.h"
#include "engine/layers/axis/crossing.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/tensors/tensor_object.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {

at::Tensor CrossUnlocked(lua_State* L, const at::Tensor& x, Crossing how, int64_t dim) {
  const int64_t dims = std::max<int64_t>(x.dim(), 1);
  if (dim < -dims || dim >= dims) {
    throw ConfigError(Str("strata.model: a tensor ", DescribeTensor(x), " has no dim ", dim));
  }
  const std::shared_ptr<AxisComm> axis = CurrentAxis();
  if (!axis) return x;
  const Unlocked unlocked(State::Of(L));
  return Cross(x, how, axis, dim);
}

namespace {

template <Crossing kHow>
at::Tensor CrossTo(lua_State* L, const at::Tensor& x) {
  constexpr bool kHasDim = kHow != Crossing::kCopy && kHow != Crossing::kReduce;
  int64_t dim = kHasDim ? -1 : 0;
  if (kHasDim && !lua_isnoneornil(L, 2)) dim = IntArgument(L, 2, "a dim");
  return CrossUnlocked(L, at::Tensor(x), kHow, dim);
}

int Rank(lua_State*) {
  const auto axis = CurrentAxis();
  return axis ? axis->rank() : 0;
}

int Size(lua_State*) {
  const auto axis = CurrentAxis();
  return axis ? axis->size() : 1;
}

}  // namespace

void OpenModel(lua_State* L) {
  lua_getfield(L, -1, "model");
  const NamedFunction functions[] = {
      {"rank", Function<Rank>, "strata.model.rank(): this rank on the model axis"},
      {"size", Function<Size>, "strata.model.size(): ranks of the model axis"},
      {"copy", Function<CrossTo<Crossing::kCopy>>,
       "strata.model.copy(x): x; the ranks' gradients are summed"},
      {"reduce", Function<CrossTo<Crossing::kReduce>>,
       "strata.model.reduce(x): the sum over the ranks; the gradient stays"},
      {"gather", Function<CrossTo<Crossing::kGather>>,
       "strata.model.gather(x [, dim]): the ranks' parts behind each other; the gradient: the own "
       "part"},
      {"scatter", Function<CrossTo<Crossing::kScatter>>,
       "strata.model.scatter(x [, dim]): the own part; the gradient: all parts"},
      {"gather_summed", Function<CrossTo<Crossing::kGatherSummed>>,
       "strata.model.gather_summed(x [, dim]): as gather; the gradient: the own part of the sum"},
      {"reduce_scatter", Function<CrossTo<Crossing::kReduceScatter>>,
       "strata.model.reduce_scatter(x [, dim]): the own part of the sum; the gradient: all parts"}};
  SetFunctions(L, functions);
  RefuseUnknownNames(L, "strata.model.");
  lua_pop(L, 1);
}

}  // namespace strata::lua
