// The errors when the engine's library cannot be loaded.
#include "lua/host/engine_api.h"

#include <cstdlib>

#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A path without an engine. Otherwise the tests would find the one that was built.
constexpr char kNowhere[] = "/nowhere/engine.so";

class EngineApiTest : public StateTest {
 protected:
  EngineApiTest() { setenv("STRATA_ENGINE", kNowhere, 1); }

  std::string LoadError() {
    try {
      LoadEngine();
    } catch (const WorldError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(EngineApiTest, SaysWhereItLooked) {
  EXPECT_EQ(LoadedEngine(), nullptr);
  EXPECT_THAT(LoadError(), AllOf(HasSubstr(kNowhere), HasSubstr("$STRATA_ENGINE")));
  EXPECT_EQ(LoadedEngine(), nullptr);
}

TEST_F(EngineApiTest, SaysWhatTheLoaderSaid) {
  const ScriptFolder folder;
  setenv("STRATA_ENGINE", folder.Write("engine.so", "no library").c_str(), 1);
  EXPECT_THAT(LoadError(), AllOf(HasSubstr("cannot load"), HasSubstr("engine.so")));
  setenv("STRATA_ENGINE", "libm.so.6", 1);
  EXPECT_THAT(LoadError(), HasSubstr("libm.so.6"));
}

TEST_F(EngineApiTest, ThreadsPollForAShortTimeUnlessTheUserSaysHowLong) {
  const ScriptFolder folder;
  setenv("STRATA_ENGINE", folder.Write("engine.so", "no library").c_str(), 1);
  const auto polls = [&] {
    LoadError();
    const char* count = getenv("GOMP_SPINCOUNT");
    return std::string(count ? count : "none");
  };
  unsetenv("GOMP_SPINCOUNT");
  setenv("OMP_WAIT_POLICY", "active", 1);
  EXPECT_EQ(polls(), "none");
  unsetenv("OMP_WAIT_POLICY");
  EXPECT_EQ(polls(), "30000");
  setenv("GOMP_SPINCOUNT", "7", 1);
  EXPECT_EQ(polls(), "7");
  unsetenv("GOMP_SPINCOUNT");
}

TEST_F(EngineApiTest, AScriptWithoutAnEngineStillPlans) {
  Show(
      "net = strata.job{layers = {nn.Linear{4, 2}}, loss = nn.CrossEntropyLoss{}, "
      "input = {shape = {4}}, "
      "batch = {micro_batches = 1, micro_batch_size = 1}}");
  EXPECT_EQ(Show("net:plan{}.bounds"), "{0, 1}");
  for (const char* text : {"F.relu", "F.arange(3)", "net:start{}"}) {
    try {
      state().Evaluate(text);
      FAIL() << text;
    } catch (const WorldError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("prompt["), HasSubstr("is not there"))) << text;
    }
  }
}

}  // namespace
}  // namespace strata::lua
