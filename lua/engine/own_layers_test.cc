// Layers of a script that contain layers: what they compute and learn, their names, and their
// initial values.
#include "engine/base/text.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Block does the same as Sequential, written by hand; Deep contains a Block, and lists.
constexpr char kBegin[] = R"(
nn, F = strata.nn, strata.F
Block = strata.layer{
  name = "Block",
  init = function(self, dim)
    self.up = nn.Linear{dim, 2 * dim}
    self.norm = nn.LayerNorm{2 * dim}
    self.down = nn.Linear{2 * dim, dim}
  end,
  forward = function(self, x) return self.down(F.relu(self.norm(self.up(x)))) end,
}
Deep = strata.layer{
  name = "Deep",
  init = function(self, dim)
    self.scale = self:parameter{dim, init = function(p) p:uniform_(0.5, 1.5) end}
    self.block = Block{dim}
    self.towers = {}
    for i = 1, 2 do self.towers[i] = nn.Sequential{nn.Linear{dim, dim}, nn.Tanh{}} end
    self:buffer("offset", F.arange(dim):float())
  end,
  forward = function(self, x)
    local y = self.block(x * self.scale) + self.offset
    for _, tower in ipairs(self.towers) do y = tower(y) end
    return y
  end,
}
function data(i) return F.randn{2, 4}, F.tensor{i % 4, 1} end
function job(layers, more)
  local keys = {
    name = "net", device = "cpu", threads = 1, input = {shape = {4}}, layers = layers, loss = nn.CrossEntropyLoss{},
    batch = {micro_batches = 4, micro_batch_size = 2}, optimizer = {"sgd", lr = 0.1, momentum = 0.9},
    data = {train = data}, steps = 3, losses = true,
  }
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end
function losses(layers, more)
  local all = {}
  for _, step in ipairs(job(layers):train(more or {})) do
    for _, loss in ipairs(step.losses) do all[#all + 1] = ("%.17g"):format(loss) end
    all[#all + 1] = ("%.17g"):format(step.grad_norm)
  end
  return table.concat(all, " ")
end
)";

using OwnLayersTest = BegunTest<kBegin>;

// Initial values, losses and gradients equal those of the same layers in the engine's container.
TEST_F(OwnLayersTest, ALayerOfLayersIsWhatItsLayersAre) {
  EXPECT_EQ(Show("losses{Block{4}} == losses{nn.Sequential{nn.Linear{4, 8}, nn.LayerNorm{8}, "
                 "nn.ReLU{}, nn.Linear{8, 4}}}"),
            "true");
}

// The weight has 16 MiB: its values, their gradient, and what the backward gives are three times
// that. The initial values, which the layer's self had, are gone.
TEST_F(OwnLayersTest, InitialValuesDoNotStayAsGarbage) {
  Show(R"(
Table = strata.layer{
  name = "Table",
  init = function(self, rows)
    self.weight = self:parameter{rows, 4, init = function(w) w:normal_(0, 1) end}
  end,
  forward = function(self, x) return x + self.weight:narrow(0, 0, 1) end,
})");
  EXPECT_EQ(Show("job({Table{2^20}}, {optimizer = {'sgd', lr = 0.1}}):train()[1].peak_memory < "
                 "3.5 * 2^24"),
            "true");
}

// The gradient of such a weight has two sources: the layer, which may delay its part, and autograd.
TEST_F(OwnLayersTest, AWeightThatIsReadHasTheSameBitsUnderEverySchedule) {
  Show(R"(
Reads = strata.layer{
  name = "Reads",
  init = function(self) self.fc, self.block, self.net = nn.Linear{4, 4}, Block{4}, nn.Sequential{nn.Linear{4, 4}} end,
  forward = function(self, x)
    local y = self.fc(x):tanh() + F.linear(x, self.fc.weight):sin()
    y = self.block(y):tanh() + F.linear(F.linear(y, self.block.up.weight):sin(), self.block.up.weight:t())
    return self.net(y):tanh() + F.linear(y, self.net[1].weight):sin()
  end,
}
function run(more)
  return losses({Reads{}, nn.Tanh{}, Reads{}}, more)
end
one = run{pipe = 1})");
  for (const char* plan :
       {"pipe = 2, schedule = 'zb_h1'", "pipe = 3, schedule = 'zb_h1'",
        "pipe = 1, schedule = 'zb_h1'", "pipe = 2, recompute = true, schedule = 'zb_h1'"}) {
    EXPECT_EQ(Show(Str("run{", plan, "}")), Show("one")) << plan;
  }
}

TEST_F(OwnLayersTest, HasTheSameBitsUnderEveryPlan) {
  Show(
      "function net() return {Block{4}, Deep{4}, nn.Linear{4, 4}, Deep{4}} end; one = "
      "losses(net())");
  for (const char* plan :
       {"pipe = 2", "pipe = 3, schedule = 'zb_h1'", "pipe = 2, recompute = true", "pipe = 4"}) {
    const std::string other = Show(Str("losses(net(), {", plan, "})"));
    EXPECT_EQ(other, Show("one")) << plan;
  }
}

TEST_F(OwnLayersTest, LayersWithinComputeInTheJobsPrecision) {
  Show(R"(
function first(more) return job({Block{4}, Block{4}, nn.Linear{4, 4}}, more):train()[1].loss end
function near(precision)
  return math.abs(first{precision = precision} - first()) < 0.02
end
)");
  Show("job({nn.Linear{4, 4}, Block{4}}, {precision = 'bf16'}):plan{pipe = 1}:memory()");
  EXPECT_EQ(Show("near('bf16')"), "true");
  EXPECT_EQ(Show("near('fp16')"), "true");
}

// As in autocast: adding a float32 buffer gives float32, products accept float32 nevertheless, and
// norms and softmax keep the type of their input.
TEST_F(OwnLayersTest, ProductsTakeFloat32InHalfPrecision) {
  Show(R"(
function first(forward, more)
  local own = strata.layer{
    name = "Own",
    init = function(self)
      self.linear, self.norm, self.softmax = nn.Linear{4, 4}, nn.LayerNorm{4}, nn.Softmax{dim = -1}
      self.both, self.rnn = nn.Sequential{nn.Linear{4, 4}, nn.ReLU{}}, nn.LSTM{4, 4}
      self.attention, self.conv = nn.MultiheadAttention{4, 2}, nn.Conv1d{1, 1, 3, padding = 1}
      self.weight, self.typed = self:parameter{4, 4, fill = 0.25}, nn.Linear{4, 4, dtype = "bfloat16"}
      self:buffer("where", F.arange(4, {dtype = "float32"}):mul(0.125))
    end,
    forward = function(self, x)
      local y = forward(self, x + self.where)
      kind = y.dtype
      return y:to(x.dtype)
    end,
  }
  return job({nn.Linear{4, 4}, own{}, nn.Linear{4, 4}}, more):train()[1].loss
end
function gives(forward)
  local exact = first(forward)
  for _, precision in ipairs{"bf16", "fp16"} do
    if math.abs(first(forward, {precision = precision}) - exact) > 0.02 then return precision .. " is off" end
  end
  return kind
end
)");
  for (const char* product :
       {"self.linear(x)", "self.both(x)", "self.conv(x:unsqueeze(1)):squeeze(1)",
        "self.rnn(x:unsqueeze(1)):squeeze(1)", "x:matmul(self.weight)", "x:mm(self.weight)",
        "F.linear(x, self.weight)", "F.linear(self.norm(x), self.weight)",
        "F.conv1d(x:unsqueeze(1), self.conv.weight, nil, {1}, {1}):squeeze(1)",
        "F.linear(x, self.weight, F.zeros{4})", "F.einsum('ij,jk->ik', x, self.weight)",
        "(function(y) return self.attention(y, y, y):squeeze(1) end)(x:unsqueeze(1))"}) {
    EXPECT_EQ(Show(Str("gives(function(self, x) return ", product, " end)")), "\"float16\"")
        << product;
  }
  for (const char* other :
       {"x", "self.norm(x)", "self.softmax(x)", "self.typed(x)", "x * self.weight:select(0, 0)"}) {
    EXPECT_EQ(Show(Str("gives(function(self, x) return ", other, " end)")), "\"float32\"") << other;
  }
}

// A tensor that is overwritten for each micro-batch is still read by earlier ones: by delayed
// weight gradients and by messages.
TEST_F(OwnLayersTest, WhatAForwardKeepsAndWritesToIsEachMicroBatchsOwn) {
  Show(R"(
scratch = F.zeros{2, 4}
Queue = strata.layer{
  name = "Queue",
  init = function(self) self.linear = nn.Linear{4, 4}; self:buffer("mean", F.ones{1, 4}) end,
  forward = function(self, x)
    if self.training then self.mean:mul_(0.5):add_(x:detach():mean(0, true)) end
    return x + self.linear(self.mean), self.mean
  end,
}
function net()
  return {nn.Linear{4, 4}, function(x) return x, scratch:copy_(x:detach() * 0.5) end,
          function(x, y) return x * y end, nn.Linear{4, 4}, Queue{},
          function(x, y) return x * y end, nn.Linear{4, 4}}
end
one = losses(net())
)");
  for (const char* plan : {"pipe = 2, schedule = '1f1b'", "pipe = 3, schedule = 'zb_h1'",
                           "pipe = 2, schedule = 'gpipe'", "pipe = 1, schedule = 'zb_h1'",
                           "recompute = true", "pipe = 2, recompute = true"}) {
    EXPECT_EQ(Show(Str("losses(net(), {", plan, "})")), Show("one")) << plan;
  }
}

TEST_F(OwnLayersTest, WhatAForwardKeepsAndFillsAgainCrossesACut) {
  Show(R"(
kept = F.zeros{2, 4}
function net()
  return {nn.Linear{4, 4}, function(x) return kept:copy_(x:detach() * 0.5) end, nn.Linear{4, 4}}
end
)");
  EXPECT_EQ(Show("losses(net(), {pipe = 2, partition = {0, 2, 3}, schedule = 'gpipe'})"),
            Show("losses(net())"));
}

// A forward that runs again for the backward sees its buffers as the first run did, and changes
// none.
TEST_F(OwnLayersTest, BuffersChangeOnceWhereAForwardRunsAgain) {
  Show(R"(
Centred = strata.layer{
  name = "Centred",
  init = function(self) self:buffer("mean", F.zeros{4}); self:buffer("count", F.zeros{1}) end,
  forward = function(self, x)
    if self.training then
      self.mean:mul_(0.9):add_(x:detach():mean(0) * 0.1)
      self.count:add_(1)
    end
    return (x - self.mean) * self.count
  end,
}
function net() return {nn.Linear{4, 4}, Centred{}, nn.Tanh{}, Centred{}, nn.Linear{4, 4}} end
one = losses(net())
)");
  for (const char* plan : {"recompute = true", "recompute = {every = 2}",
                           "pipe = 2, recompute = true, schedule = '1f1b'"}) {
    EXPECT_EQ(Show(Str("losses(net(), {", plan, "})")), Show("one")) << plan;
  }
}

TEST_F(OwnLayersTest, ABufferTakesWhatAFunctionSetsIt) {
  Show(R"(
function counting(more)
  return strata.layer{
    name = "Counting",
    init = function(self) self:buffer("n", F.zeros{1}); self.w = self:parameter{4, fill = 1} end,
    reset = more.reset,
    forward = more.forward or function(self, x) return x * self.w + self.n end,
  }{}
end
function of(how) return losses{nn.Linear{4, 4}, counting(how), nn.Linear{4, 4}} end
set = {forward = function(self, x) self.n = self.n + 0.5; return x * self.w + self.n end}
add = {forward = function(self, x) self.n:add_(0.5); return x * self.w + self.n end}
seen = {}
show = {forward = function(self, x) self.n = self.n + 1; seen[#seen + 1] = self.n:item(); return x + self.n end}
)");
  EXPECT_EQ(Show("of(set) == of(add)"), "true");
  EXPECT_EQ(Show("of{reset = function(self) self.n:fill_(3); self.w:fill_(2) end} == "
                 "of{reset = function(self) self.n = F.full({1}, 3); self.w:fill_(2) end}"),
            "true");
  EXPECT_EQ(Show("of{reset = function(self) self.n:fill_(3) end} == of{}"), "false");
  EXPECT_THAT(Fail("of{forward = function(self, x) self.w = self.w * 2; return x * self.w end}"),
              HasSubstr("has set self.w, a parameter; write to it: self.w:copy_(tensor)"));
  EXPECT_THAT(Fail("of{reset = function(self) self.w = F.ones{4} end}"),
              HasSubstr("has set self.w, a parameter"));
  EXPECT_THAT(Fail("of{reset = function(self) self.w:requires_grad_(false) end}"),
              HasSubstr("reset cannot freeze w; a job's freeze = \"parameters:REGEX\" names"));
  EXPECT_THAT(Fail("of{forward = function(self, x) self.n = F.ones{2}; return x end}"),
              HasSubstr("has set self.n to float32 (2,); the buffer is float32 (1,)"));
  EXPECT_THAT(Fail("of{forward = function(self, x) self.n = nil; return x end}"),
              HasSubstr("has set self.n to nothing"));
}

// A layer finds its reset by its functions, so types with the same functions have one reset.
TEST_F(OwnLayersTest, TypesOfTheSameFunctionsHaveOneReset) {
  Show(R"(
init = function(self) self.w = self:parameter{4, fill = 1} end
times = function(self, x) return x * self.w end
set = function(self) self.w:fill_(2) end
function type(name, reset, forward)
  return strata.layer{name = name, init = init, reset = reset, forward = forward or times}
end
A, B = type("A", set), type("B", set))");
  for (const char* other : {"function(self) self.w:fill_(3) end", "nil"}) {
    EXPECT_THAT(Fail(Str("type('C', ", other, ")")),
                HasSubstr("another type has the same init and forward and another reset, or none"));
  }
  // The same init with another forward may have a reset of its own, or none.
  Show(R"(
C = type("C", function(self) self.w:fill_(3) end, function(self, x) return x * self.w end)
D = type("D", nil, function(self, x) return x * self.w end)
function values(kind) return losses{kind{}, nn.Linear{4, 4}} end
function filled(value)
  return values(strata.layer{name = "E", init = function(self) self.w = self:parameter{4, fill = value} end,
                             forward = times})
end)");
  EXPECT_EQ(Show("values(A) == filled(2) and values(B) == filled(2)"), "true");
  EXPECT_EQ(Show("values(C) == filled(3) and values(D) == filled(1)"), "true");
}

// Planning runs a trial backward from both outputs, one of which was made from the other.
TEST_F(OwnLayersTest, AnOutputMayBeMadeOfAnother) {
  Show(R"(
function two(forward)
  return {
    strata.layer{name = "Two", init = function(self) self.norm = nn.LayerNorm{4}; self.gate = nn.Linear{4, 1} end,
                 forward = forward}{},
    function(y, gate) return y * gate:sigmoid() end,
  }
end
function one(self, x) local y = self.norm(x) return y, self.gate(y) end
function cat(self, x) local y = F.cat({x, self.norm(x)}, 1):narrow(1, 2, 4) return y, self.gate(y) end
function other(self, x) local y = self.norm(x) return self.gate(y), y end)");
  for (const std::string forward : {"one", "cat", "other"}) {
    const std::string layers = "two(" + forward + ")";
    EXPECT_EQ(Show("losses(" + layers + ") == losses(" + layers + ", {parallel = {pipe = 2}})"),
              "true");
  }
}

// layer:forward(x) works as in PyTorch's modules.
TEST_F(OwnLayersTest, LayersInsideHaveAForward) {
  Show(R"(
function of(forward)
  return strata.layer{name = "Of", init = function(self) self.l = nn.Linear{4, 4} end, forward = forward}{}
end)");
  EXPECT_EQ(Show("losses{of(function(self, x) return self.l:forward(x) end)} == "
                 "losses{of(function(self, x) return self.l(x) end)}"),
            "true");
  EXPECT_THAT(Fail("losses{of(function(self, x) return x, nil, x end)}"),
              HasSubstr("value 2 of what it returns is nil"));
  EXPECT_THAT(Fail("losses{of(function(self, x) return x:masked_fill(x == 0, 1) end)}"),
              HasSubstr("x:eq(y) and x:ne(y) compare the elements"));
  EXPECT_THAT(Fail("losses{of(function(self, x) return x.sum() end)}"),
              HasSubstr("a method is called with a colon: x:sum()"));
  EXPECT_THAT(Fail("losses{of(function(self, x) return x.view(-1, 64) end)}"),
              HasSubstr("a method is called with a colon: x:view(...)"));
  EXPECT_THAT(Fail("losses{of(function(self, x) return x:view('a') end)}"),
              testing::Not(HasSubstr("a colon")));
}

// Other micro-batches are in flight while a forward shortens the vectors that it looks up.
TEST_F(OwnLayersTest, VectorsOfAMostNormAreShortenedUnderEveryPlan) {
  Show(R"(
function net()
  return {function(x) return (x:abs() * 5):long():clamp(0, 7) end, nn.Embedding{8, 4, max_norm = 0.5},
          function(x) return x:mean(1) end, nn.Linear{4, 4}}
end
one = losses(net())
)");
  for (const char* plan : {"pipe = 2, schedule = '1f1b'", "pipe = 2, schedule = 'zb_h1'"}) {
    EXPECT_EQ(Show(Str("losses(net(), {", plan, "})")), Show("one")) << plan;
  }
}

// Before the first trained layer, functions may have no gradient, on either side of a cut.
TEST_F(OwnLayersTest, NothingBeforeTheFirstThatLearnsNeedsAGradient) {
  Show(R"(
function net()
  return {function(x) return x * 2 end, function(x) return F.heaviside(x, F.zeros{1}) end,
          nn.Linear{4, 4}, nn.Linear{4, 4}, function(x) return F.heaviside(x, F.zeros{1}) end,
          nn.Linear{4, 4}}
end
function of(more) more.freeze = {2, 3}; return losses(net(), more) end
one = of{}
)");
  for (const char* plan :
       {"partition = {0, 1, 6}, pipe = 2", "partition = {0, 3, 6}, pipe = 2",
        "partition = {0, 1, 5, 6}, pipe = 3, schedule = 'zb_h1'", "recompute = {every = 1}"}) {
    EXPECT_EQ(Show(Str("of{", plan, "}")), Show("one")) << plan;
  }
}

// In half precision, layers compute with copies of the parameters, which each step makes anew.
TEST_F(OwnLayersTest, ShortenedVectorsStayShortInHalfPrecision) {
  Show(R"(
Words = strata.layer{
  name = "Words", init = function(self) self.table = nn.Embedding{3, 40, max_norm = 0.5} end,
  forward = function(self, x) return self.table(x) end,
}
function norms(layer, name)
  local keys = {
    name = "net", device = "cpu", threads = 1, layers = {layer, nn.Linear{40, 2}}, loss = nn.CrossEntropyLoss{},
    batch = {micro_batches = 1, micro_batch_size = 3}, optimizer = {"sgd", lr = 0}, steps = 2, precision = "bf16",
    data = {train = function() return F.tensor{0, 2, 0}, F.tensor{0, 1, 1} end},
  }
  local e = strata.job(keys):start{pipe = 1}
  e:train_batch()
  e:train_batch()
  local norm = e:parameter(name):norm(2, 1)
  return ("%.5f %s %.5f"):format(norm[0]:item(), tostring(norm[1]:item() > 1), norm[2]:item())
end)");
  EXPECT_EQ(Show("norms(nn.Embedding{3, 40, max_norm = 0.5}, '0.weight')"),
            "\"0.50000 true 0.50000\"");
  EXPECT_EQ(Show("norms(Words{}, '0.table.weight')"), "\"0.50000 true 0.50000\"");
}

TEST_F(OwnLayersTest, AnInitMayGiveTheInitialValues) {
  Show(R"(
function scaled(init)
  local Scale = strata.layer{
    name = "Scale", init = function(self) self.w = self:parameter{3, fill = 2, init = init} end,
    forward = function(self, x) return x * self.w end,
  }
  local e = strata.job{name = "net", device = "cpu", threads = 1, input = {shape = {3}}, layers = {Scale{}},
                       loss = nn.MSELoss{}, batch = {micro_batches = 1, micro_batch_size = 1},
                       optimizer = {"sgd", lr = 0}}:start{pipe = 1}
  return e:parameter("0.w")
end)");
  EXPECT_EQ(Show("scaled(function(p) return p + 1 end):sum():item()"), "9");
  EXPECT_EQ(Show("scaled(function(p) return p:fill_(5) end):sum():item()"), "15");
  EXPECT_EQ(Show("scaled(function(p) p:fill_(5) end):sum():item()"), "15");
  EXPECT_THAT(Fail("scaled(function(p) return F.ones{4} end)"),
              HasSubstr("the init of Scale.w may give a tensor (3,) or nothing, got"));
  EXPECT_THAT(Fail("scaled(function(p) return 5 end)"), HasSubstr("or nothing, got the number 5"));
}

// Low-rank adaptation: a frozen matrix with two trained ones beside it.
TEST_F(OwnLayersTest, PartsMayBeFrozen) {
  Show(R"(
Adapted = strata.layer{
  name = "Adapted",
  init = function(self, dim, rank)
    self.base = nn.Linear{dim, dim}
    self.a = self:parameter{dim, rank, init = nn.init.normal_}
    self.b = self:parameter{rank, dim}
  end,
  forward = function(self, x) return self.base(x) + x:matmul(self.a):matmul(self.b) end,
}
function net() return {Adapted{4, 2}, nn.Tanh{}, nn.Linear{4, 4}, Adapted{4, 2}} end
names = {"0.base.weight", "0.base.bias", "0.a", "0.b", "2.weight", "2.bias", "3.base.weight", "3.b"}
function train(more, plan)
  local e = job(net(), more):start(plan)
  local before, changed, sums = {}, {}, {}
  for _, name in ipairs(names) do before[name] = e:parameter(name) end
  for _ = 1, 3 do e:train_batch() end
  for _, name in ipairs(names) do
    local now = e:parameter(name)
    if not now:equal(before[name]) then changed[#changed + 1] = name end
    sums[#sums + 1] = ("%.17g"):format(now:sum():item())
  end
  return table.concat(changed, " "), table.concat(sums, " ")
end)");
  EXPECT_EQ(Show("(train({freeze = 'parameters:base|bias'}, {pipe = 1}))"),
            R"("0.a 0.b 2.weight 3.b")");
  EXPECT_EQ(Show("(train({freeze = {except = {'parameters:[.][ab]$', 2}}}, {pipe = 2}))"),
            R"("0.a 0.b 2.weight 2.bias 3.b")");
  Show("_, one = train({freeze = 'parameters:base|bias'}, {pipe = 1})");
  for (const char* plan :
       {"pipe = 2", "pipe = 3, schedule = 'zb_h1'", "pipe = 2, recompute = true"}) {
    EXPECT_EQ(Show(Str("select(2, train({freeze = 'parameters:base|bias'}, {", plan, "}))")),
              Show("one"))
        << plan;
  }
  EXPECT_EQ(Show("job(net(), {freeze = 'parameters:base'}):plan{pipe = 1}.layers[1].frozen"), "20");
}

// A forward that reads a weight with a low-rank part would compute without this part, and one that
// reads a packed weight finds no elements.
TEST_F(OwnLayersTest, LayersInsideMayHaveLowRankParts) {
  Show(R"(
Reads = strata.layer{
  name = "Reads",
  init = function(self) self.fc, self.block = nn.Linear{4, 4}, Block{4} end,
  forward = function(self, x) return F.linear(self.block(x), self.fc.weight) end,
}
function adapted(layers, plan, base, list)
  local all, adapt = {}, {"lora", rank = 2, layers = layers, base = base}
  for _, step in ipairs(job(list or {Reads{}, Deep{4}}, {adapt = adapt}):train(plan)) do
    all[#all + 1] = ("%.17g %.17g"):format(step.losses[1], step.grad_norm)
  end
  return table.concat(all, " ")
end
one = adapted("up|down|towers", {pipe = 1}))");
  for (const char* plan : {"pipe = 2", "pipe = 2, recompute = true, schedule = 'zb_h1'"}) {
    EXPECT_EQ(Show(Str("adapted('up|down|towers', {", plan, "})")), Show("one")) << plan;
  }
  EXPECT_THAT(Fail("adapted('fc', {pipe = 1})"),
              HasSubstr("Reads.fc.weight has a low-rank part (adapt)"));
  const auto packed = [](const char* plan) {
    return Str("adapted('towers', {", plan, "}, 'nf4', {Block{4}, Deep{4}, nn.Linear{4, 4}})");
  };
  EXPECT_EQ(Show(packed("pipe = 3, recompute = true")), Show(packed("pipe = 1")));
  EXPECT_THAT(Fail("adapted('up|down|towers', {pipe = 1}, 'nf4')"),
              HasSubstr("Reads.fc.weight is held as nf4 (adapt.base), and only a call of the "
                        "layer unpacks it"));
}

// The parameters that are trained get the same gradients as when all are trained.
TEST_F(OwnLayersTest, ParametersOfAnyLayerMayBeFrozen) {
  Show(R"(
last = nn.Linear{4, 4}
cut = nn.Unflatten{1, {2, 2}}
cases = {
  {{nn.Linear{4, 4}, nn.LayerNorm{4}, last}, {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}},
  {{cut, nn.Conv1d{2, 4, 1}, nn.BatchNorm1d{4}, nn.AdaptiveAvgPool1d{1}, nn.Flatten{}, last},
   {"1.weight", "1.bias", "2.weight", "2.bias", "5.weight", "5.bias"}},
  {{cut, nn.TransformerEncoderLayer{2, 1, 4, 0, batch_first = true}, nn.Flatten{}, last},
   {"1.self_attn.in_proj_weight", "1.self_attn.in_proj_bias", "1.self_attn.out_proj.weight", "1.linear1.weight",
    "1.linear1.bias", "1.norm1.weight", "1.norm2.bias", "3.weight"}},
  {{cut, nn.LSTM{2, 4, batch_first = true}, function(y) return y:select(1, 1) end, last},
   {"1.weight_ih_l0", "1.weight_hh_l0", "1.bias_ih_l0", "1.bias_hh_l0", "3.weight"}},
  {{nn.Sequential{nn.Linear{4, 4}, nn.Tanh{}, nn.Sequential{nn.Linear{4, 4}}}, Block{4}},
   {"0.0.weight", "0.0.bias", "0.2.0.weight", "0.2.0.bias", "1.up.weight", "1.up.bias", "1.norm.bias", "1.down.weight"}},
}
function gradients(layers, names, freeze, plan)
  local e = job(layers, {freeze = freeze, clip = "none"}):start(plan)
  e:train_batch()
  local all = {}
  for _, name in ipairs(names) do
    local ok, gradient = pcall(function() return e:gradient(name) end)
    all[name] = ok and gradient or nil
  end
  e:close()
  return all
end
function compare(plan)
  local compared, frozen = 0, 0
  for number, case in ipairs(cases) do
    local layers, names = case[1], case[2]
    local whole = gradients(layers, names, nil, plan)
    for _, regex in ipairs{"weight", "bias", "[.](0|up|1|2)[.]", "_hh_|norm|in_proj"} do
      local ok, part = pcall(gradients, layers, names, "parameters:" .. regex, plan)
      if ok then
        for _, name in ipairs(names) do
          if part[name] then
            local difference = (part[name] - whole[name]):abs():max():item()
            if difference > 1e-6 then return number .. " " .. regex .. " " .. name .. " " .. difference end
            compared = compared + 1
          else
            frozen = frozen + 1
          end
        end
      elseif not tostring(part):find("no parameter's name matches") then
        return tostring(part)
      end
    end
  end
  return compared > 30 and frozen > 30 and "alike" or compared .. " compared, " .. frozen .. " frozen"
end)");
  for (const char* plan :
       {"pipe = 1", "pipe = 2, schedule = 'zb_h1'", "pipe = 2, recompute = true"}) {
    EXPECT_EQ(Show(Str("compare{", plan, "}")), "\"alike\"") << plan;
  }
}

// Masks are tensors of similar shapes, so one in the place of another would go unnoticed.
TEST_F(OwnLayersTest, InputsWithNamesStandInTheirPlaces) {
  Show(R"(
function of(call)
  local own = strata.layer{
    name = "Named",
    init = function(self)
      self.e = nn.TransformerEncoderLayer{4, 2, 8, dropout = 0}
      self.a, self.l = nn.MultiheadAttention{4, 2}, nn.LSTM{4, 4}
    end,
    forward = function(self, x)
      local mask = F.ones{2, 2}:triu(1):gt(0)
      return call(self, x:view(2, 1, 4):expand(2, 2, 4), mask, x:view(1, 2, 4)):sum(0)
    end,
  }
  return losses{own{}, nn.Linear{4, 4}}
end
)");
  const auto of = [&](const char* call) {
    return Show(Str("of(function(self, x, m, s) return (", call, ") end)"));
  };
  EXPECT_EQ(of("self.e(x, {src_mask = m})"), of("self.e(x, F.zeros{2, 2}:gt(1), m)"));
  EXPECT_EQ(of("self.e(x, nil, m)"), of("self.e(x, F.zeros{2, 2}:gt(1), m)"));
  EXPECT_EQ(of("self.e{x, src_mask = m}"), of("self.e(x, F.zeros{2, 2}:gt(1), m)"));
  EXPECT_NE(of("self.e(x, {src_mask = m})"), of("self.e(x, m)"));
  EXPECT_EQ(of("self.e(x, {src_key_padding_mask = m})"), of("self.e(x, m)"));
  EXPECT_EQ(of("self.a(x, x, x, {attn_mask = m})"), of("self.a(x, x, x, F.zeros{2, 2}:gt(1), m)"));
  EXPECT_EQ(of("self.a(x, {attn_mask = m})"), of("self.a(x, x, x, {attn_mask = m})"));
  EXPECT_EQ(of("self.l(s, {c_0 = s * 2, h_0 = s})"), of("self.l(s, s, s * 2)"));
  const auto fail = [&](const char* call) {
    return Fail(Str("of(function(self, x, m, s) return (", call, ") end)"));
  };
  EXPECT_THAT(
      fail("self.e(x, {mask = m})"),
      HasSubstr("takes no input \"mask\"; it is one of src, src_key_padding_mask, src_mask"));
  EXPECT_THAT(fail("self.l(s, {h0 = s})"),
              HasSubstr("takes no input \"h0\"; did you mean \"h_0\"?"));
  EXPECT_THAT(fail("self.e(x, {src = x})"), HasSubstr("was given src twice"));
  EXPECT_THAT(fail("self.l(s, {c_0 = s})"), HasSubstr("expects all first states or none"));
}

// Planning has not run the path that evaluation takes.
TEST_F(OwnLayersTest, AShapeThatWasNotPlannedIsAnError) {
  Show(R"(
function evaluated(make, shape)
  local own = strata.layer{
    name = "Own",
    init = function(self) self.layer = make() end,
    forward = function(self, x)
      if self.training then return x end
      return (self.layer(shape(x)))
    end,
  }
  local trained = job({own{}, nn.Linear{4, 4}}, {data = {train = data, test = data}, eval = {batches = 1}})
  return trained:train()
end
)");
  for (const char* call :
       {"function() return nn.Linear{4, 4} end, function(x) return x:narrow(1, 0, 3) end",
        "function() return nn.Linear{4, 4} end, function(x) return F.cat({x, x}, 1) end",
        "function() return nn.LSTM{4, 4} end, function(x) return x:narrow(1, 0, 3):unsqueeze(0) "
        "end",
        "function() return nn.MultiheadAttention{4, 2} end, function(x) return x:narrow(1, 0, "
        "3):unsqueeze(0) end",
        "function() return nn.TransformerEncoderLayer{4, 2, 8} end, function(x) return x:narrow(1, "
        "0, 3):unsqueeze(0) end",
        "function() return nn.ReLU{} end, function(x) return {x, x} end",
        "function() return nn.Bilinear{4, 4, 4} end, function(x) return x end",
        "function() return nn.SwiGLU{4, 4} end, function(x) return x:narrow(1, 0, 3) end"}) {
    EXPECT_THAT(Fail(Str("evaluated(", call, ")")), HasSubstr("expects ")) << call;
  }
}

TEST_F(OwnLayersTest, ALossWithoutGradientIsTold) {
  const auto told = [&](const char* loss) {
    testing::internal::CaptureStderr();
    Show(Str("job({nn.Linear{4, 4}}, {loss = function(y, labels) return ", loss, " end}):train()"));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(told("y:argmax(1):eq(labels):float():mean()"),
              HasSubstr("depends on no parameter: nothing learns from it"));
  EXPECT_EQ(told("y:square():mean()"), "");
}

TEST_F(OwnLayersTest, AGradientThatFailsNamesTheLayer) {
  Show(R"(
Bad = strata.layer{
  name = "Bad",
  init = function(self) self.linear = nn.Linear{4, 4} end,
  forward = function(self, x)
    local y = x * 2
    local z = y * y
    return self.linear(z + y:add_(1))
  end,
}
)");
  for (const char* keys : {"", "memory = '1GB'"}) {  // the second measures first what layers keep
    const std::string error = Fail(Str("job({nn.Linear{4, 4}, Bad{}}, {", keys, "}):train()"));
    EXPECT_THAT(error,
                HasSubstr(*keys ? "]:1: Bad(): one of the variables" : "one of the variables"));
    EXPECT_THAT(error, testing::Not(HasSubstr("anomaly")));
    EXPECT_THAT(error, testing::Not(HasSubstr("frame #")));
  }
}

// Shapes are planned without values, so wrong dtypes are found only in training.
TEST_F(OwnLayersTest, AnErrorWhileItRunsNamesTheFunction) {
  EXPECT_THAT(
      Fail("job{function(x) return x:matmul(F.ones({4, 4}, {dtype = 'float64'})) end}:train()"),
      testing::ContainsRegex("]:1: the function of layer .*: matmul: .*double"));
}

TEST_F(OwnLayersTest, ShapesFollowWhatAForwardCaptures) {
  Show(R"(
function wider(width)
  return strata.layer{
    name = "Wider",
    init = function(self) self.w = self:parameter{4} end,
    forward = function(self, x) return F.cat({x * self.w, x:narrow(1, 0, width)}, 1) end,
  }{}
end
one, two = wider(1), wider(2)
function output(layer, rows) return job{layer}:plan{batch = {micro_batch_size = rows}}.layers[1].output[1].shape end
)");
  EXPECT_EQ(Show("return output(one, 2), output(one, 3), output(two, 3)"),
            "{2, 5}\n{3, 5}\n{3, 6}");
}

TEST_F(OwnLayersTest, PartsHavePyTorchsNamesAndAreCounted) {
  EXPECT_EQ(Show("Deep{4}.parameters"), std::to_string(4 + (40 + 16 + 36) + 2 * 20));
  Show(R"(
Names = strata.layer{
  name = "Names",
  init = function(self)
    self.attn = nn.MultiheadAttention{4, 2, batch_first = true}
    self.deep = Deep{4}
  end,
  forward = function(self, x)
    seen = {self.attn.in_proj_weight.shape, self.deep.block.up.weight.shape,
            self.deep.towers[2][1].weight.shape, self.deep.offset.shape, tostring(self.deep.block)}
    return self.deep(x)
  end,
}
Unknown = strata.layer{
  name = "Unknown",
  init = function(self) self.fc = nn.Linear{4, 4} end,
  forward = function(self, x) return x + self.fc.wieght end,
}
job{Names{}}:plan{}
)");
  EXPECT_EQ(Show("seen"), "{{12, 4}, {8, 4}, {4, 4}, {4}, \"Names.deep.block\"}");
  EXPECT_THAT(Fail("job{Unknown{}}:plan{}"), HasSubstr("did you mean \"weight\"?"));
}

TEST_F(OwnLayersTest, InitialValuesAreDrawnAsInitMakesThem) {
  Show(R"(
Mixed = strata.layer{
  name = "Mixed",
  init = function(self)
    self.b, self.a = nn.Linear{4, 4}, nn.Linear{4, 4}
    self.p = self:parameter{4, init = function(p) nn.init.normal_(p) end}
    self.c = nn.Linear{4, 4}
  end,
  forward = function(self, x) seen = {self.b.weight, self.a.weight, self.p, self.c.weight}; return self.c(self.a(self.b(x)) * self.p) end,
}
e = job({Mixed{}}, {seed = 7}):start{pipe = 1}
e:eval_batch((function() local done; return function() if not done then done = true; return data(0) end end end)())
Pair = strata.layer{
  name = "Pair",
  init = function(self) self.net = nn.Sequential{nn.Linear{4, 4}, nn.Linear{4, 4}} end,
  forward = function(self, x) other = {self.net[1].weight, self.net[2].weight}; return self.net(x) end,
}
e = job({Pair{}}, {seed = 7}):start{pipe = 1}
e:eval_batch((function() local done; return function() if not done then done = true; return data(0) end end end)())
)");
  // Each Linear draws its weight and its bias, in the order in which the layers are made.
  EXPECT_EQ(Show("seen[1] == other[1] and seen[2] == other[2]"), "true");
  EXPECT_EQ(Show("seen[2] == seen[4]"), "false");
}

TEST_F(OwnLayersTest, ResetAndInitSetInitialValues) {
  Show(R"(
Reset = strata.layer{
  name = "Reset",
  init = function(self)
    self.fc = nn.Linear{4, 4, init = function(layer) nn.init.ones_(layer.weight); nn.init.zeros_(layer.bias) end}
    self.out = nn.Linear{4, 4}
  end,
  reset = function(self) nn.init.constant_(self.out.weight, 0.5); nn.init.zeros_(self.out.bias) end,
  forward = function(self, x) return self.out(self.fc(x)) end,
}
function once() local done; return function() if not done then done = true; return F.ones{2, 4}, F.tensor{0, 1} end end end
loss, out = job{Reset{}}:start{}:eval_batch(once(), {outputs = true})
plain, other = job{nn.Linear{4, 4, init = function(layer) nn.init.constant_(layer.weight, 2); nn.init.ones_(layer.bias) end}}:start{}:eval_batch(once(), {outputs = true})
)");
  EXPECT_EQ(Show("out[1]:tolist()[1][1]"), "8");
  EXPECT_EQ(Show("other[1]:tolist()[1][1]"), "9");
  EXPECT_THAT(
      Fail("job{nn.Linear{4, 4, init = function(l) l.bias:requires_grad_(false) end}}:start{}"),
      HasSubstr("init cannot freeze bias; a job's freeze = \"parameters:REGEX\" names"));
}

TEST_F(OwnLayersTest, SeveralInputsAndOutputsPassThrough) {
  Show(R"(
Two = strata.layer{
  name = "Two",
  init = function(self) self.a, self.b = nn.Linear{4, 4}, nn.Linear{4, 4} end,
  forward = function(self, x, y) return self.a(x), self.b(y) end,
}
Outer = strata.layer{
  name = "Outer",
  init = function(self) self.two = Two{} end,
  forward = function(self, x) local a, b = self.two(x, x * 2); local c, d = self.two({a, b}); return c + d end,
}
)");
  EXPECT_EQ(Show("losses{Outer{}} == losses({Outer{}, function(x) return x * 1 end}, {pipe = 2})"),
            "true");
}

TEST_F(OwnLayersTest, FrozenLayersInsideStay) {
  Show(R"(
function run(freeze)
  local e = job({Block{4}, nn.Linear{4, 4}}, {freeze = freeze}):start{}
  for _ = 1, 3 do e:train_batch() end
  return e:eval_batch((function() local done; return function() if not done then done = true; return F.ones{2, 4}, F.tensor{0, 1} end end end)())
end
)");
  EXPECT_EQ(Show("run{0} == run{}"), "false");
}

// ---- Mistakes

TEST_F(OwnLayersTest, WrongShapesNameTheLayerInside) {
  Show(R"(
Wrong = strata.layer{
  name = "Wrong", init = function(self) self.fc = nn.Linear{8, 4} end,
  forward = function(self, x)
    return self.fc(x)
  end,
})");
  EXPECT_THAT(Fail("job{Wrong{}}:plan{}"),
              AllOf(HasSubstr("]:5:"), HasSubstr("Wrong.fc Linear(8, 4)"),
                    HasSubstr("expects last dim 8")));
}

TEST_F(OwnLayersTest, LayersAreMadeInInitAndCalledInForward) {
  Show(R"(
function own(init, forward)
  return strata.layer{name = "Own", init = init, forward = forward or function(self, x) return x end}
end
)");
  EXPECT_THAT(
      Fail("job{own(nil, function(self, x) self.fc = nn.Linear{4, 4}; return x end){}}:plan{}"),
      HasSubstr("a layer is made and kept in init"));
  EXPECT_THAT(Fail("job{own(nil, function(self, x) return nn.Linear{4, 4}(x) end){}}:plan{}"),
              HasSubstr("Linear(4, 4) cannot be called here: keep it in the init of a layer"));
  EXPECT_THAT(Fail("own(function(self) self.a = nn.Linear{4, 4}; self.b = self.a end){}"),
              HasSubstr("init keeps one layer as a and as b"));
  EXPECT_THAT(Fail("outside = nn.Linear{4, 4}; own(function(self) self.a = outside end){}"),
              HasSubstr("init keeps Linear(4, 4) as a, which was made outside of it"));
  EXPECT_THAT(Fail("own(function(self) self.a = nn.ReLU end){}"),
              HasSubstr("self.a is the bare nn.ReLU"));
  EXPECT_THAT(Fail("own(function(self) self.a = nn.MSELoss{} end){}"),
              HasSubstr("is a loss, not a layer; F.mse_loss(...) is the same as a function"));
  EXPECT_THAT(Fail("nn.MSELoss{}(F.ones{2}, F.ones{2})"),
              HasSubstr("MSELoss() cannot be called here; F.mse_loss(...) is the same"));
  Show(R"(
without = {}
for name in pairs(nn) do
  if name:find("Loss$") then
    local _, text = pcall(function() nn[name]{}(1) end)
    local known = text:match("; F%.([%w_]+)%(")
    if known then _ = F[known] else without[#without + 1] = name end
  end
end
)");
  EXPECT_EQ(Show("without"), "{}") << "each is a function of F, too";
  EXPECT_THAT(Fail("own(function(self) self:buffer('a.b', F.ones{2}) end){}"),
              HasSubstr("a field's name"));
  EXPECT_THAT(Fail("own(function(self) self:buffer('a', 7) end){}"),
              HasSubstr("the buffer's tensor"));
  Show(R"(
kept = nil
Leaks = own(function(self) self.fc = nn.Linear{4, 4} end, function(self, x) kept = self.fc; return self.fc(x) end)
job{Leaks{}}:plan{}
)");
  EXPECT_THAT(Fail("kept(F.ones{2, 4})"), HasSubstr("Own.fc can be called only while the forward"));
}

// ---- The parts of a loss

TEST_F(OwnLayersTest, PartsOfTheLossAreMeansAsTheLossIs) {
  Show(R"(
function parts(y, t)
  local loss = F.cross_entropy(y, t)
  return loss, {twice = 2 * loss, one = 1}
end
function summed(y, t)
  local sum = F.cross_entropy(y, t, {reduction = "sum"})
  return sum, 2, {twice = 2 * sum, one = 2}
end
function check(loss, more)
  for _, step in ipairs(job({Block{4}, nn.Linear{4, 4}}, {loss = loss}):train(more)) do
    if math.abs(step.parts.twice - 2 * step.loss) > 1e-6 or step.parts.one ~= 1 then return step end
  end
  return "right"
end
)");
  for (const char* more :
       {"{}", "{pipe = 2}",
        "{data = 2, pipe = 1, batch = {micro_batches = 2, micro_batch_size = 2}}"}) {
    EXPECT_EQ(Show(Str("check(parts, ", more, ")")), "\"right\"") << more;
    EXPECT_EQ(Show(Str("check(summed, ", more, ")")), "\"right\"") << more;
  }
  Show(
      "n = 0; function changing(y, t) n = n + 1; return F.cross_entropy(y, t), {['p' .. n] = 1} "
      "end");
  EXPECT_THAT(Fail("job({Block{4}}, {loss = changing}):train{}"),
              HasSubstr("it gives the same ones each time"));
  EXPECT_THAT(Fail("job({Block{4}}, {loss = function(y, t) return F.cross_entropy(y, t), {a = 'x'} "
                   "end}):train{}"),
              HasSubstr("the loss function's part \"a\" must be a number"));
}

}  // namespace
}  // namespace strata::lua
