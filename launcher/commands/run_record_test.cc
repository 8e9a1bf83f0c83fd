// Tests of the difference that FirstDifference() names.
#include "launcher/commands/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace strata::launcher {
namespace {

RunRecord Recorded(const std::string& name) {
  RunRecord run;
  run.name = name;
  for (int64_t step = 0; step < 2; ++step) {
    StepNumbers result;
    result.step = step;
    result.loss = 0.1;
    result.grad_norm = 2.5;
    result.micro_batch_losses = {0.05, 0.15};
    result.gradients = {{"0.weight", "aa", 1}, {"0.bias", "bb", 2}};
    run.steps.push_back(result);
  }
  run.parameters = {{"0.weight", "cc", 3}, {"0.bias", "dd", 4}};
  return run;
}

class FirstDifferenceTest : public testing::Test {
 protected:
  std::string Difference() { return FirstDifference(a, b); }
  RunRecord a = Recorded("pipe 3");
  RunRecord b = Recorded("pipe 1");
};

TEST_F(FirstDifferenceTest, EqualRuns) { EXPECT_EQ(Difference(), ""); }

TEST_F(FirstDifferenceTest, TwoLossesThatAreNoNumbersAreEqual) {
  a.steps[0].loss = b.steps[0].loss = std::nan("");
  EXPECT_EQ(Difference(), "");
  b.steps[0].loss = 1;
  EXPECT_EQ(Difference(), "step 0: the loss differs: nan with pipe 3, 1 with pipe 1");
}

TEST_F(FirstDifferenceTest, TheLastBitOfALoss) {
  b.steps[1].loss = std::nextafter(0.1, 1);
  EXPECT_EQ(Difference(),
            "step 1: the loss differs: 0.1 with pipe 3, 0.10000000000000002 with pipe 1");
}

TEST_F(FirstDifferenceTest, AToleranceIsAShare) {
  const auto difference = [&] { return FirstDifference(a, b, 1e-6); };
  b.steps[1].loss *= 1 + 0.9e-6;
  b.steps[0].gradients[1] = {"0.bias", "b0", 2 * (1 + 9e-6)};
  b.parameters[0] = {"0.weight", "c0", 3};
  EXPECT_EQ(difference(), "");
  b.steps[1].loss *= 1 + 0.2e-6;
  EXPECT_THAT(difference(), testing::StartsWith("step 1: the loss differs"));
  b.steps[1].loss = 0.1;
  b.parameters[0].norm = 3.0001;
  EXPECT_THAT(difference(), testing::StartsWith("after the last step: the parameter 0.weight"));
  b.parameters[0] = {"0.bias", "cc", 3};
  EXPECT_THAT(difference(), testing::HasSubstr("the list of parameters differs"));
}

// The gradient of a bias before a BatchNorm consists only of rounding errors.
TEST_F(FirstDifferenceTest, SmallTensorsAreMeasuredAgainstAll) {
  const auto difference = [&] { return FirstDifference(a, b, 1e-6); };
  for (RunRecord* run : {&a, &b}) {
    run->steps[0].gradients.push_back({"1.bias", "cc", 8e-8});
    run->parameters.push_back({"1.bias", "ee", 1e-7});
  }
  b.steps[0].gradients[2] = {"1.bias", "c0", 3e-8};
  b.parameters[2] = {"1.bias", "e0", 2e-7};
  EXPECT_EQ(difference(), "");
  b.parameters[2].norm = 1e-5;
  EXPECT_THAT(difference(), testing::StartsWith("after the last step: the parameter 1.bias"));
  b.steps[0].gradients[2].norm = 5e-6;
  EXPECT_THAT(difference(), testing::StartsWith("step 0: the gradient 1.bias differs"));
  b.steps[0].gradients[1].norm = std::numeric_limits<double>::infinity();
  EXPECT_THAT(difference(), testing::StartsWith("step 0: the gradient 0.bias differs"));
}

TEST_F(FirstDifferenceTest, MicroBatches) {
  b.steps[1].micro_batch_losses[1] = 0.25;
  EXPECT_EQ(Difference(),
            "step 1: the loss of micro-batch 1 differs: 0.15 with pipe 3, 0.25 with pipe 1");
  b.steps[1].micro_batch_losses.pop_back();
  EXPECT_EQ(Difference(),
            "step 1: the number of micro-batches differs: 2 with pipe 3, 1 with pipe 1");
}

TEST_F(FirstDifferenceTest, AGradientIsNamedWithItsPath) {
  b.steps[0].gradients[1] = {"0.bias", "b0", 2.5};
  EXPECT_EQ(Difference(),
            "step 0: the gradient 0.bias differs: bb (norm 2) with pipe 3, b0 (norm 2.5) with pipe "
            "1");
}

TEST_F(FirstDifferenceTest, AnEarlierStepComesFirst) {
  b.steps[1].loss = 7;
  b.steps[0].grad_norm = 3;
  EXPECT_EQ(Difference(), "step 0: the gradient's norm differs: 2.5 with pipe 3, 3 with pipe 1");
}

TEST_F(FirstDifferenceTest, Parameters) {
  b.parameters[0].digest = "c0";
  EXPECT_EQ(Difference(),
            "after the last step: the parameter 0.weight differs: cc (norm 3) with pipe 3, "
            "c0 (norm 3) with pipe 1");
}

TEST_F(FirstDifferenceTest, MissingThings) {
  b.parameters.pop_back();
  EXPECT_EQ(Difference(),
            "after the last step: the number of parameters differs: 2 with pipe 3, 1 with pipe 1");
  b.parameters[0].path = "1.weight";
  EXPECT_EQ(Difference(),
            "after the last step: the list of parameters differs: 0.weight with pipe 3, 1.weight "
            "with pipe 1");
  b.steps.pop_back();
  EXPECT_EQ(Difference(), "the number of steps differs: 2 with pipe 3, 1 with pipe 1");
}

TEST(VerifiedStepTest, SurvivesTheWay) {
  RunRecord sent = Recorded("a"), received = Recorded("b");
  sent.steps[0].loss = std::nan("");
  for (StepNumbers& step : received.steps) step = StepNumbers();
  for (size_t i = 0; i < sent.steps.size(); ++i) {
    const std::string json = VerifiedStepValue(sent.steps[i]).ToJson();
    received.steps[i] = VerifiedStepFrom(Value::FromJson(json));
  }
  EXPECT_EQ(FirstDifference(sent, received), "");
}

}  // namespace
}  // namespace strata::launcher
