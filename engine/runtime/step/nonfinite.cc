// The step is run once more on all ranks with an Examiner. Each rank reports its first finding as
// JSON; after a gather all ranks select the same first finding, which becomes the report.
#include "engine/runtime/step/nonfinite.h"

#include <cmath>
#include <utility>

#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata {
namespace {

const Doing kExamines = {-1, "EXAMINE"};

}  // namespace

void NonFiniteSteps::Begin() { stages_.KeepState(); }

bool NonFiniteSteps::End(const Totals& totals, const std::function<std::unique_ptr<Feed>()>& feed,
                         int64_t step, StepVerdict& verdict) {
  LossScale& scale = stages_.loss_scale();
  const bool overflowed =
      !totals.are_finite() && std::isfinite(totals.mean_loss()) && scale.can_go_back();
  scale.Update(totals.are_finite());
  verdict.loss_scale = scale.value();
  if (overflowed) {
    stages_.RestoreState();
    return true;
  }
  const bool was_finite = std::exchange(was_finite_, totals.are_finite());
  if (was_finite_) return false;
  verdict.nonfinite = counts() && !was_finite ? NonFinite() : Examine(totals, *feed(), step);
  std::string& report = verdict.nonfinite->report;
  const std::string name = Str("step ", step + 1);
  if (counts()) {
    if (!report.empty()) report = Str(name, " counts although ", report);
    runner_.Update();
    return false;
  }
  stages_.RestoreState();
  verdict.is_taken = context_.job.nonfinite == "skip" && verdict.nonfinite->has_finite_weights;
  report = Str(name, verdict.is_taken ? " was left out: " : " was not taken: ", report);
  return verdict.is_taken;
}

NonFinite NonFiniteSteps::Examine(const Totals& totals, Feed& feed, int64_t step) {
  const auto of_all = static_cast<int64_t>(totals.loss_sums.size());
  stages_.RestoreState();  // so that the step runs as it did before
  Examiner examiner(context_.replica * of_all / context_.replicas,
                    Str(Place(feed.origin().where), "the data"));
  runner_.Examine(feed, step, examiner);
  const AtMeeting meeting(context_.progress, kExamines);
  NonFinite found =
      FirstOf(context_.transport.Gather(ToText(examiner.first(), stages_.has_finite_weights())));
  found.report = Str("the loss is ", NumberText(totals.mean_loss()), ", the norm of its gradient ",
                     NumberText(totals.grad_norm()), ": ", found.report);
  return found;
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "nan";
  return Str(value);
}

std::string ToText(const std::optional<Finding>& finding, bool has_finite_weights) {
  Value value = Value::MakeMap({{"has_finite_weights", has_finite_weights}});
  if (finding) {
    value.Set("is_gradient", finding->is_gradient).Set("micro_batch", finding->micro_batch);
    value.Set("place", finding->place).Set("text", finding->text);
  }
  return value.ToJson();
}

NonFinite FirstOf(const std::vector<std::string>& texts) {
  NonFinite result = {
      "when it runs again all values are finite; either a sum over replicas is too large, or the "
      "data or a function of the script gives other values each time",
      true};
  std::optional<Finding> first;
  for (const std::string& text : texts) {
    const Value value = Value::FromJson(text);
    result.has_finite_weights &= value["has_finite_weights"].as_bool();
    if (!value.Has("text")) continue;
    Finding finding = {value["is_gradient"].as_bool(), value["micro_batch"].as_int(),
                       value["place"].as_int(), value["text"].as_string()};
    if (!first || finding < *first) first = std::move(finding);
  }
  if (first) result.report = first->text;
  return result;
}

}  // namespace strata
