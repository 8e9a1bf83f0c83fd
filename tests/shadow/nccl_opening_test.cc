// NCCL that never opens. In a process of its own: ranks that are left while they open leave the
// machine so that those of later tests end uncleanly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shadow/fake_nccl.h"
#include "tests/shadow/machine.h"
#include "tests/shadow/ranks.h"

namespace strata::shadow {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// NCCL alone would try for ever.
TEST(NcclOpening, WhatDoesNotOpenInTimeIsAPeerError) {
  Machine::Get().Reset();
  FakeNccl nccl;
  nccl.CutNetwork();
  const auto errors = RunRanks(
      nccl, 2, {{0, 1, 0}, {1, 0, 1}}, {}, [](std::unique_ptr<Transport>) {}, 0.05);
  EXPECT_THAT(errors, Contains(AllOf(StartsWith("opening the link from rank 0 to rank 1: it is not "
                                                "open after 50.0 ms"),
                                     HasSubstr("NCCL_SOCKET_IFNAME"))));
  EXPECT_THAT(errors, Each(Not(IsEmpty())));
}

}  // namespace
}  // namespace strata::shadow
