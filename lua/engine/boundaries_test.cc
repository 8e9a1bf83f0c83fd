// Tensors that cross between stages: several, of any type, in changing shapes, and by way of
// strata.skip. Every job here trains to the same bits on one stage and on several.

#include "engine/base/text.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kBegin[] = R"(
nn, F = strata.nn, strata.F
function rows(i, n) return F.arange(n * 4, {dtype="float32"}):view(n, 4):mul(0.37):add(i % 5):sin() end
function labels(i, n) return F.arange(n):add(i):remainder(2) end
function job(layers, data, more)
  local keys = {
    name = "net", device = "cpu", threads = 1, layers = layers, steps = 3, losses = true,
    loss = nn.CrossEntropyLoss{},
    batch = {micro_batches = 3, micro_batch_size = 4},
    optimizer = {"sgd", lr = 0.1, momentum = 0.9}, clip = 1,
    data = {train = data or function(i) return rows(i, 4), labels(i, 4) end},
  }
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end
function digits(job, keys)
  local list = {}
  for _, step in ipairs(job:train(keys)) do
    list[#list + 1] = ("%.17g %.17g"):format(step.loss, step.grad_norm)
  end
  return table.concat(list, ", ")
end
-- The same with one stage and with any number that the layers allow, in both schedules.
function same(job, most)
  local whole = digits(job, {pipe = 1})
  for pipe = 2, most do
    for _, schedule in ipairs{"1f1b", "gpipe"} do
      local cut = digits(job, {pipe = pipe, schedule = schedule, transport = "threads",
                               partition = "uniform"})
      if cut ~= whole then
        error(("pipe %d, %s:\n%s\n%s"):format(pipe, schedule, cut, whole))
      end
    end
  end
  return "same"
end
)";

using BoundariesTest = BegunTest<kBegin>;

TEST_F(BoundariesTest, SkipsGoToAnyLaterStage) {
  EXPECT_EQ(
      Show("same(job{nn.Linear{4, 8}, strata.skip{'a'}, nn.ReLU{inplace=true}, "
           "nn.Linear{8, 8}, strata.skip{'b'}, nn.Dropout{0.2}, nn.Linear{8, 8}, "
           "strata.join{'a'}, nn.Tanh{}, strata.join{'b', how='cat'}, nn.Linear{16, 2}}, 11)"),
      "\"same\"");
}

TEST_F(BoundariesTest, OneValueMayBeSkippedTwice) {
  EXPECT_EQ(Show("same(job{nn.Linear{4, 8}, strata.skip{'a'}, strata.skip{'b'}, strata.skip{'c'}, "
                 "nn.Linear{8, 8}, strata.join{'b'}, nn.GELU{}, strata.join{'a'}, "
                 "strata.join{'c'}, nn.Linear{8, 2}}, 10)"),
            "\"same\"");
}

TEST_F(BoundariesTest, SkipsOfTheInputItself) {
  EXPECT_EQ(Show("same(job{strata.skip{'x'}, nn.Linear{4, 4}, nn.ReLU{}, strata.join{'x'}, "
                 "nn.Linear{4, 2}}, 5)"),
            "\"same\"");
}

TEST_F(BoundariesTest, SeveralTensorsOfAnyType) {
  // A float, a mask and an index cross every cut; the mask and the index have no gradient.
  EXPECT_EQ(Show(R"(same(job{
    nn.Linear{4, 8},
    function(x) return x, x:gt(0), F.arange(x.shape[1]) end,
    function(x, mask, index) return x:mul(2), mask, index end,
    function(x, mask, index) return x:masked_fill(mask, 0.5), index end,
    function(x, index) return x:index_select(0, index) end,
    nn.Linear{8, 2}}, 6))"),
            "\"same\"");
}

TEST_F(BoundariesTest, DataMayGiveSeveralTensors) {
  Show(R"(masked = function(i)
    return {rows(i, 4), rows(i + 1, 4):gt(0)}, labels(i, 4)
  end)");
  EXPECT_EQ(Show("same(job({function(x, mask) return x:masked_fill(mask, 0), mask end, "
                 "function(x, mask) return x:add(mask:to('float32')) end, nn.Linear{4, 8}, "
                 "nn.Tanh{}, nn.Linear{8, 2}}, masked), 5)"),
            "\"same\"");
}

TEST_F(BoundariesTest, AnInputThatNobodyUses) {
  EXPECT_EQ(Show(R"(same(job{
    nn.Linear{4, 8}, function(x) return x, x:mul(3) end,
    function(x, unused) return x end, nn.Linear{8, 2}}, 4))"),
            "\"same\"");
}

TEST_F(BoundariesTest, FrozenStagesAndStagesWithoutParameters) {
  EXPECT_EQ(Show("same(job({nn.Linear{4, 8}, nn.Tanh{}, nn.ReLU{}, nn.Linear{8, 8}, nn.Flatten{}, "
                 "nn.Linear{8, 2}}, nil, {freeze = {0, 3}}), 6)"),
            "\"same\"");
  EXPECT_EQ(Show("same(job({nn.Linear{4, 8}, nn.Tanh{}, nn.Linear{8, 2}}, nil, "
                 "{freeze = {0}}), 3)"),
            "\"same\"");
}

TEST_F(BoundariesTest, ShapesMayChangeFromMicroBatchToMicroBatch) {
  // The number of rows and the length of the second dim change, in some steps and not in others.
  Show(R"(varying = function(i)
    local n = (i < 3) and 4 or 2 + i % 3
    local length = (i < 5) and 3 or 2 + i % 4
    return F.arange(n * length):view(n, length):add(i):remainder(10), labels(i, n)
  end)");
  EXPECT_EQ(
      Show("same(job({nn.Embedding{10, 8}, nn.Dropout{0.1}, strata.skip{'x'}, nn.Linear{8, 8}, "
           "nn.GELU{}, strata.join{'x'}, function(x) return x:mean(1) end, nn.Linear{8, 2}}, "
           "varying, {steps = 5}), 8)"),
      "\"same\"");
}

TEST_F(BoundariesTest, WhatDoesNotFitIsRefusedBeforeTheFirstStep) {
  EXPECT_THAT(Fail("job{nn.Linear{4, 8}, strata.skip{'a'}, nn.Linear{8, 2}}"),
              AllOf(HasSubstr("layer 1 skip(key=\"a\")"), HasSubstr("strata.join{\"a\"}")));
  EXPECT_THAT(Fail("job{nn.Linear{4, 8}, strata.join{'a'}}"), HasSubstr("layer 1 join(key=\"a\")"));
  EXPECT_THAT(Fail("job({nn.Linear{4, 2}}, function(i) return rows(i, 3), labels(i, 3) end)"
                   ":train{}"),
              AllOf(HasSubstr("micro-batch 0"), HasSubstr("3 rows"), HasSubstr("of 4 rows")));
  EXPECT_THAT(Fail("job({nn.Linear{4, 2}}, function(i) return {}, labels(i, 3) end):train{}"),
              HasSubstr("the data function"));
}

TEST_F(BoundariesTest, AMicroBatchThatNoLayerTakesIsNamed) {
  EXPECT_THAT(Fail("job({nn.Linear{4, 4}, nn.Linear{4, 2}}, function(i) "
                   "if i == 4 then return F.ones{4, 5}, labels(i, 4) end "
                   "return rows(i, 4), labels(i, 4) end):train{pipe = 2, transport = 'threads'}"),
              AllOf(HasSubstr("layer 0 Linear(4, 4)"), HasSubstr("(4, 5)")));
  EXPECT_THAT(Fail("job({nn.Linear{4, 2}}, function(i) local n = i < 3 and 4 or 0 "
                   "return F.ones{n, 4}, F.zeros({n}, {dtype='int64'}) end):train{}"),
              AllOf(HasSubstr("micro-batch 3"), HasSubstr("without rows")));
}

}  // namespace
}  // namespace strata::lua
