// The NCCL transport over the fake NCCL: ranks are threads, devices shadows.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/make_engine.h"
#include "tests/shadow/ranks.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using ::testing::Each;
using testing::FakeScript;
using testing::Function;
using ::testing::IsEmpty;
using testing::Make;
using testing::MapOf;

class ShadowNcclTest : public ::testing::Test {
 protected:
  ShadowNcclTest() { Machine::Get().Reset(); }
  FakeNccl nccl_;
};

Job TwoStages(const char* schedule) {
  return testing::MakeJob({Make("Linear", {6, 8}), Make("ReLU"), Make("Linear", {8, 5})},
                          Make("CrossEntropyLoss"),
                          {{"input", MapOf({{"shape", Value::IntList({6})}})},
                           {"parallel", MapOf({{"pipe", 2}})},
                           {"schedule", schedule},
                           {"data", MapOf({{"train", Function(1)}})},
                           {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}})},
                           {"steps", 2}});
}

FakeScript Script() {
  FakeScript script;
  script.data[1] = [](int64_t i) {
    return MicroBatch{{at::arange(48, at::kFloat).add(i).sin().view({8, 6})},
                      {at::arange(8).add(i).remainder(5)}};
  };
  return script;
}

// Finding 1 of the review: NCCL connects two ranks at their first message, and the host waits for
// the other's call meanwhile.
TEST_F(ShadowNcclTest, TheFirstStepOfTwoStagesEnds) {
  FakeScript planning = Script();
  const Job job = TwoStages("1f1b");
  const Plan plan = PlanOn("shadow", job, planning);
  const auto errors =
      RunRanks(nccl_, 2, LinksOf(plan), GroupsOf(plan), [&](std::unique_ptr<Transport> transport) {
        FakeScript script = Script();
        RankPlace place;
        place.rank = place.local_rank = transport->rank();
        place.world_size = place.local_world_size = 2;
        const auto engine = MakeRankEngine(job, plan, script, std::move(transport), place);
        engine->TrainStep();
        engine->Close();
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(Machine::Get().reports(), IsEmpty());
  EXPECT_THAT(nccl_.misuses(), IsEmpty());
}

}  // namespace
}  // namespace strata::shadow
