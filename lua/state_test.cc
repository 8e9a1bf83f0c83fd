// Jobs from scripts, the prompt, completion, and the places of errors.

#include "lua/core/state.h"

#include <regex>

#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kJob[] = R"(local strata = require "strata"
local nn = strata.nn
local opt = strata.options{hidden = 16}
return strata.job {
  name = "net",
  input = { shape = {8} },
  layers = {
    nn.Linear{8, opt.hidden},
    { nn.ReLU{}, strata.times(2, function() return nn.Linear{opt.hidden, opt.hidden} end) },
    strata.cut(),
    nn.Linear{opt.hidden, 4},
  },
  loss = nn.CrossEntropyLoss{},
  batch = { micro_batches = 4, micro_batch_size = 2 },
}
)";

class Jobs : public StateTest {
 protected:
  Job Load(const std::string& text, const std::vector<std::string>& arguments = {}) {
    Flags flags(arguments, {});
    return state().LoadJob(folder_.Write("net.lua", text), flags);
  }

  /// The error of loading a script; the place in it has no folder.
  std::string LoadError(const std::string& text, const std::vector<std::string>& arguments = {}) {
    try {
      Load(text, arguments);
    } catch (const ConfigError& error) {
      // Lua itself shortens long paths: "...folder/net.lua:3:".
      std::string message = std::regex_replace(error.what(), std::regex(R"(^\S*/)"), "");
      const std::string folder = folder_.path().string() + "/";
      for (size_t at; (at = message.find(folder)) != message.npos;)
        message.erase(at, folder.size());
      return message;
    }
    return "";
  }

  ScriptFolder folder_;
};

TEST_F(Jobs, AScriptGivesAJob) {
  const Job job = Load(kJob);
  EXPECT_EQ(job.name, "net");
  EXPECT_EQ(job.script, folder_.path() / "net.lua");
  ASSERT_EQ(job.layers.size(), 5u);
  EXPECT_EQ(job.layers[0].type, "Linear");
  EXPECT_EQ(job.layers[0].args["out_features"].as_int(), 16);
  EXPECT_THAT(job.layers[0].where, testing::EndsWith("net.lua:8"));
  EXPECT_EQ(job.loss.type, "CrossEntropyLoss");
  EXPECT_EQ(job.partition.method, "cuts");
  EXPECT_THAT(job.partition.bounds, ElementsAre(0, 4, 5));
  EXPECT_EQ(job.batch.micro_batches, 4);
}

TEST_F(Jobs, FlagsReachOptionsAndKeys) {
  const Job job = Load(kJob, {"--hidden=32", "--micro-batches", "8", "--optimizer.lr=0.5"});
  EXPECT_EQ(job.layers[0].args["out_features"].as_int(), 32);
  EXPECT_EQ(job.batch.micro_batches, 8);
  EXPECT_EQ(job.optimizer.options["lr"].as_double(), 0.5);
  EXPECT_THAT(LoadError(kJob, {"--hiden=32"}),
              testing::AllOf(HasSubstr("hiden"), HasSubstr("hidden")));
  EXPECT_THAT(LoadError(kJob, {"--hidden=many"}), HasSubstr("hidden"));
}

TEST_F(Jobs, OptionsAreTypedByTheirDefaults) {
  const char* text = R"(local strata = require "strata"
local opt = strata.options{count = 2, rate = 0.5, word = "a", fast = false, slow = true, sizes = {1, 2}}
print(opt)
return strata.job { input = {shape = {4}}, layers = {strata.nn.ReLU{}} })";
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "{count=2, fast=false, rate=0.5, sizes={1, 2}, slow=true, word=\"a\"}"},
      {{"--count=7", "--rate", "1"},
       "{count=7, fast=false, rate=1, sizes={1, 2}, slow=true, word=\"a\"}"},
      {{"--fast", "--no-slow", "--word="},
       "{count=2, fast=true, rate=0.5, sizes={1, 2}, slow=false, word=\"\"}"},
      {{"--sizes=5", "--word=b c"},
       "{count=2, fast=false, rate=0.5, sizes={5}, slow=true, word=\"b c\"}"},
      {{"--sizes=", "--count=1", "--count=-3"},
       "{count=-3, fast=false, rate=0.5, sizes={}, slow=true, word=\"a\"}"}};
  for (const auto& [arguments, shown] : cases) {
    printed_.clear();
    Load(text, arguments);
    EXPECT_EQ(printed_, std::string(shown) + "\n");
  }
  EXPECT_THAT(LoadError(text, {"--count=two"}), HasSubstr("count expects a number"));
  EXPECT_THAT(LoadError(text, {"--count"}), HasSubstr("--count needs a value"));
  EXPECT_THAT(LoadError(text, {"--fast=2"}), HasSubstr("fast expects true or false"));
  EXPECT_THAT(LoadError(text, {"--no-count"}), HasSubstr("no flag --no_count"));
  EXPECT_THAT(LoadError(text, {"--cuont=1"}), HasSubstr("did you mean \"count\"?"));
  EXPECT_THAT(LoadError("local s = require 'strata'\ns.options{steps = 1}"),
              StartsWith("net.lua:2: strata.options: \"steps\" is a flag of the job"));
  EXPECT_THAT(LoadError("local s = require 'strata'\ns.options{'count'}"),
              StartsWith("net.lua:2: strata.options takes names with defaults"));
}

TEST_F(Jobs, OptionsOfLoadedScriptsAreTheirDefaults) {
  folder_.Write("other.lua", kJob);
  const Job job = Load(R"(local strata = require "strata"
local opt = strata.options{hidden = 3}
local other = strata.load("other.lua")
print(opt.hidden, other.layers[1].args.out_features)
return other)",
                       {"--hidden=5"});
  EXPECT_EQ(printed_, "5\t16\n");
  EXPECT_EQ(job.name, "net");
}

TEST_F(Jobs, ModulesAreEvaluatedAnewByEachState) {
  folder_.Write("count.lua", "count = (count or 0) + 1 return count");
  folder_.Write("net.lua", "");
  const char* text = R"(local strata = require "strata"
local first, second = require "count", require "count"
print(first, second, count)
return strata.job { input = {shape = {4}}, layers = {strata.nn.ReLU{}} })";
  Load(text);
  state_.reset();
  Load(text);
  EXPECT_EQ(printed_, "1\t1\t1\n1\t1\t1\n");
}

TEST_F(Jobs, FunctionsAreLayersLossAndMore) {
  const Job job = Load(R"(local strata = require "strata"
local function flatten(x)
  return x:flatten(1)
end
return strata.job {
  input = { shape = {2, 4} },
  layers = { flatten, function(x) return x end, strata.nn.Linear{8, 1} },
  loss = function(output, target)
    return output:sub(target):abs():mean()
  end,
  lr_schedule = function(step) return 1 / (step + 1) end,
  partition = function(layers, stages) return {0, #layers} end,
})");
  EXPECT_EQ(job.layers[0].type, "function");
  EXPECT_TRUE(job.layers[0].scripted);
  EXPECT_EQ(job.layers[0].name, "flatten");
  EXPECT_THAT(job.layers[0].where, testing::EndsWith("net.lua:2"));
  EXPECT_EQ(job.layers[1].name, "");
  EXPECT_TRUE(job.loss.scripted);
  EXPECT_THAT(job.loss.where, testing::EndsWith("net.lua:8"));
  Script& script = state().script();
  EXPECT_EQ(script.Call(job.lr_schedule.function, {3}), Value(0.25));
  EXPECT_EQ(script.Call(job.partition.function, {Value::List{1, 2, 3}, 1}), Value::IntList({0, 3}));
}

TEST_F(Jobs, TheSameFunctionHasTheSameDigest) {
  const char* text = R"(local strata = require "strata"
local opt = strata.options{slope = 1}
local slope = opt.slope
return strata.job { input = {shape = {4}}, layers = {function(x) return x * slope end} })";
  const FunctionRef first = Load(text).layers[0].forward;
  state_.reset();
  EXPECT_EQ(Load(text).layers[0].forward, first) << "in another state";
  EXPECT_NE(Load(text, {"--slope=2"}).layers[0].forward, first) << "what it caught counts";
  std::string changed = text;
  changed.replace(changed.find("x * slope"), 9, "x + slope");
  EXPECT_NE(Load(changed).layers[0].forward, first);
}

TEST_F(Jobs, MistakesShowTheirLine) {
  EXPECT_THAT(LoadError("x = = 1"), StartsWith("net.lua:1: "));
  EXPECT_THAT(LoadError("\nlocal x = nil + 1"), StartsWith("net.lua:2: attempt to perform"));
  EXPECT_THAT(LoadError("return strata.job{}"),
              EndsWith("; scripts begin with: local strata = require \"strata\""));
  EXPECT_THAT(LoadError("return nn.ReLU{}"), EndsWith("; it is local nn = strata.nn"));
  EXPECT_THAT(LoadError("\n\nerror('mine')"), StartsWith("net.lua:3: mine"));
  EXPECT_THAT(LoadError("\nerror{}"), StartsWith("net.lua:2: the script raised a list of 0"));
  EXPECT_THAT(LoadError("local s = require 'strata'\nreturn s.job {\n layers = {} }"),
              StartsWith("net.lua:3: "))
      << "a tail call shows the line where it ends";
  EXPECT_THAT(LoadError("local s = require 'strata'\n\nreturn s.job(7)"),
              StartsWith("net.lua:3: expected a table"));
  EXPECT_THAT(
      LoadError("local s = require 'strata'\nreturn s.job {\n\n layers = {\n  s.nn.Linear{1},"
                "\n } }"),
      StartsWith("net.lua:5: "));
  EXPECT_THAT(LoadError("local s = require 'strata'\nlocal function f(n)\n return s.nn.Linear{n}\n"
                        "end\nf(1)"),
              StartsWith("net.lua:3: "));
  EXPECT_THAT(
      LoadError("local s = require 'strata'\nlocal f = function()\n return s.nn.linear\nend\n"
                "strata = s.times(1, f)"),
      StartsWith("net.lua:3: there is no nn.linear"));
  EXPECT_THAT(LoadError("local s = require 'strata'\nlocal t = {3, 1}\ntable.sort(t, function(a, b)"
                        "\n return a < b end)\ns.nn.Linear{}"),
              StartsWith("net.lua:5: "));
}

TEST_F(Jobs, AScriptMustReturnAJob) {
  EXPECT_THAT(LoadError("return 7"), HasSubstr("must return a job"));
  EXPECT_THAT(LoadError("return 7"), HasSubstr("it returned the number 7"));
  EXPECT_THAT(LoadError(""), HasSubstr("it returned nothing"));
  EXPECT_THAT(LoadError("return require 'strata'.nn.ReLU{}"), HasSubstr("a layer"));
  Flags flags({}, {});
  EXPECT_THROW(state().LoadJob(folder_.path() / "missing.lua", flags), ConfigError);
  EXPECT_THROW(state().LoadJob(folder_.path(), flags), ConfigError);
}

TEST_F(Jobs, FailingFunctionsShowTheirLine) {
  const Job job = Load(R"(local strata = require "strata"
return strata.job {
  input = {shape = {4}}, layers = {strata.nn.ReLU{}},
  lr_schedule = function(step)
    if step > 1 then error("too far") end
    return step
  end,
})");
  Script& script = state().script();
  EXPECT_EQ(script.Call(job.lr_schedule.function, {1}), Value(1));
  try {
    script.Call(job.lr_schedule.function, {2});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("net.lua:5: too far"));
  }
  FunctionRef unknown = job.lr_schedule.function;
  unknown.id = 12345;
  EXPECT_THROW(script.Call(unknown, {}), ConfigError);
}

TEST_F(Jobs, OtherScriptsAreLoadedFromTheirPlace) {
  folder_.Write("lib/other.lua", kJob);
  folder_.Write("lib/size.lua", "return 5");
  folder_.Write("lib/uses.lua",
                "local s = require 'strata'\nlocal size = require 'size'\n"
                "return s.job{name = 'uses', input = {shape = {4}}, "
                "layers = {s.nn.Linear{4, size}}}");
  const Job job = Load(R"(local strata = require "strata"
local other = strata.load("lib/other.lua")
local uses = strata.load("lib/uses.lua")
print(other.name, #other.layers, uses.layers[1].parameters)
return strata.job { name = "mine", input = {shape = {4}}, layers = {strata.nn.ReLU{}} })",
                       {"--steps=3"});
  EXPECT_EQ(printed_, "net\t5\t25\n");
  EXPECT_EQ(job.name, "mine");
  EXPECT_EQ(job.steps, 3);
  EXPECT_EQ(job.script, folder_.path() / "net.lua");
  EXPECT_THAT(LoadError("local s = require 'strata'\ns.load('nowhere.lua')"),
              StartsWith("net.lua:2: there is no file"));
  EXPECT_THAT(LoadError("local s = require 'strata'\nreturn s.load('net.lua')"),
              HasSubstr("overflow"));
}

TEST_F(Jobs, ScriptsOfRunHaveArguments) {
  StateOptions options = Options();
  options.arguments = {"tool.lua", "a", "--b=1"};
  state_ = std::make_unique<State>(options);
  state().RunFile(folder_.Write("tool.lua", "#!/usr/bin/env strata\nprint(arg[0], #arg, arg[2])"));
  EXPECT_EQ(printed_, "tool.lua\t2\t--b=1\n");
}

class Runs : public StateTest {
 protected:
  /// The text that the script prints, or its error.
  std::string Run(const std::string& text, std::vector<std::string> arguments) {
    StateOptions options = Options();
    arguments.insert(arguments.begin(), "tool.lua");
    options.arguments = std::move(arguments);
    printed_.clear();
    state_ = std::make_unique<State>(options);
    folder_.Write("net.lua", kJob);
    try {
      state().RunFile(
          folder_.Write("tool.lua", "local strata = require 'strata'\nlocal kept = arg\n" + text));
    } catch (const ConfigError& error) {
      return printed_ + error.what();
    }
    return printed_;
  }

  ScriptFolder folder_;
};

TEST_F(Runs, FlagsSetTheScriptsOptionsAndTheRestIsInArg) {
  const std::string text =
      "print(strata.options{depth = 1, fast = false})\nprint(table.concat(kept, ' '), arg[0])";
  EXPECT_EQ(Run(text, {"--depth=2", "in", "--fast", "out"}),
            "{depth=2, fast=true}\nin out\ttool.lua\n");
  EXPECT_EQ(Run(text, {}), "{depth=1, fast=false}\n\ttool.lua\n");
  EXPECT_THAT(Run(text, {"--depth=deep"}), HasSubstr("depth expects a number"));
  EXPECT_THAT(Run(text + "\narg = nil strata.options{wide = 2}", {"--wide=3"}), HasSubstr("--wide"))
      << "the script has taken its list of arguments away";
}

TEST_F(Runs, UnknownFlagsAreAnErrorBeforeTheWork) {
  const std::string text = "local o = strata.options{depth = 1}\n";
  EXPECT_THAT(Run(text + "print 'ran'", {"--dept=2"}),
              AllOf(StartsWith("ran\n"), HasSubstr("no option --dept; did you mean \"depth\"?")));
  EXPECT_THAT(Run(text + "strata.load('net.lua'):plan{}\nprint 'ran'", {"--dept=2"}),
              AllOf(Not(HasSubstr("ran")), HasSubstr("tool.lua:4: there is no option --dept")));
  EXPECT_EQ(Run(text + "print(o.depth, #arg)", {"--", "--dept=2"}), "1\t2\n");
  EXPECT_EQ(Run("print(#arg)", {"--anything", "goes"}), "2\n") << "it has no options";
}

TEST_F(Runs, FlagsDoNotReachTheScriptsThatItLoads) {
  const std::string text =
      "local o = strata.options{hidden = 1}\n"
      "print(o.hidden, #arg, strata.load('net.lua').layers[1].args.out_features)";
  EXPECT_EQ(Run(text, {"--hidden=3"}), "3\t0\t16\n");
  EXPECT_EQ(Run("print(strata.load('net.lua', {hidden = 5}).layers[1].args.out_features)", {}),
            "5\n");
}

TEST_F(Runs, APlanTakesBackWhatALoadedJobWasGiven) {
  const std::string text =
      "local job = strata.load('net.lua', {memory = '1KiB', pipe = 2})\n"
      "print((pcall(job.plan, job)))\n"
      "job:plan{memory = 'none'}";
  EXPECT_EQ(Run(text, {}), "false\n");
}

class Prompt : public StateTest {};

TEST_F(Prompt, ShowsValues) {
  EXPECT_EQ(Show("1 + 1"), "2");
  EXPECT_EQ(Show("'a' .. 'b'"), "\"ab\"");
  EXPECT_EQ(Show("1, nil, 'x'"), "1\nnil\n\"x\"");
  EXPECT_EQ(Show("x = 5"), "");
  EXPECT_EQ(Show("x"), "5");
  EXPECT_EQ(Show("print(x)"), "");
  EXPECT_EQ(printed_, "5\n");
  EXPECT_EQ(Show("return x"), "5");
  EXPECT_EQ(Show(""), "");
  EXPECT_EQ(Show("-- nothing"), "");
  EXPECT_EQ(Show("nn.Linear{2, 3}.parameters"), "9");
  EXPECT_THAT(Show("nn.Linear{2, 3}"), StartsWith("Linear(2, 3"));
  EXPECT_THAT(Show("nn.Linear"), HasSubstr("in_features"));
  EXPECT_EQ(Show("strata.nn == nn and strata.F == F"), "true");
}

TEST_F(Prompt, TakesTorchsEqualsAndSilence) {
  EXPECT_EQ(Show("= 1 + 1"), "2");
  EXPECT_EQ(Show("1 + 1;"), "");
  EXPECT_EQ(Show("'a;'"), "\"a;\"");
  EXPECT_EQ(Show("'two\\nlines'"), "two\nlines") << "a picture shows as it is";
}

TEST_F(Prompt, KeepsTheLastResult) {
  EXPECT_EQ(Show("_"), "nil");
  Show("20 + 1");
  EXPECT_EQ(Show("_ * 2"), "42");
  Show("x = 5");
  EXPECT_EQ(Show("_"), "42") << "statements have no result";
  Show("7;");
  EXPECT_EQ(Show("_"), "7") << "silence is no forgetting";
  Fail("error('no')");
  EXPECT_EQ(Show("_"), "7");
}

TEST_F(Prompt, GlobalsAreStrict) {
  EXPECT_EQ(Fail("prin(1)"), "prompt[1]:1: there is no global \"prin\"; did you mean \"print\"?");
  EXPECT_THAT(Fail("jbo"), HasSubstr("there is no global \"jbo\""));
  EXPECT_EQ(Show("_G.jbo"), "nil");
  Show("function later() return not_yet end");
  EXPECT_THAT(Fail("later()"), HasSubstr("\"not_yet\""));
  Show("not_yet = 3");
  EXPECT_EQ(Show("later()"), "3");
  EXPECT_EQ(Show("_G.not_yet"), "3");
}

class Script : public StateTest {
 protected:
  /// The text printed by running a file with this content, or its error.
  std::string Run(const std::string& text) {
    printed_.clear();
    try {
      state().RunFile(folder_.Write("a.lua", text));
    } catch (const ConfigError& error) {
      return WithoutFolder(error.what());
    }
    return WithoutFolder(printed_);
  }
  std::string WithoutFolder(std::string text) {
    const std::string folder = folder_.path().string() + "/";
    for (size_t at; (at = text.find(folder)) != text.npos;) text.erase(at, folder.size());
    return text;
  }
  ScriptFolder folder_;
};

// Without this error a misspelt value would mean nil: nn.Linear{3, 4, bias = flase} would have a
// bias.
TEST_F(Script, AGlobalThatNobodyHasSetIsAnError) {
  const std::string nn = "local nn = require('strata').nn\n";
  EXPECT_EQ(Run(nn + "nn.Linear{3, 4, bias=flase}"),
            "a.lua:2: there is no global \"flase\"; did you mean \"false\"?");
  EXPECT_EQ(Run("x = {}\nfunction f() return y end\nx.z = f()"),
            "a.lua:2: there is no global \"y\"");
  EXPECT_EQ(Run("coroutine.wrap(function() print(y) end)()"), "a.lua:1: there is no global \"y\"");
  folder_.Write("m.lua", "return missing");
  EXPECT_THAT(Run("require 'm'"), HasSubstr("m.lua:1: there is no global \"missing\""));
  EXPECT_EQ(Run("prnt(1)"), "a.lua:1: there is no global \"prnt\"; did you mean \"print\"?");
  EXPECT_EQ(Run("x = sring.rep('a', 2)"),
            "a.lua:1: there is no global \"sring\"; did you mean \"string\"?");
}

TEST_F(Script, GlobalsThatAreSetAreEverybodys) {
  folder_.Write("m.lua", "function helper() return later end; return helper");
  EXPECT_EQ(
      Run("require 'm'; later = 3; print(helper(), _G.later, rawget(_G, 'helper') == helper)"),
      "3\t3\ttrue\n");
  EXPECT_EQ(Run("print(_G.none, rawget(_G, 'none'))\nprint(_, load('return none')())"),
            "nil\tnil\nnil\tnil\n");
  EXPECT_EQ(Run("local t = {} print(t.none, pcall(function() return none end))"),
            "nil\tfalse\ta.lua:1: there is no global \"none\"\n");
}

TEST_F(Script, AGlobalMayBeAskedFor) {
  EXPECT_EQ(Run("count = (count or 0) + 1; if os then print(os.time()) end print(count, "
                "unset == nil, unset ~= nil, not unset, unset and 1)"),
            "1\ttrue\tfalse\ttrue\tnil\n");
  EXPECT_EQ(Run("print(unset_or, unset == 1)"), "a.lua:1: there is no global \"unset_or\"");
  EXPECT_EQ(Run("print(unset == 1)"), "a.lua:1: there is no global \"unset\"");
}

// Without this error nn.Dropout{opt.drp} would use its default.
TEST_F(Script, AnOptionThatIsNotDeclaredIsAnError) {
  const std::string options =
      "local strata = require 'strata'\n"
      "local opt = strata.options{width = 3, drop = 0.5}\n";
  EXPECT_EQ(Run(options + "print(opt.drp)"),
            "a.lua:3: strata.options has no option \"drp\"; did you mean \"drop\"?");
  EXPECT_EQ(Run(options + "print(opt.xyzzy)"),
            "a.lua:3: strata.options has no option \"xyzzy\"; it is one of drop, width");
  EXPECT_EQ(Run(options + "opt.more = 4\nprint(opt.more, opt[1], opt.none or 5, opt.none == nil)"),
            "4\tnil\t5\ttrue\n");
  EXPECT_EQ(Run(options + "local n = 0 for k, v in pairs(opt) do n = n + 1 end print(n, opt)"),
            "2\t{drop=0.5, width=3}\n");
  EXPECT_EQ(Run(options + "print(strata.json.encode(opt))"), "{\"drop\":0.5,\"width\":3}\n");
}

TEST_F(Script, WhatPythonWritesSaysWhatLuaDoes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"x = True", "there is no global \"True\"; Lua writes true"},
      {"x = {None}", "there is no global \"None\"; Lua writes nil"},
      {"for i in range(3) do end", "there is no global \"range\"; Lua writes for i = 1, n do"},
      {"x = sqrt(2)", "there is no global \"sqrt\"; it is math.sqrt"},
      {"math = nil; x = sqrt(2)", "there is no global \"sqrt\""},
      {"x = nn", "there is no global \"nn\"; it is local nn = strata.nn"},
      {"x = strata",
       "there is no global \"strata\"; scripts begin with: local strata = require \"strata\""},
      {"if 1 != 2 then end", "'then' expected near '!'; Lua writes ~= for !="},
      {"x = 1; x += 1", "'=' expected near '+'; Lua writes x = x + y for x += y"},
      {"x = 7 // 2", "unexpected symbol near '/'; Lua writes math.floor(a / b) for a // b"},
      {"x = 2 ** 3", "unexpected symbol near '*'; Lua writes ^ for **"},
      {"x = [1, 2]", "unexpected symbol near '['; Lua writes lists as {1, 2}"},
      {"if x == 1: y = 2",
       "'then' expected near ':'; blocks begin with then or do, and end with end"},
      {"x = x:repeat(2)",
       "'<name>' expected near 'repeat'; repeat is a word of Lua's; x:tile(...) does the same"},
      {"x = 1 < io_stub", "there is no global \"io_stub\""},
      {"# hello", "unexpected symbol near '#'; Lua's comments begin with --"},
      {"import torch", "'=' expected near 'torch'; Lua writes local name = require \"name\""},
      {"def f(x): return x", "'=' expected near 'f'; Lua writes function name(x) ... end"},
      {"defined f", "'=' expected near 'f'"},
      {"x = 'a' .. 'http://b' y", "'=' expected near '<eof>'"},
      {"x = print(a=1)",
       "')' expected near '='; named arguments stand in braces: nn.Linear{in_features=64}"},
      {"x = y[0, 1]", "']' expected near ','; x[{0, 1}] is x[0, 1]"},
      {"x = y @ z", "unexpected symbol near '@'; x:matmul(y) is x @ y"},
  };
  for (const auto& [text, error] : cases) EXPECT_EQ(Run("\n" + text), "a.lua:2: " + error);
}

TEST_F(Prompt, KnowsWhatIsUnfinished) {
  for (const char* text : {"function f(", "if x then", "x = {1,", "for i = 1, 3 do", "x = [[a",
                           "1 +", "f(function()", "repeat"}) {
    EXPECT_TRUE(state().Evaluate(text).incomplete) << text;
  }
  EXPECT_FALSE(state().Evaluate("function f()\n return 1\nend").incomplete);
  EXPECT_THAT(Fail("x = = 1"), StartsWith("prompt["));
  EXPECT_THAT(Fail("x = 1 end"), HasSubstr("near"));
  EXPECT_THAT(Fail("'a"), HasSubstr("unfinished string"));
}

TEST_F(Prompt, NamesTheLineOfErrors) {
  EXPECT_EQ(Fail("error('mine')"), "prompt[1]:1: mine");
  Show("function f()\n  error('there')\nend");
  EXPECT_EQ(Fail("f()"), "prompt[2]:2: there");
  EXPECT_EQ(Fail("nn.Linear{}").substr(0, 12), "prompt[4]:1:");
  EXPECT_TRUE(state().Evaluate("nn.Linear{").incomplete);
  EXPECT_EQ(Fail("nn.Linear{\n}").substr(0, 10), "prompt[5]:") << "one input, one number";
}

TEST_F(Prompt, NamesTheLineOfTheKeyThatIsWrong) {
  const std::string job = "strata.job{\n  layers = {\n    nn.Linear{2, 3},\n  },\n";
  EXPECT_THAT(Fail(job + "  schedul = '1f1b',\n  seed = 1,\n}"),
              testing::AllOf(StartsWith("prompt[1]:5: "), HasSubstr("\"schedul\"")));
  EXPECT_THAT(Fail("j = " + job + "  optimizer = {\n    'sgd',\n    lr = 'x',\n  },\n  seed = 1}"),
              testing::AllOf(StartsWith("prompt[2]:5: "), HasSubstr("lr expects")));
  EXPECT_THAT(Fail("nn.Linear{2,\n  3,\n  bas = true,\n  name = 'a',\n}"),
              StartsWith("prompt[3]:3: Linear has no argument \"bas\""));
  EXPECT_THAT(Fail("strata.schedule('1f1b', {\n  ranks = 2,\n  micro_batches = 'x',\n})"),
              StartsWith("prompt[4]:3: "));
}

TEST_F(Prompt, AJobMayHaveLayersOnly) {
  EXPECT_THAT(Show("strata.job{layers = {nn.ReLU{}}}"), HasSubstr("ReLU()"));
}

TEST_F(Prompt, AMethodAloneShowsItsHelp) {
  Show("t = strata.topology{pipe = 2}");
  EXPECT_THAT(Show("t:rank"), StartsWith("topology:rank{"));
  EXPECT_THAT(Show(" t:grid(0).topology:rank "), StartsWith("topology:rank{"));
  EXPECT_THAT(Fail("t:rnk"), HasSubstr("did you mean"));
  EXPECT_TRUE(state().Evaluate("f(t:rank").incomplete);
}

TEST_F(Prompt, TheLibraryShowsWhatItHas) {
  EXPECT_THAT(Show("nn"),
              testing::AllOf(StartsWith("nn: layers and losses"), HasSubstr("nn.ReLU{")));
  EXPECT_THAT(Show("strata"), StartsWith("strata: the library"));
  EXPECT_EQ(Show("{nn.ReLU, nn}"), "{nn.ReLU, nn}");
}

TEST_F(Prompt, LoadsRelativeToTheCurrentFolder) {
  EXPECT_THAT(Fail("strata.load('no/such.lua')"), HasSubstr("there is no file no/such.lua"));
}

}  // namespace
}  // namespace strata::lua
