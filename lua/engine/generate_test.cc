// e:generate{}: texts of a language model some of whose layers are the script's.
#include <gmock/gmock.h>

#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// `start(grid, place)` returns an engine; `place` gives a token's position to the layer that adds
/// positions.
constexpr char kBegin[] = R"(
nn, F = strata.nn, strata.F
function Places(place)
  return strata.layer{
    name = "Places",
    init = function(self, rows, dim)
      self.weight = self:parameter{rows, dim, init = function(w) w:normal_(0, 1) end}
    end,
    forward = function(self, x) return x + self.weight:narrow(0, place(), x.shape[2]) end,
  }
end
Block = strata.layer{
  name = "Block",
  init = function(self)
    self.norm = nn.RMSNorm{16}
    self.attention = nn.GroupedQueryAttention{16, 4, num_kv_heads = 2}
  end,
  forward = function(self, x) return x + self.attention(self.norm(x)) end,
}
function start(grid, place)
  return strata.job{
    name = "words", device = "cpu", threads = 1, input = {shape = {20}, dtype = "int64"},
    layers = {nn.Embedding{300, 16}, Places(place or strata.position){20, 16}, Block{}, Block{},
              function(x) return x * strata.position() * 0 + x:tanh() end, nn.Linear{16, 300, split = "column"}},
    loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 2},
    parallel = grid, eval = {batch = 1},
  }:start{}
end
numbers = {tokenizer = "numbers", stream = false, temperature = 1, top_k = 0, top_p = 1}
function with(more)
  local options = {}
  for _, from in ipairs{numbers, more} do for name, value in pairs(from) do options[name] = value end end
  return options
end
)";

using GenerateTest = BegunTest<kBegin>;

TEST_F(GenerateTest, GivesTextsThatDoNotDependOnThePlan) {
  Show("one = start{}:generate('1 2 3', '7', with{tokens = 8})");
  EXPECT_EQ(Show("#one"), "2");
  EXPECT_EQ(Show("one[1]:match('^1 2 3 %d+ %d+ %d+ %d+ %d+ %d+ %d+ %d+$') == one[1]"), "true");
  for (const char* grid : {"{pipe = 2}", "{pipe = 3}", "{model = 2}", "{data = 2}"}) {
    Show(std::string("e = start") + grid);
    Show("t = e:generate({'1 2 3', '7'}, with{tokens = 8})");
    EXPECT_EQ(Show("t[1] == one[1] and t[2] == one[2]"), "true") << grid;
    EXPECT_EQ(Show("e:generate('1 2 3', with{tokens = 8, keep = false}) == one[1]"), "true")
        << grid;
  }
  EXPECT_EQ(Show("e:generate{'1 2 3', tokenizer = 'numbers', stream = false, temperature = 0, "
                 "tokens = 4} == e:generate('1 2 3', with{temperature = 0, tokens = 4})"),
            "true");
}

TEST_F(GenerateTest, ShowsTheTextAsItComes) {
  Show("e = start{pipe = 2}");
  Show("text = e:generate('1 2', with{tokens = 3})");
  const std::string text = Show("text");
  printed_.clear();
  EXPECT_EQ(Show("e:generate('1 2', with{tokens = 3, stream = true})"), "");
  EXPECT_EQ("\"" + printed_ + "\"", text.substr(0, text.size() - 1) + "\n\"");
  printed_.clear();
  Show("e:generate('ab', {tokens = 5, tokenizer = 'bytes'})");
  EXPECT_THAT(printed_, StartsWith("ab"));
  EXPECT_THAT(printed_, EndsWith("\n"));
  printed_.clear();
  Show("e:generate('1 2', '3', with{tokens = 3, stream = true})");
  EXPECT_THAT(printed_, StartsWith("[1] 1 2 "));
  EXPECT_THAT(printed_, HasSubstr("\n[2] 3 "));
}

TEST_F(GenerateTest, ALayerThatForgetsThePositionIsNamed) {
  Show("e = start({pipe = 2}, function() return 0 end)");
  testing::internal::CaptureStderr();
  Show("t = e:generate('1 2 3', with{tokens = 8})");
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("layer 1 Places(20, 16) gives other values for a token alone than within its text "
                "(strata.position() is the place of the first): "
                "the whole text runs for every token"));
  EXPECT_EQ(Show("t == e:generate('1 2 3', with{tokens = 8, keep = false})"), "true");
}

TEST_F(GenerateTest, SaysWhatDoesNotFit) {
  Show("e = start{}");
  EXPECT_THAT(Fail("e:generate('a')"), HasSubstr("has no tokenizer"));
  EXPECT_THAT(Fail("e:generate()"), HasSubstr("has no tokenizer"));
  EXPECT_THAT(Fail("e:generate(numbers)"), HasSubstr("there is no prompt"));
  EXPECT_THAT(Fail("e:generate(7, numbers)"), HasSubstr("expected texts, got the number 7"));
  EXPECT_THAT(Fail("e:generate('1', {token = 3})"), HasSubstr("did you mean \"tokens\"?"));
  EXPECT_THAT(Fail("e:generate('1', with{top_p = 0})"), HasSubstr("top_p"));
  EXPECT_THAT(Fail("strata.position(1)"), HasSubstr("takes no arguments"));
  EXPECT_EQ(Show("strata.position()"), "0");
}

}  // namespace
}  // namespace strata::lua
