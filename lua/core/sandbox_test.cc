// Things that scripts must not reach, and scripts that must not bring the process down.

#include <chrono>
#include <ctime>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/host/script_host.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::HasSubstr;
using testing::Not;

class Sandbox : public StateTest {};

// files.lua holds what needs no link.
TEST_F(Sandbox, OnlyStrataReadFollowsALinkOutOfTheFolder) {
  const ScriptFolder folder;
  folder.Write("outside.lua", "return 'outside'");
  folder.Write("secret", "secret");
  folder.Write("out/words.txt", "elsewhere");
  folder.Write("in/inside.lua", "return 'inside'");
  std::filesystem::create_symlink("../outside.lua", folder.path() / "in" / "link.lua");
  std::filesystem::create_symlink("inside.lua", folder.path() / "in" / "alias.lua");
  std::filesystem::create_symlink(folder.path() / "out", folder.path() / "in" / "link");
  const auto run = [&](const std::string& text) {
    printed_.clear();
    try {
      state().RunFile(folder.Write("in/main.lua", "local s = require 'strata'\n" + text));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return printed_;
  };
  EXPECT_EQ(run("print(require 'alias')"), "inside\n");
  EXPECT_THAT(run("require 'link'"), HasSubstr("leaves the script's folder"));
  EXPECT_EQ(run("print(s.read 'link/words.txt')"), "elsewhere\n") << "who made it allowed it";
  EXPECT_THAT(run("s.read 'link/../secret'"), HasSubstr("below the script's folder"));
}

// Each of the following scripts once crashed a Lua interpreter or ran for ever.

TEST_F(Sandbox, EndlessLoopsEnd) {
  StateOptions options = Options();
  options.seconds = 0.2;
  state_ = std::make_unique<State>(options);
  for (const char* text :
       {"while true do end", "repeat until false", "local function f() return f() end f()",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) return f() end f()",
        "while true do xpcall(error, function() while true do end end) end",
        "local co = coroutine.wrap(function() while true do end end) co()",
        "while true do local co = coroutine.create(function() error() end) coroutine.resume(co) "
        "end",
        "setmetatable({}, {__tostring = function(t) return tostring(t) end}) while 1 do end",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 1] "
        "end while true do pcall(function() return t.x end) end",
        "load(function() return ' ' end)", "for _ in function() return 1 end do end",
        "('x'):gsub('', function() while true do end end)",
        "strata.times(100000, function() for i = 1, 1e9 do end end)"}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(Fail(text), HasSubstr("longer than")) << text;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << text;
  }
  EXPECT_EQ(Show("1 + 1"), "2") << "the state lives on";
}

// LuaJIT searches for a pattern within one C function, so the hook does not run meanwhile.
TEST_F(Sandbox, RunawayPatternsEndWithTheirProcess) {
  StateOptions options = Options();
  options.seconds = 0.2;
  state_ = std::make_unique<State>(options);
  for (const char* text : {"local s = ('a'):rep(30000) s:find(('.-'):rep(12) .. 'b')",
                           "local s = ('a'):rep(30000) pcall(s.match, s, '(.*)(.*)(.*)(.*)(.*)b')",
                           "for _ in ('a'):rep(30000):gmatch(('.-'):rep(12) .. 'b') do end",
                           "('a'):rep(30000):gsub(('.-'):rep(12) .. 'b', '')",
                           "string.find(('('):rep(1e6), ('%b()'):rep(100))"}) {
    EXPECT_EXIT(Fail(text), testing::ExitedWithCode(2),
                "strata: prompt.1.:1: the script takes longer than 200 ms.*--script_timeout")
        << text;
  }
}

TEST_F(Sandbox, CallbacksOfATrainingHaveNoLimitOfTime) {
  StateOptions options = Options();
  options.seconds = 0.05;
  state_ = std::make_unique<State>(options);
  Show("function f(n) for i = 1, n do end return n end");
  FunctionRef function;
  Session(*state_).Run([&](lua_State* L) {
    lua_getglobal(L, "f");
    function = ToFunctionRef(L, -1);
  });
  ScriptHost host(*state_);
  constexpr int64_t kLong = 50'000'000;
  EXPECT_THAT([&] { host.Call(function, {kLong}); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("longer than")));
  EXPECT_EQ(host.CallInTraining(function, {kLong}), Value(kLong));
}

TEST_F(Sandbox, FunctionsThatReadingDataCallsAreOnTheClock) {
  StateOptions options = Options();
  options.seconds = 0.05;
  state_ = std::make_unique<State>(options);
  Show("function keeps() while true do end end");
  Session(*state_).Run([&](lua_State* L) {
    lua_getglobal(L, "keeps");
    const FunctionRef function = ToFunctionRef(L, -1);
    const ClockSwitch off_the_clock(state_->core().limits, false);
    EXPECT_THAT([&] { ScriptHost(*state_).Call(function, {}); },
                testing::ThrowsMessage<ConfigError>(HasSubstr("longer than")));
  });
}

TEST_F(Sandbox, TheTimeOfACallEndsWithIt) {
  StateOptions options = Options();
  options.seconds = 0.01;
  state_ = std::make_unique<State>(options);
  EXPECT_EQ(Show("1 + 1"), "2");
  const std::clock_t end =
      std::clock() + 2 * CLOCKS_PER_SEC;  // processor time, as the limit counts
  while (std::clock() < end) {
  }
  EXPECT_EQ(Show("1 + 1"), "2") << "no timer of the first call ended the process";
}

TEST_F(Sandbox, MemoryBombsEnd) {
  for (const char* text : {"local t = {} for i = 1, 1e9 do t[i] = {} end",
                           "local s = 'x' while true do s = s .. s end", "return ('x'):rep(1e9)",
                           "local t = {} while true do t[#t + 1] = ('x'):rep(1e6) .. #t end",
                           "return ('x'):rep(1e6):gsub('x', ('y'):rep(1e6))",
                           "return table.concat({('x'):rep(6e7), "
                           "('y'):rep(6e7)})",
                           "return ('%s'):rep(100):format(unpack(strata.times(100, function() "
                           "return ('x'):rep(1e6) end)))",
                           "local t = {} for i = 1, 1e8 do t[i] = coroutine.create(print) "
                           "end",
                           "return load(function() return ('x = 1 '):rep(1e6) end)",
                           "local t = {} for i = 1, 100 do t[i] = strata.schedule('gpipe', "
                           "{micro_batches = 1e5}) end",
                           "local function f(...) return f(1, 2, 3, 4, ...) end f()"}) {
    EXPECT_THAT(Fail(text), testing::AnyOf(HasSubstr("memory"), HasSubstr("overflow"))) << text;
    EXPECT_EQ(Fail("return 1 + 1"), "") << text;
  }
}

TEST_F(Sandbox, ProgramsThatAreDroppedTakeNoMemory) {
  EXPECT_EQ(Fail("for i = 1, 100 do strata.schedule('gpipe', {micro_batches = 1e5}) end"), "");
}

TEST_F(Sandbox, DeepRecursionEnds) {
  for (const char* text :
       {"local function f() return 1 + f() end f()",
        "local function f() coroutine.wrap(f)() end f()",
        "local function f() local ok, e = coroutine.resume(coroutine.create(f)) error(e) end f()",
        "local function f() string.gsub('x', '.', f) end f()",
        "local function f() for _ in string.gmatch('x', '.') do f() end f() end f()",
        "local function f() table.sort({1, 2, 3}, f) end f()",
        "local function f() strata.times(1, f) end f()",
        "local function f() load(f) f() end f()",
        "local function f() tostring(setmetatable({}, {__tostring = f})) end f()",
        "local function f() print(setmetatable({}, {__tostring = f})) end f()",
        "local t = setmetatable({}, {__index = function(t, k) return t[k] .. 1 end}) return t.x",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "local t = setmetatable({}, {__call = function(t) t() t() end}) t()",
        "local mt = {} mt.__eq = function(a, b) return a == b and 1 end "
        "return setmetatable({}, mt) == setmetatable({}, mt)",
        "local mt = {} mt.__concat = function(a, b) return (a .. b) .. 1 end "
        "return setmetatable({}, mt) .. 1",
        "local s = ('('):rep(1e5) assert(load('return ' .. s))",
        "local s = ('{'):rep(1e5) assert(load('return ' .. s))",
        "local s = ('a..'):rep(1e5) assert(load('return ' .. s .. 'a'))",
        "local s = ('-'):rep(3):rep(1e5):gsub('---', '- ') assert(load('return ' .. s .. '1'))",
        "return ('x'):rep(1000):find(('x?'):rep(1000))",
        "return ('x'):find(('('):rep(1000))"}) {
    EXPECT_THAT(Fail(text), testing::AnyOf(HasSubstr("overflow"), HasSubstr("complex"),
                                           HasSubstr("loop"), HasSubstr("too many syntax levels"),
                                           HasSubstr("captures"), HasSubstr("nested")))
        << text;
    EXPECT_EQ(Show("1 + 1"), "2") << text;
  }
}

TEST_F(Sandbox, OddErrorsBecomeText) {
  EXPECT_THAT(Fail("error({code = 7})"), HasSubstr("a table with the key code as an error"));
  EXPECT_THAT(Fail("error()"), HasSubstr("nothing"));
  EXPECT_THAT(Fail("error(7)"), HasSubstr("1: 7"));
  EXPECT_THAT(Fail("error(setmetatable({}, {__tostring = error}))"), HasSubstr("error"));
  EXPECT_THAT(Fail("error(strata.nn.ReLU{})"), HasSubstr("a layer"));
  EXPECT_THAT(Fail("error('\\0x\\255')"), HasSubstr("prompt["));
  EXPECT_THAT(Fail("error(('x'):rep(1e6))"), HasSubstr("xxx"));
  EXPECT_THAT(Fail("error('here', 0)"), HasSubstr("prompt[8]:1: here"));
  EXPECT_THAT(Fail("coroutine.yield()"), HasSubstr("yield"));
  EXPECT_THAT(Fail("coroutine.wrap(error)('in it')"), HasSubstr("in it"));
  EXPECT_THAT(Fail("1LL .. {}"), Not(""));
  EXPECT_THAT(Fail("strata.json.encode(1LL)"), HasSubstr("cdata"));
  // The nested tables are small in Lua, but have 2^40 values as text.
  EXPECT_THAT(Fail("t = {} for i = 1, 40 do t = {t, t} end strata.json.encode(t)"),
              HasSubstr("memory"));
}

TEST_F(Sandbox, AnInterruptEndsWhateverRuns) {
  for (const char* text :
       {"print 'ready' while true do end",
        "print 'ready' while true do pcall(function() while true do end end) end"}) {
    StateOptions options;
    State* running = nullptr;
    options.seconds = 0;
    options.print = [&](std::string_view) { running->Interrupt(); };
    state_ = std::make_unique<State>(options);
    running = state_.get();
    EXPECT_THAT(Fail(text), HasSubstr("interrupted")) << text;
    EXPECT_EQ(Show("1 + 1"), "2");
  }
}

TEST_F(Sandbox, OtherThreadsWaitTheirTurn) {
  Show("n = 0");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int j = 0; j < 50; ++j) {
        state().Evaluate("for i = 1, 100 do n = n + 1 end t = {} for i = 1, 100 do t[i] = {i} end");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Show("n"), "20000");
}

TEST_F(Sandbox, RandomNumbersAreTheSameForEveryState) {
  const std::string first =
      Show("math.random()") + Show("math.random(6)") + Show("math.random(-3, 3)");
  state_.reset();
  EXPECT_EQ(Show("math.random()") + Show("math.random(6)") + Show("math.random(-3, 3)"), first);
  Show("math.randomseed(5)");
  const std::string seeded = Show("math.random()");
  Show("math.randomseed(5)");
  EXPECT_EQ(Show("math.random()"), seeded);
  EXPECT_THAT(Fail("math.random(3, 1)"), HasSubstr("no number"));
  EXPECT_THAT(Fail("math.random(1.5)"), HasSubstr("whole"));
}

}  // namespace
}  // namespace strata::lua
