// Scripts with tensors, from the declaration to training, with the real shared library.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/forecast/proved_programs.h"
#include "lua/host/engine_api.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// The beginning of every script here; `data` returns two rows of four numbers that depend on i.
constexpr char kBegin[] = R"(
nn, F = strata.nn, strata.F
function data(i)
  local x = F.arange(8, {dtype="float32"}):view(2, 4):mul(0.1):add(i % 3)
  return x, F.tensor{i % 2, (i + 1) % 2}
end
function job(more)
  local keys = {
    name = "net", device = "cpu", threads = 1,
    input = {shape = {4}},
    layers = {nn.Linear{4, 8}, nn.Tanh{}, nn.Linear{8, 8}, nn.Tanh{}, nn.Linear{8, 2}},
    loss = nn.CrossEntropyLoss{},
    batch = {micro_batches = 4, micro_batch_size = 2},
    optimizer = {"sgd", lr = 0.1},
    data = {train = data},
    steps = 3,
  }
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end
-- The losses of a training in full precision.
function losses(job, keys)
  local list = {}
  for i, step in ipairs(job:train(keys)) do list[i] = ("%.17g"):format(step.loss) end
  return list
end
)";

using EngineTest = BegunTest<kBegin>;

TEST_F(EngineTest, IsLoadedWhenATensorIsNeeded) {
  // This must be the first test, since later ones find the library loaded.
  if (LoadedEngine()) GTEST_SKIP() << "another test loaded the engine";
  Show("return strata.F, job()");
  Show("images = strata.data.images{shape = {4}, classes = 2, samples = 8}");
  Show("plan = job{data = {train = images}}:plan{pipe = 2}");
  EXPECT_EQ(LoadedEngine(), nullptr) << "built-in layers and data need no tensor";
  EXPECT_EQ(Show("F.arange(3):tolist()"), "{0, 1, 2}");
  ASSERT_NE(LoadedEngine(), nullptr);
  EXPECT_EQ(&LoadEngine(), LoadedEngine());
}

TEST_F(EngineTest, HasNoGradBeforeThereAreTensors) {
  EXPECT_THAT(Show("strata.no_grad?"), testing::StartsWith("strata.no_grad(f, ...): "));
  Show("early = strata.no_grad");
  EXPECT_EQ(Show("strata.no_grad(function(...) return ... end, 3, 4)"), "3\n4");
  Show("w = F.tensor({1.5}, {requires_grad = true})");
  EXPECT_EQ(Show("early(function() return (w * 2).requires_grad end)"), "false");
  EXPECT_EQ(Show("strata.no_grad(function() return (w * 2).requires_grad end)"), "false");
}

TEST_F(EngineTest, TellsWhatLibTorchOffers) {
  const Value facts = LoadEngine().Doctor();
  for (const char* name : {"libtorch", "blas", "mkldnn", "cpu_capability", "waiting", "cuda"}) {
    EXPECT_TRUE(facts.Has(name)) << name;
  }
  EXPECT_THAT(facts["libtorch"].as_string(), testing::StartsWith("2."));
}

TEST_F(EngineTest, WritesTheTraceOfATraining) {
  const std::string path = testing::TempDir() + "/trace.json";
  Show(Str("job():train{pipe = 2, schedule = \"1f1b\", trace = \"", path, "\"}"));
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, AllOf(HasSubstr("\"last_step\":2"), HasSubstr("\"name\":\"1B3\"")));
  EXPECT_THAT(Fail("job():start{trace = \"trace.json\"}"),
              HasSubstr("job:start{...} writes no trace: job:train{...} does"));
}

TEST_F(EngineTest, WhatOnlyTheLauncherShowsIsTold) {
  for (const char* method : {"train", "start"}) {
    testing::internal::CaptureStderr();
    Show(Str("job():", method, "{log = \"run.jsonl\", comm_log = true}"));
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr(Str("job:", method, "{...} writes no log: `strata train` does")),
                      HasSubstr(Str("job:", method, "{...} shows no comm_log"))));
  }
}

TEST_F(EngineTest, CompletesBehindOperatorsThatGiveATensor) {
  const auto names = [&](const char* line) { return state().Complete(line).candidates; };
  EXPECT_THAT(names("F.ones(2, 3):log_soft"), testing::ElementsAre("log_softmax"));
  EXPECT_THAT(names("F.tensor{1, 2}.sha"), testing::ElementsAre("shape"));
  Show("x = F.ones{2}");
  EXPECT_THAT(names("x:softmax(0):exp():log_soft"), testing::ElementsAre("log_softmax"));
  EXPECT_THAT(names("x:relu().sha"), testing::ElementsAre("shape"));
  EXPECT_THAT(names("x:max(0).sha"), testing::IsEmpty()) << "a tensor, or two";
  EXPECT_THAT(names("x:no_such_thing():sum"), testing::IsEmpty());
  EXPECT_THAT(names("F.no_such_thing(2):sum"), testing::IsEmpty());
}

TEST_F(EngineTest, LayersOfTheScriptMayShareToo) {
  Show(R"(
function mix(x)
  local part = strata.model.scatter(x):tanh()
  local sum = strata.model.reduce(part:sum({1}, true))
  return strata.model.gather(part) + sum
end
shared = job{layers = {nn.Linear{4, 8, split="column"}, nn.Tanh{}, nn.Linear{8, 8, split="row"}, mix,
                       nn.Linear{8, 2, split="column"}}}
one, two = losses(shared, {model = 1}), losses(shared, {model = 2})
difference = 0
for i = 1, #one do difference = math.max(difference, math.abs(one[i] - two[i])) end
)");
  EXPECT_EQ(Show("{#one, #two, difference < 1e-6}"), "{3, 3, true}");
}

// ---- Shapes and errors before training

TEST_F(EngineTest, FunctionsTellTheirShapes) {
  Show(
      "p = job{layers = {nn.Linear{4, 6}, function(x) return x:view(-1, 2, 3) end, nn.Flatten{}, "
      "function(x) return x:sum(1, true):repeat_interleave(2, 1) end}}:plan{}");
  EXPECT_EQ(Show("p.layers[2].output"), "{{dtype=\"float32\", shape={2, 2, 3}}}");
  EXPECT_EQ(Show("p.layers[4].output[1].shape"), "{2, 2}");
  EXPECT_EQ(Show("job{layers = {F.relu}, input = {shape = {4}}}:plan{}.layers[1].output[1].shape"),
            "{2, 4}");
}

TEST_F(EngineTest, FunctionsThatFailNameTheLayer) {
  EXPECT_THAT(
      Fail("job{layers = {nn.Linear{4, 6},\n function(x) return x:view(-1, 5) end}}:plan{}"),
      AllOf(HasSubstr("layer 1 function"), HasSubstr("]:2"), HasSubstr("view")));
  EXPECT_THAT(
      Fail("job{layers = {function(x) return 7 end}}:plan{}"),
      AllOf(HasSubstr("layer 0"), HasSubstr("must return a tensor"), HasSubstr("number 7")));
  EXPECT_THAT(Fail("job{layers = {function(x) end}}:plan{}"), HasSubstr("nothing"));
  EXPECT_THAT(Fail("job{layers = {function(x) return x:nothing() end}}:plan{}"),
              HasSubstr("nothing"));
  EXPECT_THAT(
      Fail("job{layers = {nn.Linear{4, 6}, function(x) return x end, nn.Linear{4, 2}}}:plan{}"),
      AllOf(HasSubstr("layer 2 Linear(4, 2)"), HasSubstr("layer 1 function")));
  EXPECT_THAT(Fail("job{layers = {function(x) error({}) end}}:plan{}"), HasSubstr("layer 0"));
}

TEST_F(EngineTest, PlanningHasALimitOfTime) {
  StateOptions options = Options();
  options.seconds = 0.5;
  state_ = std::make_unique<State>(options);
  Show(kBegin);
  EXPECT_THAT(Fail("job{layers = {function(x) while true do end end}}:plan{}"),
              HasSubstr("longer than"));
  EXPECT_THAT(Fail("job{partition = function() while true do end end}:plan{pipe = 2}"),
              HasSubstr("longer than"));
}

TEST_F(EngineTest, ErrorsHaveNoCxxText) {
  for (const char* text :
       {"F.ones{2}:view(3)", "job{layers = {function(x) return x:view(3, 3) end}}:plan{}",
        "job{layers = {function(x) return F.linear(x, F.ones{3, 3}) end}}:plan{}",
        "F.embedding(F.ones{2}, F.tensor{5})"}) {
    EXPECT_THAT(Fail(text), AllOf(Not(""), Not(HasSubstr("c10")), Not(HasSubstr("at::")),
                                  Not(HasSubstr("std::")), Not(HasSubstr(".cpp")),
                                  Not(HasSubstr("Exception raised"))))
        << text;
  }
  EXPECT_THAT(Fail("job():start{}:predict(F.ones{2, 4}:to_sparse())"),
              AllOf(Not(""), Not(HasSubstr("Exception raised"))));
}

TEST_F(EngineTest, MemoryThatIsNotThereIsTheWorldsFault) {
  EXPECT_THROW(Show("F.ones{1e6, 1e6, 1e3}"), WorldError);
  EXPECT_EQ(Show("pcall(F.ones, 1e6, 1e6, 1e3)").substr(0, 5), "false") << "a script may catch it";
}

// ---- Training

/// Each job must give the same losses, bit for bit, wherever the layers are cut.
TEST_F(EngineTest, CutsDoNotChangeTheLosses) {
  Show(R"(
RMS = strata.layer{
  name = "RMS",
  init = function(self, dim) self.weight = self:parameter{dim, fill = 1} end,
  forward = function(self, x)
    return x * (x * x):mean({-1}, true):add(1e-5):rsqrt() * self.weight
  end,
}
cases = {
  built_in = job(),
  functions = job{layers = {
    function(x) return x * 2 end, nn.Linear{4, 8}, F.tanh, nn.Linear{8, 8},
    function(x) return x:relu() end, nn.Linear{8, 2},
  }},
  own = job{layers = {nn.Linear{4, 8}, RMS{8}, nn.Tanh{}, RMS{8}, nn.Linear{8, 2}}},
  random = job{layers = {
    nn.Linear{4, 8}, function(x) return F.dropout(x, 0.5) end, nn.Linear{8, 8}, nn.Dropout{0.5},
    function(x) return x * math.random() + math.random(3) end,
    function(x) return x + F.randn{8} end, nn.Linear{8, 2},
  }},
  random_data = job{data = {train = function(i)
    return F.randn{2, 4} + math.random(), F.randint(0, 2, {2})
  end}},
  loss = job{loss = function(output, target)
    return F.cross_entropy(output, target, {reduction = "sum"}), 2
  end},
  unused = job{layers = {  -- its gradient would be NaN, if zeros came for it
    nn.Linear{4, 8}, function(x) return x, (x * 0):sum(1):sqrt() end, function(x, n) return x:relu(), n end,
    function(x, n) return x end, nn.Linear{8, 2},
  }},
  twice = job{layers = {
    nn.Linear{4, 8}, function(x) return x, x, x end,
    function(a, b, c) return a:sin() * b + a:exp(), b * c:cos(), c end,
    function(a, b, c) return a * 0.37 + b * c + a:tanh() * c end, nn.Linear{8, 2},
  }},
})");
  for (const char* name :
       {"built_in", "functions", "own", "random", "random_data", "loss", "unused", "twice"}) {
    const std::string text = std::string("losses(cases.") + name + ", {pipe = ";
    const std::string one = Show(text + "1})");
    EXPECT_EQ(Show(text + "1})"), one) << name << ": again";
    EXPECT_EQ(Show(text + "2})"), one) << name;
    EXPECT_EQ(Show(text + "4})"), one) << name;
    EXPECT_EQ(Show(text + "3, schedule = 'gpipe'})"), one) << name;
    EXPECT_EQ(Show(text + "1, recompute = 'every:1'})"), one) << name;
    EXPECT_NE(Show(text + "1, seed = 5})"), one) << name;
  }
}

TEST_F(EngineTest, ALossFunctionEqualsTheBuiltInOne) {
  const std::string built_in = Show("losses(job{})");
  EXPECT_EQ(
      Show("losses(job{loss = function(output, target) "
           "return F.cross_entropy(output, target, {reduction = 'sum'}), output.shape[1] end})"),
      built_in);
  EXPECT_THAT(Fail("job{loss = function(output) return output end}:train{}"),
              HasSubstr("must return a tensor of one element"));
  EXPECT_THAT(Fail("job{loss = function(output) return 7 end}:train{}"), HasSubstr("number 7"));
  EXPECT_THAT(Fail("job{loss = function(output) return output:sum(), 'x' end}:train{}"),
              HasSubstr("weight must be a number"));
  EXPECT_THAT(Fail("job{loss = function() error('mine') end}:train{}"), HasSubstr("mine"));
  EXPECT_THAT(Fail("job{loss = function(output) return output:sum(), output:pow(2):sum() end}"
                   ":train{}"),
              HasSubstr("weight depends on parameters, and gives them no gradient"));
  EXPECT_THAT(Fail("job{loss = function(output) return output:sum(), -1 end}:train{}"),
              HasSubstr("weight must be at least 0, got -1"));
}

/// Three samples in micro-batches of two: the last micro-batch must have the weight of one sample,
/// in whichever dim an output has its samples.
TEST_F(EngineTest, AMeanHasTheWeightOfItsSamples) {
  Show(R"(
x = F.arange(24, {dtype="float32"}):view(3, 8):mul(0.3):sin()
function by(rows, layer)
  return losses(job{
    input = {shape = {8}}, layers = {nn.Linear{8, 4}, layer}, steps = 1,
    data = {train = strata.dataset{length = 3, get = function(i)
      return x:select(0, i), x:select(0, i):narrow(0, 0, 4)
    end}},
    loss = function(o, t) return (o - (o:size(0) == 4 and t:t() or t)):pow(2):mean() end,
    batch = {micro_batches = math.ceil(3 / rows), micro_batch_size = rows},
  })[1]
end
function boxes(counts)  -- targets are no rows
  return losses(job{
    input = {shape = {8}}, layers = {nn.Linear{8, 4}}, steps = 1,
    data = function(i) return x:narrow(0, i % 2, 2), F.ones{counts[i % 2 + 1], 3} end,
    loss = function(o, t) return o:pow(2):mean() end,
    batch = {micro_batches = 2, micro_batch_size = 2},
  })[1]
end
function turned(x) return x:t() end
function as_is(x) return x end
)");
  const std::string whole = Show("by(3, as_is)");
  EXPECT_EQ(Show("math.abs(by(2, as_is) - " + whole + ") < 1e-6"), "true");
  EXPECT_EQ(Show("math.abs(by(3, turned) - " + whole + ") < 1e-6"), "true");
  EXPECT_EQ(Show("math.abs(by(2, turned) - " + whole + ") < 1e-6"), "true");
  EXPECT_EQ(Show("boxes{1, 5} == boxes{1, 1}"), "true");
}

TEST_F(EngineTest, AnOwnLayerIsTrained) {
  Show(R"(
Affine = strata.layer{
  name = "Affine",
  init = function(self, inputs, outputs)
    self.weight = self:parameter{outputs, inputs, init = function(w) w:normal_(0, 0.5) end}
    self.bias = self:parameter{outputs}
  end,
  forward = function(self, x) return F.linear(x, self.weight, self.bias) end,
})");
  Show("own = job{layers = {Affine{4, 8}, nn.Tanh{}, Affine(8, 2)}, steps = 30}");
  EXPECT_EQ(Show("own:plan{}.layers[1].parameters"), "40");
  EXPECT_EQ(Show("(function() local s = own:train{} return s[30].loss < s[1].loss end)()"), "true");
  EXPECT_EQ(Show("losses(own)[30] ~= losses(own, {freeze = {0}})[30]"), "true");
  EXPECT_THAT(Fail("job{layers = {strata.layer{name = 'A', init = function(self) "
                   "self.w = self:parameter{2, init = function(w) w:nothing() end} end, "
                   "forward = function(self, x) return x end}{}}}:train{}"),
              HasSubstr("nothing"));
}

TEST_F(EngineTest, DataFunctionsAreAskedByTheNumberOfTheMicroBatch) {
  Show(
      "asked = {} counted = job{data = {train = function(i) asked[i] = (asked[i] or 0) + 1 "
      "return data(i) end}, steps = 2} counted:train{pipe = 1}");
  EXPECT_EQ(Show("asked[0] ~= nil and asked[7] ~= nil and asked[8] == nil"), "true");
  EXPECT_THAT(Fail("job{data = {train = function(i) if i > 5 then error('no more') end "
                   "return data(i) end}}:train{}"),
              HasSubstr("no more"));
  EXPECT_THAT(Fail("job{data = {train = function(i) return 7 end}}:train{}"),
              AllOf(HasSubstr("input"), HasSubstr("number 7")));
  EXPECT_THAT(Fail("job{data = {train = function(i) return F.ones{2, 5}, F.tensor{0, 1} end}}"
                   ":train{}"),
              Not(""));
}

TEST_F(EngineTest, AFailingLayerEndsTheTrainingOnly) {
  Show(
      "count = 0 failing = job{layers = {nn.Linear{4, 8}, function(x) count = count + 1 "
      "if count > 9 then error('the ninth') end return x end, nn.Linear{8, 2}}}");
  for (const char* pipe : {"1", "3"}) {
    Show("count = 0");
    EXPECT_THAT(Fail(std::string("failing:train{pipe = ") + pipe + "}"),
                AllOf(HasSubstr("the ninth"), HasSubstr("prompt[")))
        << pipe;
    EXPECT_EQ(Show("#losses(job())"), "3");
  }
}

TEST_F(EngineTest, TrainingNeedsWhatItNeeds) {
  EXPECT_THAT(Fail("strata.job{layers = {nn.Linear{4, 2}}, input = {shape = {4}}}:train{}"),
              Not(""));
  EXPECT_THAT(Fail("strata.job{layers = {nn.Linear{4, 2}}, input = {shape = {4}}}:start{}"),
              HasSubstr("needs a loss to train: loss = nn.CrossEntropyLoss{}"));
  EXPECT_THAT(Fail("job():train{transport = 'gloo'}"), HasSubstr("transport must be \"threads\""));
  EXPECT_THAT(Fail("job():train{setps = 3}"), HasSubstr("steps"));
  EXPECT_THAT(Fail("job():train{pipe = 6}"), HasSubstr("layers"));
}

TEST_F(EngineTest, TheTimeLimitEndsWhereTrainingBegins) {
  StateOptions options = Options();
  options.seconds = 0.5;
  state_ = std::make_unique<State>(options);
  Show(kBegin);
  EXPECT_EQ(Show("#job{steps = 3, data = {train = function(i) if i == 1 then "
                 "for k = 1, 5e7 do end end return data(i) end}}:train{}"),
            "3");
}

/// The training runs as in the launcher, where no script is waiting for it.
TEST_F(EngineTest, TheLaunchersTrainingHasNoLimitOfTime) {
  StateOptions options = Options();
  options.seconds = 0.3;
  state_ = std::make_unique<State>(options);
  const ScriptFolder folder;
  const auto load = [&](const std::string& layer) {
    Flags flags({}, {});
    return state().LoadJob(folder.Write("net.lua", "strata = require 'strata'" + (kBegin + layer)),
                           flags);
  };
  const Job slow = load(
      "local calls = 0 local function layer(x) calls = calls + 1 "
      "if calls == 2 then for i = 1, 5e7 do end end return x end\n"
      "return job{layers = {nn.Linear{4, 2}, layer}, steps = 1}");
  const Plan plan = MakePlan(slow, {}, &state().script());
  const auto engine = LoadEngine().OpenThreads(slow, plan, state());
  EXPECT_GT(engine->TrainStep().loss, 0);
  engine->Close();

  const Job endless =
      load("return job{layers = {nn.Linear{4, 2}, function(x) while true do end end}}");
  try {
    MakePlan(endless, {}, &state().script());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("longer than"));
  }
}

TEST_F(EngineTest, AnInterruptEndsTraining) {
  std::thread presser;
  StateOptions options;
  options.seconds = 0;
  options.print = [&](std::string_view) {
    if (!presser.joinable()) presser = std::thread([this] { state().Interrupt(); });
  };
  state_ = std::make_unique<State>(options);
  Show(kBegin);
  EXPECT_THAT(Fail("job{steps = 1e9, data = {train = function(i) print(i) return data(i) end}}"
                   ":train{pipe = 2}"),
              HasSubstr("interrupted"));
  presser.join();
  EXPECT_EQ(Show("#losses(job())"), "3");
}

// ---- Step by step

TEST_F(EngineTest, AnEngineIsDrivenStepByStep) {
  Show("e = job():start{pipe = 2, stages_per_rank = 1}");
  EXPECT_THAT(Show("e"), HasSubstr("2 stages"));
  EXPECT_EQ(Show("e.plan.bounds[3]"), "5");
  Show("l = {} for i = 1, 3 do l[i] = ('%.17g'):format(e:train_batch()) end");
  EXPECT_EQ(Show("tostring(l) == tostring(losses(job()))"), "true");
  Show("e:close()");
  Show("e:close()");
  EXPECT_THAT(Fail("e:train_batch()"), HasSubstr("closed"));
  EXPECT_THAT(Show("e"), HasSubstr("closed"));
}

TEST_F(EngineTest, PredictionsAreJoinedByARowForEachSample) {
  Show(
      "e = job{layers = {nn.Linear{4, 2}, function(x) return x, x:sum(0, true) end, "
      "function(x, sum) return sum end}, loss = F.mse_loss, "
      "data = function(i) return F.ones{2, 4}, F.ones{1, 2} end}:start{}");
  EXPECT_EQ(Show("e:predict(F.ones{2, 4}).shape"), "{1, 2}") << "one micro-batch";
  EXPECT_THAT(Fail("e:predict(F.ones{4, 4})"),
              HasSubstr("gives a tensor float32 (1, 2) for 2 samples: a function behind it"));
  Show("e:close()");
}

TEST_F(EngineTest, LayersMoveBetweenSteps) {
  Show("e = job():start{pipe = 2, partition = {0, 3, 5}}; l = {('%.17g'):format(e:train_batch())}");
  EXPECT_EQ(Show("e.plan.bounds"), "{0, 3, 5}");
  EXPECT_EQ(Show("e:recut{0, 1, 5}"), "\"layers 1..2 from rank 0 to rank 1\"");
  EXPECT_EQ(Show("e.plan.bounds"), "{0, 1, 5}");
  EXPECT_THAT(Fail("e:step()"), HasSubstr("an engine has no \"step\""));
  EXPECT_THAT(Fail("e:recut{0, 1}"), HasSubstr("expected the bounds of 2 stages"));
  EXPECT_THAT(Fail("e:recut{0, 'x', 5}"), HasSubstr("recut"));
  Show("for i = 2, 3 do l[i] = ('%.17g'):format(e:train_batch()) end");
  EXPECT_EQ(Show("tostring(l) == tostring(losses(job()))"), "true");
  Show("e:close()");
}

TEST_F(EngineTest, IteratorsBringMicroBatches) {
  Show("function from(i) return function() i = i + 1 return data(i - 1) end end");
  Show("e = job():start{pipe = 2} it = from(0)");
  Show("l = {} for i = 1, 3 do l[i] = ('%.17g'):format(e:train_batch(it)) end");
  EXPECT_EQ(Show("tostring(l) == tostring(losses(job()))"), "true");
  Show("loss, outputs = e:eval_batch(from(0), {outputs = true})");
  EXPECT_EQ(Show("type(loss), #outputs, outputs[1].shape"), "\"number\"\n4\n{2, 2}");
  EXPECT_EQ(Show("math.abs(F.cross_entropy(outputs[1], (select(2, data(0)))):item() - "
                 "e:eval_batch((function() local n = 0 return function() n = n + 1 "
                 "if n == 1 then return data(0) end end end)())) < 1e-6"),
            "true")
      << "fewer micro-batches than training's";
  EXPECT_EQ(Show("select('#', e:eval_batch(from(0)))"), "1");
  EXPECT_EQ(Show("e:eval_batch(from(0)) == loss"), "true") << "evaluating changes nothing";
  EXPECT_THAT(Fail("e:eval_batch()"), HasSubstr("a function"));
  EXPECT_THAT(Fail("e:eval_batch(function() end)"), HasSubstr("no micro-batch"));
  EXPECT_THAT(Fail("e:eval_batch(function() return 7 end)"), HasSubstr("number 7"));
  EXPECT_THAT(Fail("e:eval_batch(from(0), {output = true})"), HasSubstr("outputs"));
  EXPECT_THAT(Fail("e:train_batch(function() error('dry') end)"), HasSubstr("dry"));
  Show("e:close()");
}

// ---- Ties

constexpr char kTied[] = R"(
function tokens(i)
  local x = F.arange(10):mul(3):add(i):remainder(7):view(2, 5)
  return x, x:add(1):remainder(7)
end
function tied(weight, forward)
  return job{input = {shape = {5}, dtype = "int64"}, data = {train = tokens}, layers = {
    strata.tied{"embed", nn.Embedding{7, 4}}, nn.Linear{4, 4}, nn.Tanh{}, nn.Linear{4, 4},
    strata.tied{"embed", nn.Embedding{7, 4}, weight = weight, forward = forward or
      function(layer, x) return x:matmul(layer.weight:t()) end}}}
end
)";

TEST_F(EngineTest, TiedLayersTrainAsOne) {
  Show(kTied);
  Show("one = losses(tied())");
  EXPECT_EQ(Show("tostring(one) == tostring(losses(tied('weight'), {pipe = 2}))"), "true");
  EXPECT_EQ(Show("tostring(one) == tostring(losses(tied({'weight'}), {pipe = 5}))"), "true");
  EXPECT_EQ(Show("tonumber(one[3]) < tonumber(one[1])"), "true");
  EXPECT_EQ(Show("tied():plan{pipe = 2}.parameters"), "68");
  EXPECT_EQ(Show("strata.tied{'a', nn.ReLU{}}.tied, nn.ReLU{}.tied"), "\"a\"\nnil");
  EXPECT_THAT(Fail("tied('wait')"), HasSubstr("has no parameter \"wait\""));
  EXPECT_THAT(Fail("tied(3)"), HasSubstr("weight must be a parameter's name"));
  EXPECT_THAT(Fail("tied{}"), HasSubstr("names no parameter"));
  EXPECT_THAT(Fail("tied(nil, 'x')"), HasSubstr("forward"));
  EXPECT_THAT(Fail("strata.tied{'a'}"), HasSubstr("a key and a layer"));
  EXPECT_THAT(Fail("strata.tied{'a', {nn.ReLU{}}}"), HasSubstr("ties one layer"));
  EXPECT_THAT(Fail("strata.tied{'', nn.ReLU{}}"), HasSubstr("empty"));
}

TEST_F(EngineTest, TiedTensorsInsideContainers) {
  Show("inner = function() return nn.Sequential{nn.Linear{4, 4}, nn.Tanh{}} end");
  Show(
      "function deep() return job{layers = {strata.tied{'a', inner(), weight = {'0.weight', "
      "'0.bias'}}, nn.Linear{4, 2}, function(x) return F.cat({x, x}, 1) end, "
      "strata.tied{'a', inner(), weight = {'0.weight', '0.bias'}, forward = function(layer, x) "
      "return F.linear(x, layer[1].weight, layer[1].bias) end}, nn.Linear{4, 2}}} end");
  EXPECT_EQ(Show("tostring(losses(deep())) == tostring(losses(deep(), {pipe = 3}))"), "true");
}

// ---- Collectives

TEST_F(EngineTest, FunctionsOfReplicasTalk) {
  Show("seen = {}");
  Show(R"(talking = job{parallel = {pipe = 2, data = 2}, layers = {nn.Linear{4, 4}, function(x)
    local comm = strata.comm
    if comm.size{axis = "data"} == 1 then return x end  -- while it is planned
    local me = comm.rank{axis = "data"}
    local sum = comm.all_reduce(F.full({3}, me + 1), {axis = "data", op = "product", async = true})
    local all = comm.all_gather(F.full({1}, me), {group = "data"})
    comm.barrier{axis = "data"}
    seen[me + 1] = {sum:wait(60):tolist(), all:tolist(), sum:done()}
    return x
  end, nn.Linear{4, 2}}})");
  Show("losses(talking)");
  EXPECT_EQ(Show("seen[1]"), "{{2, 2, 2}, {0, 1}, true}");
  EXPECT_EQ(Show("seen[2]"), "{{2, 2, 2}, {0, 1}, true}");
}

TEST_F(EngineTest, DifferentCallsAndLostGradientsAreRefused) {
  Show(R"(function wrong(f) return job{parallel = {data = 2}, steps = 1, layers = {
    function(x) if strata.comm.size{} > 1 then f(x) end return x end, nn.Linear{4, 2}}} end)");
  EXPECT_THAT(Fail("losses(wrong(function(x) strata.comm.all_reduce(F.ones{1 + "
                   "strata.comm.rank{}}) end))"),
              HasSubstr("different calls"));
  EXPECT_THAT(Fail("losses(wrong(function(x) strata.comm.all_reduce(x:requires_grad_(true)) "
                   "end))"),
              HasSubstr("has no gradient"));
  EXPECT_THAT(Fail("losses(wrong(function(x) strata.comm.all_reduce(x, {axis = 'date'}) end))"),
              HasSubstr("did you mean \"data\""));
  EXPECT_THAT(Fail("strata.comm.all_redu"), HasSubstr("all_reduce"));
}

// Each of these layers is the identity, composed of collectives; so is its gradient.
TEST_F(EngineTest, CollectivesOfTheModelAxisHaveGradients) {
  Show(R"(function shared(f) return job{parallel = {model = 2}, layers = {
    nn.Linear{4, 6, split = "column"}, f, nn.Linear{6, 2}}} end
    whole = tostring(losses(shared(function(x) return x end)))
    comm, model = strata.comm, strata.model)");
  for (const char* layer :
       {"comm.all_reduce(model.copy(x) / model.size(), {axis = 'model'})",
        "comm.all_gather(model.scatter(x, 0), {axis = 'model'})",
        "model.gather(comm.reduce_scatter(model.copy(x) / model.size(), {axis = 'model'}), 0)"}) {
    EXPECT_EQ(Show(Str("tostring(losses(shared(function(x) return ", layer, " end))) == whole")),
              "true")
        << layer;
  }
  for (const char* call : {"all_reduce(x, {axis = 'model', op = 'max'})",
                           "all_reduce(x, {axis = 'model', async = true})",
                           "broadcast(x, {axis = 'model'})", "all_gather(x, {axis = 'pipe'})"}) {
    EXPECT_THAT(Fail(Str("losses(shared(function(x) if comm.size{} > 1 then comm.", call,
                         " end return x end))")),
                HasSubstr("has no gradient but for the sums, gathers"))
        << call;
  }
}

TEST_F(EngineTest, AScriptOfItsOwnMeetsOthersFirst) {
  EXPECT_THAT(Fail("strata.comm.all_reduce(F.ones{2})"), HasSubstr("strata.comm.init{} first"));
  ::testing::internal::CaptureStderr();
  Show(
      "first = strata.comm.init{rank = 0, world_size = 1, init_method = 'tcp://127.0.0.1:1', "
      "verbose = true}");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("strata.comm: rank 0 of 1, 0 of 1 on this machine, meets at 127.0.0.1:1"));
  EXPECT_EQ(Show("first.rank, first.world_size"), "0\n1");
  EXPECT_EQ(Show("strata.comm.init{}.world_size"), "1");
  EXPECT_EQ(Show("strata.comm.init{rank = 7, world_size = 9}.rank"), "0");  // of the first call
  EXPECT_EQ(Show("strata.comm.all_reduce(F.ones{2}):tolist()"), "{1, 1}");
  EXPECT_THAT(Fail("strata.comm.all_reduce(F.ones{2}:to_sparse())"),
              Not(HasSubstr("Exception raised")));
  EXPECT_EQ(Show("strata.comm.reduce_scatter(F.ones{2}, {async = true}):wait(0):tolist()"),
            "{1, 1}");
}

// ---- Ranks that are processes: each has its own state and job

/// A listening socket on loopback, for the store: returns its descriptor and its port.
std::pair<int, int> Listen() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(fd, 8), 0);
  socklen_t size = sizeof(address);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return {fd, ntohs(address.sin_port)};
}

std::shared_ptr<ProvedPrograms> ProgramsOf(const Job& job, Plan plan, const std::string& schedule) {
  plan.schedule = schedule;
  auto programs = std::make_shared<ProvedPrograms>();
  programs->Training(job, plan, nullptr);
  return programs;
}

/// Opens an engine on each rank with the rank's flag, and returns each rank's error, or "".
/// `schedules` are the schedules of the programs that the ranks bring.
std::vector<std::string> OpenRanks(const std::vector<std::string>& flags,
                                   const std::vector<std::string>& schedules = {}) {
  const auto [fd, port] = Listen();
  const int size = static_cast<int>(flags.size());
  const ScriptFolder folder;
  const std::string script =
      folder.Write("net.lua", Str("strata = require 'strata'", kBegin,
                                  "local slope = strata.options{slope = 1}.slope\n"
                                  "return job{parallel = {pipe = ",
                                  size,
                                  "}, transport = 'gloo',\n"
                                  "  lr_schedule = function(step) return slope end}"));
  std::vector<std::string> errors(flags.size());
  std::vector<State> states(flags.size());  // they and their engines live until all ranks have met
  std::vector<std::unique_ptr<Engine>> engines(flags.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank, fd = fd, port = port] {
      const auto i = static_cast<size_t>(rank);
      Flags own({flags[i]}, {});
      try {
        const Job job = states[i].LoadJob(script, own);
        const Plan plan = MakePlan(job, {}, &states[i].script());
        RankPlace place;
        place.rank = place.local_rank = rank;
        place.world_size = place.local_world_size = size;
        place.store_port = port;
        if (rank == 0) place.store_fd = fd;
        engines[i] = LoadEngine().OpenRank(
            job, plan, states[i], place,
            schedules.empty() ? nullptr : ProgramsOf(job, plan, schedules[i]));
      } catch (const Error& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return errors;
}

TEST_F(EngineTest, EveryRankHasRankZerosJob) {
  EXPECT_THAT(OpenRanks({"--steps=5", "--steps=5"}), testing::Each(""));
}

TEST_F(EngineTest, EveryRankNamesTheJobThatIsNotRankZeros) {
  const std::string differs = "the script gives rank 1 another job than rank 0: ";
  EXPECT_THAT(OpenRanks({"--steps=5", "--steps=6"}), testing::Each(differs + "steps: 6 against 5"));
  EXPECT_THAT(OpenRanks({"--seed=1", "--seed=1", "--seed=7"}),
              testing::Each("the script gives rank 2 another job than rank 0: seed: 7 against 1"));
  EXPECT_THAT(
      OpenRanks({"--optimizer.lr=0.5", "--optimizer.lr=0.25"}),
      testing::Each(AllOf(HasSubstr(differs + "optimizer"), HasSubstr("lr: 0.25 against 0.5"))));
  EXPECT_THAT(OpenRanks({"--slope=1", "--slope=2"}),
              testing::Each(AllOf(HasSubstr(differs + "lr_schedule"), HasSubstr("digest"))));
}

TEST_F(EngineTest, EveryRankHasRankZerosProgram) {
  const std::vector<std::string> flags = {"--micro_batches=4", "--micro_batches=4"};
  EXPECT_THAT(OpenRanks(flags, {"gpipe", "gpipe"}), testing::Each(""));
  EXPECT_THAT(
      OpenRanks(flags, {"gpipe", "1f1b"}),
      testing::Each(HasSubstr("the script gives rank 1 another job than rank 0: program: ")));
}

TEST_F(EngineTest, AForgottenEngineIsCollected) {
  Show("for i = 1, 5 do job():start{pipe = 2}:train_batch() end");
  EXPECT_EQ(Show("collectgarbage()"), "0");
  EXPECT_EQ(Show("#losses(job())"), "3");
}

// The collection holds Lua's turn while it waits for the ranks to release their layers.
TEST_F(EngineTest, AForgottenEngineWithOwnLayersIsCollected) {
  Show(
      "Own = strata.layer{name = 'Own', init = function(self) gone[self] = true end, "
      "forward = function(self, x) return x * 2 end}\n"
      "gone = setmetatable({}, {__mode = 'k'})\n"
      "for i = 1, 3 do job{layers = {Own{}, nn.Linear{4, 2}}}:start{pipe = 2}:train_batch() end");
  EXPECT_EQ(Show("collectgarbage()"), "0");
  EXPECT_EQ(Show("collectgarbage()"), "0");
  EXPECT_EQ(Show("local count = 0; for _ in pairs(gone) do count = count + 1 end; return count"),
            "0")
      << "their tables go too";
  EXPECT_EQ(Show("#losses(job())"), "3");
}

TEST_F(EngineTest, ManyRanksShareOneState) {
  Show(
      "many = job{steps = 40, layers = {nn.Linear{4, 8}, strata.times(6, function(i) "
      "return function(x) local t = {} for k = 1, 50 do t[k] = {k} end return x + i * 0.01 end "
      "end), "
      "nn.Linear{8, 2}}}");
  EXPECT_EQ(Show("tostring(losses(many, {pipe = 8})) == tostring(losses(many, {pipe = 1}))"),
            "true");
}

TEST_F(EngineTest, OperatorsHaveHelpAndMethodsCompletion) {
  EXPECT_THAT(Show("F.softmax?"),
              AllOf(HasSubstr("F.softmax: torch.nn.functional's"),
                    HasSubstr("\n  softmax(Tensor input, int? dim=nil, int _stacklevel=3, "
                              "ScalarType? dtype=nil)")));
  EXPECT_THAT(Show("help('exp')") + printed_, HasSubstr("exp(Tensor self) -> Tensor"));
  EXPECT_THAT(Show("F.sort?"), AllOf(HasSubstr("F.sort: an operator of LibTorch"),
                                     HasSubstr("-> (Tensor values, Tensor indices)")));
  EXPECT_THAT(Show("F.cross_entropy?"), HasSubstr("str reduction=\"mean\""));
  EXPECT_THAT(Show("F.unique?"), HasSubstr("F.unique: torch's"));
  EXPECT_THAT(Fail("help('sofmax')"), HasSubstr("sofmax"));
  Show("x = F.ones{2, 3}");
  EXPECT_THAT(Show("x?"), AllOf(HasSubstr("tensor.shape: "), HasSubstr("tensor:item()")));
  EXPECT_THAT(Show("x.shape?"), HasSubstr("sizes of its dims"));
  EXPECT_THAT(Show("x:softmax?"), HasSubstr("dim"));
  const auto names = [&](const char* line) { return state().Complete(line).candidates; };
  EXPECT_THAT(names("x:log_soft"), testing::ElementsAre("log_softmax"));
  EXPECT_THAT(names("x:sha"), testing::IsEmpty()) << "a field is no method";
  EXPECT_THAT(names("x.sha"), testing::ElementsAre("shape"));
  EXPECT_THAT(names("F.log_soft"), testing::ElementsAre("log_softmax"));
}

}  // namespace
}  // namespace strata::lua
