// Bindings by signature: the arguments they take, the results they push, and the errors they raise.
#include "lua/core/bind.h"

#include <map>

#include "lua/core/core.h"
#include "lua/testing.h"

namespace strata::lua {

/// An object of a type that only this test has.
struct Point {
  double x = 0;
  double Times(double factor) const { return x * factor; }
};

template <>
struct TypeOf<Point> {
  static const ObjectType& Get() {
    static const ObjectType type{.name = "point",
                                 .methods = {{"times", Function<&Point::Times, "a factor">}},
                                 .properties = {{"x", Function<&Point::x>}}};
    return type;
  }
};

namespace {

using testing::HasSubstr;

Point MakePoint(double x) { return {x}; }
int Length(lua_State*, std::string_view text) { return static_cast<int>(text.size()); }
std::optional<int64_t> Half(std::optional<int64_t> n) {
  return n ? std::optional(*n / 2) : std::nullopt;
}
std::map<std::string, std::vector<int>> Lists(const Value& names) {
  return {{names.as_list()[0].as_string(), {1, 2}}, {"none", {}}};
}

class BindTest : public StateTest {
 protected:
  void SetUp() override {
    Session(state()).Run([](lua_State* L) {
      lua_pushvalue(L, LUA_GLOBALSINDEX);
      const NamedFunction functions[] = {{"point", Function<MakePoint, "an x">},
                                         {"length", FunctionOf<1, Length, "a text">},
                                         {"half", Function<Half, "a number">},
                                         {"lists", Function<Lists, "names">}};
      SetFunctions(L, functions);
    });
  }
};

TEST_F(BindTest, TakesArgumentsAndPushesResults) {
  EXPECT_EQ(Show("point(3).x"), "3");
  EXPECT_EQ(Show("point(3):times(0.5)"), "1.5");
  EXPECT_EQ(Show("length 'four'"), "4");
  EXPECT_EQ(Show("half(8)"), "4");
  EXPECT_EQ(Show("half()"), "nil");
  EXPECT_EQ(Show("lists{'a'}"), "{a={1, 2}, none={}}");
}

TEST_F(BindTest, RefusesOtherArguments) {
  EXPECT_THAT(Fail("point 'x'"), HasSubstr("expected an x, got the string \"x\""));
  EXPECT_THAT(Fail("point(3):times()"), HasSubstr("expected a factor, got nothing"));
  EXPECT_THAT(Fail("half(1.5)"), HasSubstr("expected a number, got the number 1.5"));
  EXPECT_THAT(Fail("point(3).times(3, 4)"), HasSubstr("expected a point, got the number 3"));
  for (const char* text : {"point(3, {})", "length('x', {})", "point(3):times(2, {})"}) {
    EXPECT_THAT(Fail(text), HasSubstr("expected no table behind the arguments")) << text;
  }
}

}  // namespace
}  // namespace strata::lua
