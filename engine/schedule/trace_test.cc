#include "engine/schedule/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strata::schedule {
namespace {

Trace TwoRanks() {
  Trace trace;
  trace.name = "a \"job\" </script>";
  trace.ranks.resize(2);
  trace.ranks[0].actions = {{4, ParseAction("0F0"), 0, 0, 1e-3, 512},
                            {4, ParseAction("0SEND_F0"), 1e-3, 0, 1.001e-3, 512},
                            {4, ParseAction("0B0"), 1.001e-3, 2e-3, 4e-3, 256},
                            {5, ParseAction("0F0"), 5e-3, 0, 6e-3, 512}};
  trace.ranks[1].rank = 1;
  trace.ranks[1].clock_error = 2.5e-5;
  trace.ranks[1].actions = {{4, ParseAction("1F0"), 0, 1e-3, 1.5e-3, 0},
                            {5, ParseAction("1STEP"), 5e-3, 0, 6e-3, 0}};
  return trace;
}

TEST(ToChromeTrace, WritesStepsActionsWaitsAndMemory) {
  EXPECT_EQ(ToChromeTrace(TwoRanks()),
            R"({"displayTimeUnit":"ms",
"otherData":{"strata_trace":1,"job":"a \"job\" </script>","first_step":4,"last_step":5,"clock_error_seconds":[0.0,2.5e-05]},
"traceEvents":[
{"ph":"M","pid":0,"tid":0,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"X","pid":0,"tid":0,"name":"step 4","cat":"step","ts":0.000,"dur":4000.000,"args":{}},
{"ph":"X","pid":0,"tid":0,"name":"0F0","cat":"forward","ts":0.000,"dur":1000.000,"args":{"step":4,"memory":512}},
{"ph":"C","pid":0,"name":"memory","ts":1000.000,"args":{"bytes":512}},
{"ph":"X","pid":0,"tid":0,"name":"0SEND_F0","cat":"communication","ts":1000.000,"dur":1.000,"args":{"step":4,"memory":512}},
{"ph":"C","pid":0,"name":"memory","ts":1001.000,"args":{"bytes":512}},
{"ph":"X","pid":0,"tid":0,"name":"wait for 0B0","cat":"wait","ts":1001.000,"dur":2000.000,"args":{}},
{"ph":"X","pid":0,"tid":0,"name":"0B0","cat":"backward","ts":3001.000,"dur":999.000,"args":{"step":4,"memory":256}},
{"ph":"C","pid":0,"name":"memory","ts":4000.000,"args":{"bytes":256}},
{"ph":"X","pid":0,"tid":0,"name":"step 5","cat":"step","ts":5000.000,"dur":1000.000,"args":{}},
{"ph":"X","pid":0,"tid":0,"name":"0F0","cat":"forward","ts":5000.000,"dur":1000.000,"args":{"step":5,"memory":512}},
{"ph":"C","pid":0,"name":"memory","ts":6000.000,"args":{"bytes":512}},
{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"rank 1"}},
{"ph":"X","pid":1,"tid":0,"name":"step 4","cat":"step","ts":0.000,"dur":1500.000,"args":{}},
{"ph":"X","pid":1,"tid":0,"name":"wait for 1F0","cat":"wait","ts":0.000,"dur":1000.000,"args":{}},
{"ph":"X","pid":1,"tid":0,"name":"1F0","cat":"forward","ts":1000.000,"dur":500.000,"args":{"step":4}},
{"ph":"X","pid":1,"tid":0,"name":"step 5","cat":"step","ts":5000.000,"dur":1000.000,"args":{}},
{"ph":"X","pid":1,"tid":0,"name":"1STEP","cat":"step","ts":5000.000,"dur":1000.000,"args":{"step":5}}
]}
)");
}

TEST(ToChromeTrace, IsJsonWhateverTheJobIsCalled) {
  Trace trace = TwoRanks();
  for (const char* name : {"", "\n\t\x01", "\xff\xfe", "größe"}) {
    trace.name = name;
    EXPECT_TRUE(nlohmann::json::accept(ToChromeTrace(trace))) << name;
  }
  EXPECT_TRUE(nlohmann::json::accept(ToChromeTrace({})));
}

TEST(Trace, KnowsItsSteps) {
  EXPECT_TRUE(Trace().empty());
  EXPECT_EQ(TwoRanks().first_step(), 4);
  EXPECT_EQ(TwoRanks().last_step(), 5);
}

}  // namespace
}  // namespace strata::schedule
