// plan:svg() and plan:html(): pictures of a plan as text. Scripts write no files; `strata plan
// --svg=F --html=F` does.

#include "engine/picture/page.h"
#include "engine/picture/plan_picture.h"
#include "engine/picture/svg.h"
#include "engine/predict/forecast.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/object.h"
#include "lua/library/job_object.h"

namespace strata::lua {
namespace {

picture::Picture PictureOf(lua_State* L, const PlanObject& self) {
  const StepForecast forecast =
      ForecastHere(self.job, self.plan, &State::Core::Of(L).owner.script());
  return picture::PlanPicture(self.job, self.plan, forecast);
}

}  // namespace

int PlanSvg(lua_State* L) {
  PushText(L, picture::ToSvg(PictureOf(L, Self<PlanObject>(L))));
  return 1;
}

int PlanHtml(lua_State* L) {
  PushText(L, picture::ToHtml(PictureOf(L, Self<PlanObject>(L))));
  return 1;
}

}  // namespace strata::lua
