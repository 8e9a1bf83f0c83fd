// Calls of the host's functions from several threads at once, as the ranks of one process make
// them.

#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "lua/core/calls.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::HasSubstr;

constexpr int kThreads = 4;
constexpr int kCalls = 200;

/// Runs `body(thread)` in all threads at once.
void InThreads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

/// The work done by the global function `wait` while others have the turn.
std::function<void()> work;

/// A binding that waits for ranks: it gives the turn away while they call the host.
int Wait(lua_State* L) {
  const Unlocked unlocked(State::Of(L));
  work();
  return 0;
}

/// Waits as above, but also counts as a C function that calls Lua.
int Nest(lua_State* L) {
  const NestedCall nested(L);
  return Wait(L);
}

class Threads : public StateTest {
 protected:
  void SetUp() override {
    Session(state()).Run([](lua_State* L) {
      lua_pushcfunction(L, Wait);
      lua_setglobal(L, "wait");
      lua_pushcfunction(L, Nest);
      lua_setglobal(L, "nest");
    });
  }

  /// A reference to a global function.
  FunctionRef Function(const char* name) {
    FunctionRef function;
    Session(state()).Run([&](lua_State* L) {
      lua_getglobal(L, name);
      function = ToFunctionRef(L, -1);
    });
    return function;
  }
};

TEST_F(Threads, CallsDoNotMix) {
  Show(
      "calls = 0 function f(thread, n) calls = calls + 1 local t = {} "
      "for i = 1, 20 do t[i] = {thread, n} end return t[20][1] * 1000 + t[20][2] end");
  const FunctionRef f = Function("f");
  std::atomic<int> wrong = 0;
  InThreads([&](int thread) {
    for (int n = 0; n < kCalls; ++n) {
      if (state().script().Call(f, {thread, n}) != Value(thread * 1000 + n)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Show("calls"), std::to_string(kThreads * kCalls));
}

TEST_F(Threads, CallsThatOverlapAreNotNested) {
  Show("function f() nest() end");
  const FunctionRef f = Function("f");
  for (int round = 0; round < kCalls; ++round) {  // more rounds than calls may nest
    std::promise<void> second_is_in, first_is_over;
    std::thread second;
    bool is_first = true;
    work = [&] {
      if (std::exchange(is_first, false)) {
        second = std::thread([&] { state().script().Call(f, {}); });
        second_is_in.get_future().wait();
      } else {
        second_is_in.set_value();
        first_is_over.get_future().wait();
      }
    };
    EXPECT_EQ(state().script().Call(f, {}), Value());
    first_is_over.set_value();
    second.join();
  }
}

TEST_F(Threads, RandomNumbersGoOnAfterAWait) {
  Show("function draw() math.randomseed(3) wait() return math.random() end");
  Show("function seed() math.randomseed(4) end");
  const FunctionRef draw = Function("draw"), seed = Function("seed");
  work = [] {};
  const Value alone = state().script().Call(draw, {});
  work = [&] { std::thread([&] { state().script().Call(seed, {}); }).join(); };
  EXPECT_EQ(state().script().Call(draw, {}), alone);
}

std::atomic<bool> has_begun = false, is_over = false;

TEST_F(Threads, AScriptThatDoesNotReturnSaysWhereItIs) {
  Session(state()).Run([](lua_State* L) {
    lua_pushcfunction(L, [](lua_State* L) {
      has_begun = true;
      lua_pushboolean(L, is_over);
      return 1;
    });
    lua_setglobal(L, "is_over");
  });
  Show("function stick() while not is_over() do end end function f() stick() end");
  const FunctionRef f = Function("f");
  EXPECT_EQ(ScriptCalls(0), "") << "none runs";
  std::promise<int> number;
  std::thread sticks([&] {
    number.set_value(::gettid());
    state().script().Call(f, {});
  });
  const int thread = number.get_future().get();
  while (!has_begun) std::this_thread::yield();
  std::string calls;
  while (calls.empty()) calls = ScriptCalls(thread);  // other programs may delay the answer
  EXPECT_THAT(calls, HasSubstr(":1 in stick\n"));
  EXPECT_EQ(ScriptCalls(thread + 1), "") << "another thread";
  while (ScriptCalls(0).empty()) continue;
  is_over = true;
  sticks.join();
  EXPECT_EQ(ScriptCalls(0), "");
}

TEST_F(Threads, ErrorsReachTheirCaller) {
  Show("function f(thread, n) if n % 2 == 0 then error('thread ' .. thread, 0) end return n end");
  const FunctionRef f = Function("f");
  std::atomic<int> wrong = 0;
  InThreads([&](int thread) {
    for (int n = 0; n < kCalls; ++n) {
      try {
        state().script().Call(f, {thread, n});
        if (n % 2 == 0) ++wrong;
      } catch (const ConfigError& error) {
        const std::string text = "thread " + std::to_string(thread);
        if (n % 2 == 1 || std::string(error.what()).find(text) == std::string::npos) ++wrong;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(Threads, AWaitingBindingLetsOthersIn) {
  Show("function double(n) return 2 * n end");
  const FunctionRef function = Function("double");
  std::atomic<int> sum = 0;
  work = [&] {
    InThreads([&](int thread) {
      for (int n = 0; n < kCalls; ++n) {
        sum += static_cast<int>(state().script().Call(function, {thread}).as_int());
      }
    });
  };
  EXPECT_EQ(Show("(function() local kept = {1, 2, 3} wait() local also = {4} wait() "
                 "return kept[3] + also[1] end)()"),
            "7")
      << "the waiting function goes on where it was";
  EXPECT_EQ(sum, 2 * kCalls * 2 * (0 + 1 + 2 + 3));
  EXPECT_THAT(Fail("wait()\nerror('after')"), HasSubstr("2: after"));
}

TEST_F(Threads, AnInterruptReachesFunctionsOfOtherThreads) {
  Show("function spin() while true do end end");
  const FunctionRef spin = Function("spin");
  std::atomic<int> interrupted = 0;
  work = [&] {
    state().Interrupt();
    InThreads([&](int) {
      try {
        state().script().Call(spin, {});
      } catch (const ConfigError& error) {
        if (std::string(error.what()).find("interrupted") != std::string::npos) ++interrupted;
      }
    });
  };
  EXPECT_THAT(Fail("wait() while true do end"), HasSubstr("interrupted"));
  EXPECT_EQ(interrupted, kThreads) << "no call of a rank forgets the interrupt";
  EXPECT_EQ(Show("1 + 1"), "2");
}

}  // namespace
}  // namespace strata::lua
