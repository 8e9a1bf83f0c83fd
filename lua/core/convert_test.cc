// Round trips of values through Lua.

#include "lua/core/convert.h"

#include <rapidcheck.h>

#include <cmath>
#include <limits>

#include "lua/core/binding.h"
#include "lua/core/core.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::HasSubstr;

/// Converts `value` to a Lua value and back.
Value RoundTrip(State& state, const Value& value) {
  Value result;
  Session(state).Run([&](lua_State* L) {
    PushValue(L, value);
    result = ToValue(L, -1, "the value");
    EXPECT_EQ(lua_gettop(L), 1) << "the stack is as it was";
  });
  return result;
}

/// Generates plain data that Lua can hold: no null inside a table, no empty map (Lua's empty table
/// is a list), no name that is a position, no integer beyond 2^53, no double that is whole.
rc::Gen<Value> Data(int depth) {
  auto leaf = rc::gen::oneOf(
      rc::gen::map(rc::gen::arbitrary<bool>(), [](bool b) { return Value(b); }),
      rc::gen::map(rc::gen::inRange<int64_t>(-(int64_t{1} << 53), (int64_t{1} << 53) + 1),
                   [](int64_t i) { return Value(i); }),
      rc::gen::map(rc::gen::inRange(-1000000, 1000000), [](int i) { return Value(i + 0.5); }),
      rc::gen::map(rc::gen::arbitrary<std::string>(), [](std::string s) { return Value(s); }));
  if (depth == 0) return leaf;
  auto list = rc::gen::map(rc::gen::container<std::vector<Value>>(Data(depth - 1)),
                           [](Value::List items) { return Value(std::move(items)); });
  auto map = rc::gen::map(
      rc::gen::nonEmpty(rc::gen::container<std::map<std::string, Value>>(
          rc::gen::map(rc::gen::arbitrary<std::string>(), [](std::string s) { return "k" + s; }),
          Data(depth - 1))),
      [](const std::map<std::string, Value>& entries) {
        return Value::MakeMap({entries.begin(), entries.end()});
      });
  return rc::gen::oneOf(leaf, list, map);
}

class Convert : public StateTest {};

TEST_F(Convert, DataSurvivesTheRoundTrip) {
  State& lua = state();
  EXPECT_TRUE(rc::check([&] {
    const Value value = *Data(2);
    RC_ASSERT(RoundTrip(lua, value) == value);
  }));
}

TEST_F(Convert, NumbersAreIntegersWhereTheyAreWhole) {
  EXPECT_EQ(NumberValue(3).kind(), Value::Kind::kInt);
  EXPECT_EQ(NumberValue(-3).as_int(), -3);
  EXPECT_EQ(NumberValue(0).kind(), Value::Kind::kInt);
  EXPECT_EQ(NumberValue(-0.0).kind(), Value::Kind::kDouble);
  EXPECT_EQ(NumberValue(0.5).kind(), Value::Kind::kDouble);
  EXPECT_EQ(NumberValue(0x1p53).kind(), Value::Kind::kInt);
  EXPECT_EQ(NumberValue(0x1p54).kind(), Value::Kind::kDouble);
  EXPECT_EQ(NumberValue(std::numeric_limits<double>::infinity()).kind(), Value::Kind::kDouble);
  EXPECT_EQ(NumberValue(std::nan("")).kind(), Value::Kind::kDouble);
}

TEST_F(Convert, MixedTablesKeepTheirPositions) {
  Show("t = {'sgd', 7, lr = 0.1}");
  Session(state()).Run([&](lua_State* L) {
    lua_getglobal(L, "t");
    const Value value = ToValue(L, -1, "t");
    EXPECT_EQ(value.ToJson(), R"({"1":"sgd","2":7,"lr":0.1})");
    PushValue(L, value);
    lua_rawgeti(L, -1, 1);
    EXPECT_EQ(TextAt(L, -1), "sgd") << "a position again, not the name \"1\"";
  });
}

TEST_F(Convert, FunctionsComeBackAsThemselves) {
  Show("f = function() return 42 end");
  Session(state()).Run([&](lua_State* L) {
    lua_getglobal(L, "f");
    const FunctionRef first = ToFunctionRef(L, -1);
    EXPECT_EQ(ToFunctionRef(L, -1).id, first.id) << "once, however often it is asked for";
    EXPECT_EQ(first.where, "prompt[1]:1");
    PushFunction(L, first);
    EXPECT_TRUE(lua_rawequal(L, -1, -2));
    lua_pushcfunction(L, [](lua_State*) { return 0; });
    EXPECT_EQ(ToFunctionRef(L, -1).where, "a built-in function");
  });
}

TEST_F(Convert, AFunctionThatIsNotThereIsNil) {
  Session(state()).Run([&](lua_State* L) {
    PushValue(L, FunctionRef());
    EXPECT_TRUE(lua_isnil(L, -1));
    PushValue(L, Value::MakeMap({{"type", "constant"}, {"function", FunctionRef()}}));
    EXPECT_EQ(ToValue(L, -1, "").ToJson(), R"({"type":"constant"})");
  });
  EXPECT_THROW(Session(state()).Run([&](lua_State* L) {
    PushValue(L, FunctionRef{12345, "elsewhere.lua:1", ""});
  }),
               ConfigError)
      << "one of another state";
}

TEST_F(Convert, ListsMayHaveAFewHoles) {
  const auto list = [this](int size) {
    Show("t = {[1] = true, [" + std::to_string(size) + "] = true}");
    size_t elements = 0;
    Session(state()).Run([&](lua_State* L) {
      lua_getglobal(L, "t");
      elements = ToValue(L, -1, "t").as_list().size();
    });
    return elements;
  };
  EXPECT_EQ(list(2), 2u);
  EXPECT_EQ(list(66), 66u) << "64 holes";
  EXPECT_THROW(list(67), ConfigError);
}

TEST_F(Convert, TablesNestToALimit) {
  const auto nested = [this](int depth) {
    Value value = 1;
    for (int i = 0; i < depth; ++i) value = Value::List{value};
    return RoundTrip(state(), value) == value;
  };
  EXPECT_TRUE(nested(101));
  EXPECT_THROW(nested(102), ConfigError);
}

// Lua holds thirty tables, but as data they are a billion values.
TEST_F(Convert, ATableThatStandsInManyPlacesCountsInEach) {
  Session(state()).Run([&](lua_State* L) {
    lua_newtable(L);
    for (int i = 0; i < 30; ++i) {
      lua_newtable(L);
      for (const int place : {1, 2}) {
        lua_pushvalue(L, -2);
        lua_rawseti(L, -2, place);
      }
      lua_remove(L, -2);
    }
    std::string error = "none";
    try {
      ToValue(L, -1, "bomb");
    } catch (const ConfigError& found) {
      error = found.what();
    }
    EXPECT_THAT(error, HasSubstr("more than 10000000 values"));
    lua_settop(L, 0);
  });
}

TEST_F(Convert, DefinitionsNameTheirFunctions) {
  const auto name = [this](const std::string& text) {
    Show(text);
    std::string found;
    Session(state()).Run([&](lua_State* L) {
      lua_getglobal(L, "f");
      found = FunctionName(L, -1);
    });
    return found;
  };
  EXPECT_EQ(name("function f(x) end"), "f");
  EXPECT_EQ(name("local function block(x) end f = block"), "block");
  EXPECT_EQ(name("local squeeze = function(x) end f = squeeze"), "squeeze");
  EXPECT_EQ(name("m = {} function m.flatten(x) end f = m.flatten"), "m.flatten");
  EXPECT_EQ(name("f = ({function(x) end})[1]"), "");
  EXPECT_EQ(name("f = function() end g = function() end"), "") << "which of the two is not known";
  EXPECT_EQ(name("t = {layers = {function(x) end}, data = function(i) end} f = t.layers[1]"), "");
}

TEST_F(Convert, RefusesWhatIsNoData) {
  const auto error = [this](const std::string& text) {
    Show("v = " + text);
    try {
      Session(state()).Run([&](lua_State* L) {
        lua_getglobal(L, "v");
        ToValue(L, -1, "the job");
      });
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error("{a = {b = coroutine.create(print)}}"),
              HasSubstr("the job.a.b: expected text, a number, true, false, a function "
                        "or a table; got a thread"));
  EXPECT_THAT(error("{a = nn.ReLU{}}"),
              HasSubstr("the job.a: expected text, a number, true, false, a function or a table; "
                        "got a layer"));
  EXPECT_THAT(error("{[true] = 1}"), HasSubstr("must be names or 1, 2, 3"));
  EXPECT_THAT(error("{[0] = 1}"), HasSubstr("the number 0"));
  EXPECT_THAT(error("{[-1] = 1}"), HasSubstr("the number -1"));
  EXPECT_THAT(error("{[1.5] = 1}"), HasSubstr("the number 1.5"));
  EXPECT_THAT(error("{1, [1000] = 1}"), HasSubstr("has only 2 elements"));
  Show("loop = {} loop.inside = {loop}");
  EXPECT_THAT(error("loop"), HasSubstr("holds itself"));
  EXPECT_EQ(error("strata.topology{pipe = 2, data = 3}"), "");
}

}  // namespace
}  // namespace strata::lua
