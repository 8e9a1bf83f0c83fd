// Functions of the script that change their inputs in place, under every plan.

#include <string>

#include "lua/testing.h"

namespace strata::lua {
namespace {

/// For each case: the keys of a job that works in place, and of an equal one that does not.
constexpr char kBegin[] = R"(
nn, F = strata.nn, strata.F
function data(i)
  return F.arange(8, {dtype="float32"}):view(2, 4):mul(0.1):add(i % 3), F.tensor{i % 2, (i + 1) % 2}
end
function net(...)
  return {layers = {...}}
end
first, last = nn.Linear{4, 8}, nn.Linear{8, 2}
buffer, mask, labels = F.zeros{2, 4}, F.ones{8}, F.tensor{0, 0}
cases = {
  data = {net(function(x) return x:sub_(0.5):div_(0.25) end, first, last),
          net(function(x) return (x - 0.5) / 0.25 end, first, last)},
  kept_by_the_layer_before = {net(first, nn.Tanh{}, function(x) return x:mul_(3):tanh() end, last),
                              net(first, nn.Tanh{}, function(x) return (x * 3):tanh() end, last)},
  fresh = {net(first, function(x) return x:relu_() end, last),
           net(first, function(x) return x:relu() end, last)},
  one_after_the_other = {net(first, function(x) return x:mul_(2) end, function(x) return x:add_(1) end,
                             function(x) return x:tanh_() end, last),
                         net(first, function(x) return x * 2 end, function(x) return x + 1 end,
                             function(x) return x:tanh() end, last)},
  by_way_of_a_view = {net(first, function(x) x:select(1, 1):fill_(0.5) return x end, nn.Unflatten{1, {2, 4}},
                          nn.Flatten{}, function(x) x:view{-1}:mul_(2) return x end, last),
                      net(first, function(x) return x:select_scatter(F.full({2}, 0.5), 1, 1) end,
                          nn.Identity{}, nn.Identity{}, function(x) return x * 2 end, last)},
  the_next_stage_writes_to_an_input = {net(first, function(x) return x end, function(x) return x:add_(1) end, last),
                                       net(first, nn.Identity{}, function(x) return x + 1 end, last)},
  a_skipped_value = {
    net(first, strata.skip{"a"}, function(x) return x:mul_(3) end, nn.Tanh{}, strata.join{"a"}, last),
    net(first, strata.skip{"a"}, function(x) return x * 3 end, nn.Tanh{}, strata.join{"a"}, last)},
  whole_numbers = {
    net(first, function(x) return x, x:gt(0):to("int64") end, function(x, m) return x, m end,
        function(x, m) return x * m:add_(2) end, last),
    net(first, function(x) return x, x:gt(0):to("int64") end, function(x, m) return x, m end,
        function(x, m) return x * (m + 2) end, last)},
  a_constant = {net(first, function(x) return x, mask end, function(x, m) return x * m:add_(1) end, last),
                net(first, nn.Identity{}, function(x) return x * 2 end, last)},
  inside_a_container = {
    net(first, nn.Sequential{nn.Tanh{}, function(x) return x:mul_(2) end},
        nn.Residual{function(x) return x:mul_(2) end}, last),
    net(first, nn.Sequential{nn.Tanh{}, function(x) return x * 2 end},
        nn.Residual{function(x) return x * 2 end}, last)},
  an_own_layer = {
    net(first, nn.Tanh{}, strata.layer{name = "Halves", forward = function(self, x) return x:div_(2) end}{}, last),
    net(first, nn.Tanh{}, function(x) return x / 2 end, last)},
  loss = {{layers = {first, last, nn.Softmax{1}}, loss = function(output, target)
             return F.nll_loss(output:log_(), target:mul_(-1):add_(1)) end},
          {layers = {first, last, nn.Softmax{1}}, loss = function(output, target)
             return F.nll_loss(output:log(), 1 - target) end}},
  data_in_one_buffer = {
    {layers = {function(x) return x:mul_(2) end, first, last}, data = {train = function(i)
      local x, y = data(i)
      return buffer:copy_(x), labels:copy_(y)
    end}},
    {layers = {function(x) return x * 2 end, first, last}}},
}
function job(keys)
  local all = {
    device = "cpu", threads = 1, input = {shape = {4}}, loss = nn.CrossEntropyLoss{}, steps = 3,
    batch = {micro_batches = 4, micro_batch_size = 2}, optimizer = {"sgd", lr = 0.1},
    data = {train = data}, schedule = "gpipe",
  }
  for name, value in pairs(keys) do all[name] = value end
  return strata.job(all)
end
-- What tells of the bits of a training.
function outcome(case, place, more)
  local list = {}
  for i, step in ipairs(job(cases[case][place]):train(more)) do
    list[i] = ("%.17g %.17g"):format(step.loss, step.grad_norm)
  end
  return table.concat(list, "\n")
end
function evaluated(case, place, more)
  local engine = job(cases[case][place]):start(more)
  local i = 0
  local function given()
    i = i + 1
    buffer:fill_(i)  -- what came before is no longer there
    if i <= 4 then return buffer, F.tensor{0, 1} end
  end
  local loss = engine:eval_batch(given)
  i = 0
  local trained = engine:train_batch(given)
  engine:close()
  return ("%.17g %.17g"):format(loss, trained)
end
)";

class InPlaceTest : public StateTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { Show(kBegin); }
  std::string Call(const std::string& function, int place, const std::string& more) {
    return Show(function + "('" + GetParam() + "', " + std::to_string(place) + ", {" + more + "})");
  }
};

TEST_P(InPlaceTest, GivesTheSameBitsOnEveryPlan) {
  const std::string expected = Call("outcome", 2, "pipe = 1");
  for (const char* plan : {"pipe = 1", "pipe = 2", "pipe = 3", "pipe = 1, recompute = true",
                           "pipe = 2, recompute = true", "pipe = 1, recompute = 'every:1'",
                           "pipe = 3, recompute = 'every:1', schedule = '1f1b'"}) {
    EXPECT_EQ(Call("outcome", 1, plan), expected) << plan;
  }
}

TEST_P(InPlaceTest, EvaluatesAndTakesGivenBatches) {
  const std::string expected = Call("evaluated", 2, "pipe = 1");
  for (const char* plan : {"pipe = 1", "pipe = 3"}) {
    EXPECT_EQ(Call("evaluated", 1, plan), expected) << plan;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, InPlaceTest,
                         ::testing::Values("data", "kept_by_the_layer_before", "fresh",
                                           "one_after_the_other", "by_way_of_a_view",
                                           "the_next_stage_writes_to_an_input", "a_skipped_value",
                                           "whole_numbers", "a_constant", "inside_a_container",
                                           "an_own_layer", "loss", "data_in_one_buffer"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace strata::lua
