// What a script's layers and losses know about the run that they are in.
#include <filesystem>
#include <fstream>

#include "engine/base/text.h"
#include "lua/host/engine_api.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// `seen` counts the values of strata.training() in an own layer, a function, a tied layer and the
/// loss.
constexpr char kBegin[] = R"(
nn, F = strata.nn, strata.F
seen = {}
function note(who, training)
  local key = who .. " " .. tostring(training)
  seen[key] = (seen[key] or 0) + 1
end
function data(i) return F.ones{2, 4}, F.tensor{0, 1} end
function twice() local left = 2; return function() left = left - 1; if left >= 0 then return data(0) end end end
Own = strata.layer{
  name = "Own",
  init = function(self) note("init", self.training) end,
  forward = function(self, x) note("own", self.training); return x end,
}
function tied(layer, x) note("tied", layer.training); return x:matmul(layer.weight:t()) end
function job(more)
  local keys = {
    name = "net", device = "cpu", threads = 1, input = {shape = {4}},
    layers = {strata.tied{"w", nn.Linear{4, 4, bias=false}}, Own{}, nn.Tanh{},
              function(x) note("function", strata.training()); return x * 1 end,
              strata.tied{"w", nn.Linear{4, 4, bias=false}, forward=tied}},
    loss = function(y, t) note("loss", strata.training()); return F.cross_entropy(y, t) end,
    batch = {micro_batches = 2, micro_batch_size = 2}, optimizer = {"sgd", lr = 0}, data = {train = data}, steps = 1,
  }
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end
)";

using TrainingTest = BegunTest<kBegin>;

TEST_F(TrainingTest, LayersAndLossesKnowWhetherTheyTrain) {
  Show("e = job():start{pipe = 2}; seen = {}; e:train_batch()");
  EXPECT_EQ(Show("seen"),
            R"({["function true"]=2, ["loss true"]=2, ["own true"]=2, ["tied true"]=2})");
  Show("seen = {}; e:eval_batch(twice())");
  EXPECT_EQ(Show("seen"),
            R"({["function false"]=2, ["loss false"]=2, ["own false"]=2, ["tied false"]=2})");
  EXPECT_EQ(Show("strata.training()"), "true") << "outside of a run";
}

TEST_F(TrainingTest, WhatIsPlannedOrRunsAgainTrains) {
  Show("j = job{recompute = true}; seen = {}; e = j:start{pipe = 2}");
  EXPECT_EQ(Show("seen['function false'] or seen['own false'] or seen['tied false'] or "
                 "seen['loss false'] or seen['init false']"),
            "nil");
  Show("seen = {}; e:train_batch()");
  EXPECT_EQ(Show("seen"),
            R"({["function true"]=4, ["loss true"]=4, ["own true"]=4, ["tied true"]=4})");
}

TEST_F(TrainingTest, AShortMicroBatchKeepsTheDimOfTheClasses) {
  // There are as many tokens as classes, so the labels fit the output without dim 1 and without the
  // last dim.
  Show(R"(
j = strata.job{
  name = "net", device = "cpu", threads = 1, layers = {nn.Embedding{9, 4}, nn.Linear{4, 3}},
  loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 1, micro_batch_size = 2}, optimizer = {"sgd", lr = 0},
  data = {train = function() return F.zeros{2, 5}:to("int64"), F.zeros{2, 5}:to("int64") end}, steps = 1,
  eval = {metrics = {"accuracy"}},
}
x, t = F.tensor{{1, 2, 3}, {4, 5, 6}}, F.tensor{{0, 1, 2}, {0, 0, 2}}
function once(x, t) local left = 1; return function() left = left - 1; if left == 0 then return x, t end end end
e = j:start{pipe = 2}
y = e:predict(x)
loss = e:eval_batch(once(x, t)))");
  EXPECT_EQ(Show("math.abs(loss - F.cross_entropy(y:reshape{6, 3}, t:reshape{6}):item()) < 1e-6"),
            "true");
  EXPECT_EQ(Show("math.abs(loss - F.cross_entropy(y, t):item()) > 1e-3"), "true")
      << "dim 1 would be another loss";
}

TEST_F(TrainingTest, EnginesAndRanksDoNotTellEachOther) {
  // Every rank lets the others run Lua within its layer, and then asks again.
  Show(R"(
function meet(x)
  local before = strata.training()
  strata.comm.barrier()
  note("meet", before)
  note("again", strata.training())
  return x
end
j = job{layers = {nn.Linear{4, 4}, meet}}
a, b = j:start{data = 2, pipe = 1}, j:start{data = 2, pipe = 1}
seen = {}
for _ = 1, 3 do a:train_batch(); b:eval_batch(twice()) end
)");
  EXPECT_EQ(Show("seen['meet true'] == seen['again true'] and seen['meet true'] == 12"), "true");
  EXPECT_EQ(Show("seen['meet false'] == seen['again false'] and seen['meet false'] == 6"), "true");
}

TEST_F(TrainingTest, DropoutInAFunctionIsForTrainingOnly) {
  Show(R"(
function net(drop) return job{layers = {nn.Linear{4, 4}, drop}, loss = nn.CrossEntropyLoss{}}:start{} end
function dropped(x) return F.dropout(x, 0.5, strata.training()) end
with, without = net(dropped), net(function(x) return x * 1 end)
)");
  EXPECT_EQ(Show("with:eval_batch(twice()) == without:eval_batch(twice())"), "true");
  EXPECT_EQ(Show("with:train_batch() == without:train_batch()"), "false");
}

TEST_F(TrainingTest, ALayerCannotSayThatItTrains) {
  EXPECT_THAT(Fail("strata.layer{name = \"A\", init = function(self) self.training = false end, "
                   "forward = function(self, x) return x end}{}"),
              AllOf(HasSubstr("]:1"), HasSubstr("self.training says whether the layer trains")));
  Show(
      "B = strata.layer{name = \"B\", forward = function(self, x) self.training = true; return x "
      "end}");
  EXPECT_THAT(Fail("job{layers = {B{}}}:plan{}"), HasSubstr("self.training says"));
  EXPECT_THAT(Fail("strata.training(1)"), HasSubstr("strata.training() takes no arguments"));
}

TEST_F(TrainingTest, WhatABackwardDoesNotComeToHasNoGradientOfTheStepBefore) {
  // Of the Residual, only the path of the input itself is left.
  Show(R"(
stops = false
function pass(x) return stops and x:detach() * 1 or x * 1 end
function wide(i) return F.ones{2, 128} * (i + 1), F.tensor{0, 1} end
function net(layers, sizes)
  local j = job{input = {shape = {128}}, layers = layers, loss = nn.CrossEntropyLoss{}, data = {train = wide}}
  return j:start(sizes)
end
function size(e, name) return e:gradient(name):abs():max():item() end
function sizes(e, name)
  stops = false; e:train_batch()
  local before = size(e, name)
  stops = true; e:train_batch()
  return before > 0, size(e, name), size(e, "2.weight") > 0
end
)");
  for (const char* degrees : {"{data = 1}", "{data = 2}", "{data = 2, zero = 1}"}) {
    EXPECT_EQ(Show(Str("sizes(net({nn.Linear{128, 128}, pass, nn.Linear{128, 2}}, ", degrees,
                       "), '0.weight')")),
              "true\n0\ntrue")
        << degrees;
    EXPECT_EQ(Show(Str("sizes(net({nn.Linear{128, 128}, nn.Residual{nn.Linear{128, 128}, pass}, "
                       "nn.Linear{128, 2}}, ",
                       degrees, "), '1.0.weight')")),
              "true\n0\ntrue")
        << degrees;
  }
}

TEST_F(TrainingTest, WeightsThatAScriptUsesBesideTheirProductKeepAllOfTheirGradient) {
  Show(R"(
function gradient(penalty)
  local Own = strata.layer{
    name = "Own",
    init = function(self) self.fc = nn.Linear{128, 128} end,
    forward = function(self, x) return self.fc(x) + penalty * self.fc.weight:sum() end,
  }
  local j = job{input = {shape = {128}}, layers = {Own{}, nn.Linear{128, 2}}, loss = nn.CrossEntropyLoss{},
                data = {train = function(i) return F.ones{2, 128} * (i + 1), F.tensor{0, 1} end}}
  local e = j:start{pipe = 1}
  e:train_batch()
  return e:gradient("0.fc.weight")
end
)");
  EXPECT_EQ(Show("(gradient(0.001) - gradient(0)):abs():min():item() > 0"), "true");
}

TEST_F(TrainingTest, TensorsAreReadByName) {
  Show(R"(
e = job{layers = {nn.Linear{4, 4}, nn.Tanh{}, nn.Linear{4, 2}}, loss = nn.CrossEntropyLoss{},
        optimizer = {"sgd", lr = 0.5}, freeze = {0}}:start{pipe = 2}
before = e:parameter("2.weight")
e:train_batch()
moved = before - e:parameter("2.weight")
gradient = e:gradient("2.weight")
)");
  EXPECT_EQ(Show("(moved - gradient * 0.5):abs():max():item() < 1e-6 and "
                 "gradient:abs():max():item() > 1e-3"),
            "true");
  EXPECT_EQ(Show("#e:parameter('0.bias'):size()"), "1");
  EXPECT_THAT(Fail("e:gradient('0.weight')"), HasSubstr("\"0.weight\" does not learn"));
  EXPECT_THAT(Fail("e:parameter('2.wieght')"), HasSubstr("did you mean \"2.weight\"?"));
}

TEST_F(TrainingTest, HistogramsAreInTheListOfSteps) {
  Show(R"(
steps = job{layers = {nn.Linear{4, 2}}, loss = nn.CrossEntropyLoss{}, steps = 4, histograms = 2}:train{}
function drawn(i) return steps[i].histograms and steps[i].histograms["0.weight"].num end
)");
  EXPECT_EQ(Show("{drawn(2), drawn(4)}"), "{8, 8}");
  EXPECT_EQ(Show("drawn(1) == nil and drawn(3) == nil"), "true");
}

TEST_F(TrainingTest, CallbacksHearOfTheTraining) {
  Show(R"(
heard = {}
function hear(what, key) return function(s) heard[#heard + 1] = what .. s.step .. " " .. type(s[key]) end end
plain = {layers = {nn.Linear{4, 2}}, loss = nn.CrossEntropyLoss{}, steps = 2, grad_norms = true,
         callbacks = {on_step = hear("step ", "grad_norms")}}
job(plain):train{}
)");
  EXPECT_EQ(Show("heard"), R"({"step 0 table", "step 1 table"})");
  testing::internal::CaptureStderr();
  Show("job(plain):start{}");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("job:start{...} calls no callbacks: job:train{...} does"));
  Show("plain.callbacks = {on_step = function(s) error('enough of ' .. s.step) end}");
  EXPECT_THAT(Fail("job(plain):train{}"), HasSubstr("enough of 0"));
}

// ---- Saves

constexpr char kSaves[] = R"(
function begin(dir, save)
  local samples = strata.dataset{length = 8, get = function(i) return F.ones{4} * i, F.tensor(i % 2) end}
  save.dir = dir
  return job{layers = {nn.Linear{4, 2}}, loss = nn.CrossEntropyLoss{}, data = {train = samples, test = samples},
             save = save}:start{pipe = 1}
end
function train(e, steps) for _ = 1, steps do e:train_batch() end end
)";

TEST_F(TrainingTest, AnEngineThatEndsFinishesItsSave) {
  const ScriptFolder folder;
  const std::string dir = folder.path().string();
  Show(kSaves);
  Show(Str("e = begin('", dir, "/closed', {every = 1}); train(e, 3); e:close()"));
  EXPECT_TRUE(std::filesystem::exists(dir + "/closed/step-00000003"));
  Show(Str("e = begin('", dir, "/left', {every = 1}); train(e, 3)"));
  state_.reset();
  EXPECT_TRUE(std::filesystem::exists(dir + "/left/step-00000003"));
}

TEST_F(TrainingTest, AnEngineTellsOfSavesThatFail) {
  const ScriptFolder folder;
  const std::string dir = folder.path().string() + "/run";
  Show(kSaves);
  Show(Str("e = begin('", dir, "', {every = 1})"));
  std::filesystem::remove_all(dir);
  std::ofstream(dir) << "no folder";
  testing::internal::CaptureStderr();
  Show("train(e, 2)");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("step 1 was not saved: "));
  EXPECT_EQ(Show("ok, why = pcall(e.close, e); return ok"), "false");
  EXPECT_THAT(Show("why"), HasSubstr("the save of step 2 failed: "));
  EXPECT_THAT(Show("e"), HasSubstr("closed"));
}

TEST_F(TrainingTest, AnEngineKeepsItsBestSave) {
  const ScriptFolder folder;
  const std::string dir = folder.path().string() + "/run";
  Show(kSaves);
  Show(Str("e = begin('", dir, "', {best = 'test.loss'}); train(e, 1); e:evaluate()"));
  EXPECT_TRUE(std::filesystem::exists(dir + "/best/step-00000001"));
}

// ---- Steps that are not finite

constexpr char kNonFinite[] = R"(
bad = 2 -- the step that has infinity in its second micro-batch
function net(more)
  local keys = {layers = {nn.Linear{4, 4}, function(x) return x * 1 end, nn.Linear{4, 2}},
                loss = nn.CrossEntropyLoss{}, optimizer = {"sgd", lr = 0.1}, steps = 4,
                data = {train = function(i)
                  local x, t = data(i)
                  return i == 2 * bad - 1 and x / 0 or x, t
                end}}
  for name, value in pairs(more or {}) do keys[name] = value end
  return job(keys)
end
)";

TEST_F(TrainingTest, AStepThatIsNotFiniteIsAnErrorThatPcallCatches) {
  Show(kNonFinite);
  Show("e = net():start{pipe = 2}; e:train_batch()");
  EXPECT_EQ(Show("select('#', pcall(e.train_batch, e))"), "2");
  EXPECT_EQ(Show("ok, why = pcall(e.train_batch, e); return ok"), "false");
  EXPECT_THAT(Show("why"), AllOf(HasSubstr("step 2 was not taken: the loss is nan"),
                                 HasSubstr("the data (stage 0, micro-batch 1) gives an input")));
  EXPECT_EQ(Show("bad = 9; return e:train_batch() > 0"), "true") << "it goes on";
}

TEST_F(TrainingTest, TheStepBeforeIsSavedAndGoneOnFrom) {
  const std::string dir = testing::TempDir() + "/last_good";
  Show(kNonFinite);
  Show(Str("ok, why = pcall(function() net():train{pipe = 2, save = {dir = \"", dir, "\"}} end)"));
  EXPECT_THAT(Show("why"), HasSubstr("step 2 was not taken"));
  Show(Str("steps = net():train{pipe = 2, resume = \"", dir, "\", nonfinite = \"skip\"}"));
  EXPECT_EQ(Show("{#steps, steps[1].step, steps[1].skipped, steps[3].skipped}"), "{3, 1, 1, 1}");
  EXPECT_THAT(Fail("net{nonfinite = \"halt\"}"), HasSubstr("nonfinite"));
}

// Counts is a layer with a memory: a forward that runs twice must see the same buffer both times.
constexpr char kRemembers[] = R"(
Counts = strata.layer{name = "Counts", init = function(self) self:buffer("sum", F.zeros{1}) end,
  forward = function(self, x)
    self.sum = self.sum + x:detach():mean()
    return x * (1 + self.sum)
  end}
function counting(bad, how)
  return job{layers = {nn.Linear{4, 4}, Counts{}, nn.Linear{4, 2}}, optimizer = {"sgd", lr = 0.1}, steps = 3,
    nonfinite = how,
    loss = function(y, t)
      local labels, more = t[1], t[2]
      return F.cross_entropy(y, labels) + more:mean()
    end,
    data = {train = function(i)
      local x, t = data(i)
      return bad == "data" and i == 1 and x / 0 or x, {t, F.full({2}, bad == "loss" and i == 1 and math.huge or 0.5)}
    end}}
end
)";

TEST_F(TrainingTest, AStepThatCountsKeepsItsGradients) {
  Show(kRemembers);
  Show(R"(
function after(bad, grid)
  local e = counting(bad, "warn"):start(grid)
  e:train_batch()
  local norm = e:gradient("0.weight"):norm():item()
  e:train_batch()
  return ("%.17g %.17g"):format(norm, e:parameter("0.weight"):norm():item())
end)");
  for (const char* grid : {"{pipe = 1}", "{pipe = 2}", "{pipe = 2, recompute = true}"}) {
    EXPECT_EQ(Show(Str("after('loss', ", grid, ")")), Show(Str("after('none', ", grid, ")")));
  }
}

TEST_F(TrainingTest, TheFirstThatIsNotFiniteIsNamedWhereLayersRemember) {
  Show(kRemembers);
  Show("e = counting('data', 'stop'):start{pipe = 2}");
  EXPECT_EQ(Show("ok, why = pcall(e.train_batch, e); return ok"), "false");
  EXPECT_THAT(Show("why"), HasSubstr("the data (stage 0, micro-batch 1) gives an input"));
}

TEST_F(TrainingTest, ProbabilitiesAreCountedByTheLargest) {
  Show(R"(
function tested(soft)
  local samples = strata.dataset{length = 12, get = function(i)
    local label = F.tensor(i % 2)
    return F.arange(4, {dtype = "float32"}):add(i):sin(), soft and F.one_hot(label, 2):float() * 0.8 + 0.1 or label
  end}
  local e = job{layers = {nn.Linear{4, 2}}, loss = nn.CrossEntropyLoss{}, data = {train = samples, test = samples},
                optimizer = {"sgd", lr = 0.1}, steps = 2}:start{pipe = 1}
  return e:evaluate().accuracy
end)");
  EXPECT_EQ(Show("tested(true) == tested(false) and tested(true) ~= nil"), "true");
}

TEST_F(TrainingTest, TestDataMayHaveOtherShapes) {
  Show(R"(
function images(n, size)
  return strata.dataset{length = n, get = function(i)
    return F.ones{1, size, size}, F.zeros({size, size}, {dtype = "int64"})
  end}
end
net = strata.job{name = "net", device = "cpu", threads = 1, steps = 1, layers = {nn.Conv2d{1, 2, 3, padding = 1}},
  loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 1, micro_batch_size = 2}, optimizer = {"sgd", lr = 0.1},
  data = {train = images(16, 8), test = images(4, 12)}})");
  EXPECT_EQ(Show("net:start{pipe = 1}:evaluate().loss > 0"), "true");
}

TEST_F(TrainingTest, WhatAScriptDrawsIsTheSameEachTime) {
  EXPECT_EQ(Show("F.randn{2}"), State(Options()).Evaluate("strata.F.randn{2}").shown);
  EXPECT_THAT(State(Options()).Evaluate("strata.F.randn{2}").shown, HasSubstr("1.541"))
      << "as after torch.manual_seed(0)";
}

// ---- The memory that layers of the script take

TEST_F(TrainingTest, TheMemoryOfFunctionsIsMeasured) {
  Show(R"(
function block(x)                       -- keeps its input, two products and a mask
  local y = (x * x):exp()
  return F.dropout(y:view(-1, 64):matmul(weight), 0.1, strata.training()):view(x.shape) + x
end
weight = F.ones{64, 64} * 0.01
Wide = strata.layer{name = "Wide",
  init = function(self) self.a = self:parameter{64, 256, fill=0.01}; self.b = self:parameter{256, 64, fill=0.01} end,
  forward = function(self, x) return F.gelu(x:matmul(self.a)):matmul(self.b) end}
nets = {
  {nn.Linear{64, 64}, block, nn.Linear{64, 10}},
  {nn.Linear{64, 64}, Wide{}, nn.Tanh{}, nn.Linear{64, 10}},
  {nn.Linear{64, 64}, function(x) return x:sort(1) end, function(x, i) return x * 1 end, nn.Linear{64, 10}},
}
function compare(net, keys)
  local j = job{layers = nets[net], input = {shape = {64}}, batch = {micro_batches = 4, micro_batch_size = 8192},
                loss = nn.CrossEntropyLoss{}, optimizer = {"sgd", lr = 0}, steps = 2,
                data = {train = strata.data.images{shape = {64}, classes = 10, samples = 65536}}}
  local ratio = j:plan(keys):memory()[1].total / j:train(keys)[2].peak_memory
  return math.abs(ratio - 1) < 0.1 or ratio
end
)");
  for (const char* keys :
       {"{pipe = 1}", "{pipe = 1, schedule = \"gpipe\"}", "{pipe = 1, recompute = true}"}) {
    for (const int net : {1, 2, 3}) {
      EXPECT_EQ(Show(Str("compare(", net, ", ", keys, ")")), "true") << net << " " << keys;
    }
  }
}

}  // namespace
}  // namespace strata::lua
