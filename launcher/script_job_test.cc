#include "launcher/script_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/spec/layers.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Command& TestCommand() {
  static const Command command = {.name = "train",
                                  .usage = "SCRIPT [--flags]",
                                  .summary = "",
                                  .details = "",
                                  .flags = {NprocField(), Field::Bool("json", "").Default(false)},
                                  .takes_job = true};
  return command;
}

std::string ErrorWith(const std::vector<std::string>& arguments) {
  return ConfigErrorOf([&] {
    ScriptArguments script = ParseScriptArguments(TestCommand(), arguments);
    script.flags.CheckAllTaken();
  });
}

TEST(ParseScriptArgumentsTest, TakesTheScriptAnywhere) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"a.lua", "--json", "--pipe=2"}, {"--json", "--pipe=2", "a.lua"}}) {
    const ScriptArguments script = ParseScriptArguments(TestCommand(), arguments);
    EXPECT_EQ(script.path, "a.lua");
    EXPECT_EQ(script.flags.own()["json"], Value(true));
    EXPECT_TRUE(script.flags.own()["nproc"].is_null());
    EXPECT_EQ(script.flags.job()["parallel"]["pipe"], Value(2));
  }
}

TEST(ParseScriptArgumentsTest, NeedsOneScript) {
  EXPECT_EQ(ErrorWith({}), "expected a script: strata train SCRIPT [--flags]");
  EXPECT_EQ(ErrorWith({"a.lua", "b.lua"}),
            "expected one script, got a.lua and b.lua; flags begin with --");
}

TEST(ParseScriptArgumentsTest, WrongFlags) {
  EXPECT_THAT(ErrorWith({"a.lua", "--nproc=many"}), AllOf(HasSubstr("nproc"), HasSubstr("many")));
  EXPECT_THAT(ErrorWith({"a.lua", "--nproc=0"}), HasSubstr("nproc"));
  EXPECT_THAT(ErrorWith({"a.lua", "--nprok=2"}), HasSubstr("nproc"));
  EXPECT_THAT(ErrorWith({"a.lua", "--pipe=x"}), HasSubstr("pipe"));
}

class NoScript : public Script {
 public:
  Value Call(const FunctionRef&, const Value::List&) override { return {}; }
  TensorSpecs InferShapes(const LayerSpec&, const TensorSpecs&) override { return {}; }
  TensorSpecs InferData(const FunctionRef&, int64_t) override { return {}; }
};

Job TwoLayers() {
  Job job;
  job.input = TensorSpec{{4}, DType::kFloat32};
  job.layers = {MakeLayer("Linear", {4, 4}, {}, {}, ""), MakeLayer("Linear", {4, 2}, {}, {}, "")};
  job.parallel.pipe = 2;
  job.batch = {8, 2, 4};
  job.device = "cpu";
  return job;
}

TEST(PlanHereTest, RanksAreTheProductOfTheDegreesOrSaid) {
  NoScript script;
  EXPECT_EQ(PlanHere(TwoLayers(), Value::MakeMap(), script).topology.world_size(), 2);
  const Value two = Value::MakeMap({{"nproc", 2}});
  EXPECT_EQ(PlanHere(TwoLayers(), two, script).topology.world_size(), 2);
  const Value three = Value::MakeMap({{"nproc", 3}});
  EXPECT_THAT(ConfigErrorOf([&] { PlanHere(TwoLayers(), three, script); }), HasSubstr("3 ranks"));
}

}  // namespace
}  // namespace strata::launcher
