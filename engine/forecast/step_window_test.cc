#include "engine/forecast/step_window.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

MeasuredStep StepOf(double seconds) {
  return {.stages = {{seconds, 2 * seconds}}, .seconds = seconds, .update = 3 * seconds};
}

TEST(StepWindow, GivesTheMediansOfFullWindows) {
  StepWindow window;
  for (int step = 0; step < StepWindow::kUnsettled; ++step) EXPECT_FALSE(window.Add(StepOf(100)));
  for (const double seconds : {1, 2, 3, 4, 50, 60, 7, 8, 9}) {
    EXPECT_FALSE(window.Add(StepOf(seconds)));
  }
  const std::optional<MeasuredStep> medians = window.Add(StepOf(5));
  ASSERT_TRUE(medians);
  EXPECT_EQ(medians->seconds, 7);
  EXPECT_EQ(medians->stages[0].backward, 14);
  EXPECT_EQ(medians->update, 21);
  EXPECT_FALSE(window.Rest()) << "the next window has begun";
}

TEST(StepWindow, FewStepsTellWhereThereAreNoMore) {
  StepWindow window;
  for (int step = 0; step < StepWindow::kUnsettled; ++step) window.Add(StepOf(100));
  for (int step = 1; step < StepWindow::kFewest; ++step) window.Add(StepOf(1));
  EXPECT_FALSE(window.Rest());
  window.Add(StepOf(2));
  ASSERT_TRUE(window.Rest());
  EXPECT_EQ(window.Rest()->seconds, 1);
  window.Restart();
  EXPECT_FALSE(window.Rest()) << "they were another program's";
}

}  // namespace
}  // namespace strata
