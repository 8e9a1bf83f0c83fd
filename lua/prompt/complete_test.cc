// Completion at the prompt: the candidates for every kind of value, the start of the word, and that
// no user code is run.

#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

constexpr char kJob[] =
    "job = strata.job{layers = {nn.ReLU{}}, input = {shape = {2}}, device = 'cpu', "
    "batch = {micro_batches = 1, micro_batch_size = 1}}";

class Complete : public StateTest {
 protected:
  std::vector<std::string> Of(const std::string& line) { return state().Complete(line).candidates; }
};

TEST_F(Complete, NamesOfTheLibrary) {
  EXPECT_THAT(Of("strata.sch"), ElementsAre("schedule"));
  EXPECT_THAT(Of("strata.schedule.p"), ElementsAre("parse"));
  EXPECT_THAT(Of("strata.partition."), ElementsAre("balanced", "uniform"));
  EXPECT_THAT(Of("strata.json."), ElementsAre("decode", "encode", "null", "object"));
  EXPECT_THAT(Of("strata.nn.Transformer"),
              ElementsAre("Transformer", "TransformerDecoder", "TransformerDecoderLayer",
                          "TransformerEncoder", "TransformerEncoderLayer"));
  EXPECT_THAT(Of("strata.data.ci"), ElementsAre("cifar10"));
  EXPECT_THAT(Of("string.rep"), ElementsAre("rep"));
  EXPECT_THAT(Of("math.ra"), ElementsAre("rad", "random", "randomseed"));
  EXPECT_THAT(Of("nn.l"), IsEmpty()) << "letters count as they are";
}

TEST_F(Complete, MembersOfObjects) {
  Show("t = strata.topology{pipe = 2, data = 2} g = t:grid(0)");
  Show("l = nn.Linear{2, 3} p = strata.schedule('1f1b', {ranks = 2})");
  Show(
      "j = strata.job{layers = {l}, input = {shape = {2}}, device = 'cpu', "
      "batch = {micro_batches = 1, micro_batch_size = 1}} plan = j:plan{}");
  EXPECT_THAT(Of("t."), ElementsAre("axes", "axis", "comm_lists", "coord", "dims", "filter", "grid",
                                    "rank", "repr", "size", "world_size"));
  EXPECT_THAT(Of("t:a"), ElementsAre("axis")) << "axes is no method";
  EXPECT_THAT(Of("g.is_"), ElementsAre("is_first_stage", "is_last_stage"));
  EXPECT_THAT(Of("g.topology.w"), ElementsAre("world_size")) << "a property of a property";
  EXPECT_THAT(Of("l."), IsSupersetOf({"args", "name", "parameters", "type", "where"}));
  EXPECT_THAT(Of("l.args.in"), ElementsAre("in_features"));
  EXPECT_THAT(Of("p:si"), ElementsAre("simulate"));
  EXPECT_THAT(Of("j."), IsSupersetOf({"layers", "loss", "optimizer", "plan", "seed", "train"}));
  EXPECT_THAT(Of("j.layers[1].ty"), ElementsAre("type"));
  EXPECT_THAT(Of("j.layers[2].ty"), IsEmpty());
  EXPECT_THAT(Of("plan."), IsSupersetOf({"bounds", "layers", "program", "stages", "topology"}));
  EXPECT_THAT(Of("plan.stages[1].ra"), ElementsAre("rank"));
  EXPECT_THAT(Of("plan.program.mi"), ElementsAre("micro_batches"));
}

TEST_F(Complete, FieldsOfTables) {
  Show("a = {b = {c = {word = 1, work = 2, other = 3}}, {x = {yes = 1}}, [' '] = 1, [5] = 1}");
  EXPECT_THAT(Of("a.b.c.wor"), ElementsAre("word", "work"));
  EXPECT_THAT(Of("a[1].x.y"), ElementsAre("yes"));
  EXPECT_THAT(Of("a[2].x"), IsEmpty());
  EXPECT_THAT(Of("a[99999999999999999999].x"), IsEmpty());
  EXPECT_THAT(Of("a.b.c.word."), IsEmpty()) << "a number has no members";
  EXPECT_THAT(Of("a.missing."), IsEmpty());
  EXPECT_THAT(Of("_G.a.b."), ElementsAre("c"));
}

TEST_F(Complete, GlobalsAndKeywords) {
  Show("my_value = 1 my_other = 2");
  EXPECT_THAT(Of("my_"), ElementsAre("my_other", "my_value"));
  EXPECT_THAT(Of("whi"), ElementsAre("while"));
  EXPECT_THAT(Of("re"), ElementsAre("repeat", "require", "return"));
  EXPECT_THAT(Of("zzz"), IsEmpty());
  EXPECT_THAT(Of("math.whi"), IsEmpty()) << "a keyword is no field";
}

TEST_F(Complete, KnowsWhereTheWordBegins) {
  Show("t = {word = {inner = 1}} word = 1");
  const std::pair<const char*, size_t> cases[] = {
      {"t.wo", 2},  {"x = t.wo", 6}, {"print(t.wo", 8}, {"t.word.in", 7}, {"", 0},
      {"-wo", 1},   {"not wo", 4},   {"{wo", 1},        {"f(1,wo", 4},    {"t.", 2},
      {"#t.wo", 3}, {"t[wo", 2},     {"a;wo", 2},       {"x='a'..wo", 7}, {"for i = 1, wo", 11}};
  for (const auto& [line, start] : cases) {
    EXPECT_EQ(state().Complete(line).start, start) << line;
    EXPECT_THAT(Of(line), Not(IsEmpty())) << line;
  }
}

TEST_F(Complete, ConcatenationsAndOpenBracketsBeginAnew) {
  Show("t = {field = 1} global_one = 1");
  EXPECT_THAT(Of("t..global_"), ElementsAre("global_one"));
  EXPECT_THAT(Of("'a'..t.f"), ElementsAre("field"));
  EXPECT_THAT(Of("t[global_"), ElementsAre("global_one"));
  EXPECT_THAT(Of("t[t.f"), ElementsAre("field"));
  EXPECT_THAT(Of("{[global_"), ElementsAre("global_one"));
}

TEST_F(Complete, OffersNothingForWhatItWouldHaveToRun) {
  Show("t = {x = {field = 1}, i = {field = 2}} i = 'x' function f() ran = true return t end");
  Show("m = setmetatable({}, {__index = function() ran = true return t end})");
  for (const char* line : {"f().", "f().x.fi", "t[i].fi", "t['x'].fi", "(t).", "(t).x.fi", "'a':re",
                           "t.x[f()].", "].", ":", ".", "t[1 + 1].fi", "f{}.", "m.x.", "m[1].x."}) {
    EXPECT_THAT(Of(line), IsEmpty()) << line;
  }
  EXPECT_EQ(Show("_G.ran"), "nil");
}

TEST_F(Complete, OptionsOfWhatIsCalled) {
  EXPECT_THAT(Of("nn.Conv2d{3, 64, ker"), ElementsAre("kernel_size="));
  EXPECT_THAT(Of("nn.Conv2d{3, 64, kernel_size=3, pad"), ElementsAre("padding=", "padding_mode="));
  EXPECT_THAT(Of("x = {nn.ReLU{}, nn.Dropout{"), ElementsAre("dtype=", "inplace=", "name=", "p="));
  EXPECT_THAT(Of("nn.Dropout{p=0.5, "), ElementsAre("dtype=", "inplace=", "name="))
      << "p is there already";
  EXPECT_THAT(Of("nn.Dropout{p=0.5, inpl"), ElementsAre("inplace="));
  EXPECT_THAT(Of("nn.Dropout({inpl"), ElementsAre("inplace="));
  EXPECT_THAT(Of("nn.Dropout{p=ma"), ElementsAre("math")) << "a value is no option";
  EXPECT_THAT(Of("strata.job{layers={}, sch"), ElementsAre("schedule="));
  EXPECT_THAT(Of("strata.job{optimizer={'adam', be"), ElementsAre("betas="));
  EXPECT_THAT(Of("strata.job{optimizer={'sgd', be"), IsEmpty()) << "sgd has none";
  EXPECT_THAT(Of("strata.job{batch={micro_"), ElementsAre("micro_batch_size=", "micro_batches="));
  EXPECT_THAT(Of("strata.schedule('1f1b', {ra"), ElementsAre("ranks="));
  EXPECT_THAT(Of("strata.data.text{len"), ElementsAre("length="));
  EXPECT_THAT(Of("strata.data.csv{'a.csv', norm"), ElementsAre("normalise="));
  EXPECT_THAT(Of("strata.dataset{length=3, ge"), ElementsAre("get="));
  EXPECT_THAT(Of("strata.data.csv{'a.csv'}:random_crop{pad"), ElementsAre("padding="));
  EXPECT_THAT(Of("strata.data.csv{'a.csv'}:take(3):shuf"), ElementsAre("shuffle"));
  Show(kJob);
  EXPECT_THAT(Of("job:plan{pi"), ElementsAre("pipe="));
  EXPECT_THAT(Of("print(job:train{ste"), ElementsAre("steps="));
  EXPECT_EQ(state().Complete("nn.Dropout{inpl").start, 11u);
}

TEST_F(Complete, BehindCallsWhoseTypeIsKnown) {
  Show(kJob);
  EXPECT_THAT(Of("job:plan{}.bo"), ElementsAre("bounds"));
  EXPECT_THAT(Of("job:plan{pipe=2}:mo"), ElementsAre("move"));
  EXPECT_THAT(Of("job:plan{pipe=2, name='a}b('}:mo"), ElementsAre("move"));
  EXPECT_THAT(Of("job:plan{\n  pipe=2,  -- two }\n}:mo"), ElementsAre("move"));
  EXPECT_THAT(Of("x = 1 + job:plan {pipe=2}:move(0, 1):mem"), ElementsAre("memory"));
  EXPECT_THAT(Of("job:plan{}:schedule():ga"), ElementsAre("gantt"));
  EXPECT_THAT(Of("job:plan{}.program:ga"), ElementsAre("gantt"));
  EXPECT_THAT(Of("job:plan{}.topology:grid(0).is_f"), ElementsAre("is_first_stage"));
  EXPECT_THAT(Of("job:start{}:tra"), ElementsAre("train_batch"));
  EXPECT_THAT(Of("strata.load('x.lua').opt"), ElementsAre("optimizer"));
  EXPECT_THAT(Of("strata.load 'x.lua':plan{}:comp"), ElementsAre("compare"));
  EXPECT_THAT(Of("strata.plan('x.plan').k"), ElementsAre("keys"));
  EXPECT_THAT(Of("strata.schedule('1f1b', {ranks=2}):lowered():si"), ElementsAre("simulate"));
  EXPECT_THAT(Of("strata.schedule.parse('0F0'):si"), ElementsAre("simulate"));
  EXPECT_THAT(Of("strata.topology{pipe=2}:gr"), ElementsAre("grid"));
  EXPECT_THAT(Of("nn.Dropout{p=0.5}.na"), ElementsAre("name"));
  EXPECT_THAT(Of("job:plan{}:compare{meth"), ElementsAre("methods="));
  EXPECT_THAT(Of("job:plan{}:schedule():simulate{co"), ElementsAre("comm="));
  EXPECT_THAT(Of("print(strata.load('x.lua'):plan{pip"), ElementsAre("pipe="));
  EXPECT_THAT(Of("job:plan{}.nothing:x"), IsEmpty());
  EXPECT_THAT(Of("job:plan{}:forecast()."), IsEmpty()) << "a table, known only once it runs";
  EXPECT_THAT(Of("job:plan{}()."), IsEmpty()) << "a plan is not called";
  EXPECT_THAT(Of("job:plan{}"), IsEmpty()) << "an operator comes next, no name";
}

TEST_F(Complete, SeveralLinesAreOneInput) {
  EXPECT_THAT(
      Of("net = nn.Sequential{\n  nn.Linear{2, 3},  -- a ' comment {\n  nn.Dropout{\n    inp"),
      ElementsAre("inplace="));
  EXPECT_THAT(Of("x = [[ nn.Dropout{ ]] nn.Dro"),
              ElementsAre("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"));
}

TEST_F(Complete, WhatStringsMaySay) {
  EXPECT_THAT(Of("strata.job{schedule=\"zb_"), ElementsAre("zb_h1", "zb_h2"));
  EXPECT_THAT(Of("strata.job{optimizer={'adam"), ElementsAre("adam", "adamax", "adamw"));
  EXPECT_THAT(Of("strata.job{device='"), ElementsAre("cpu", "cuda"));
  EXPECT_THAT(Of("nn.Linear{2, 3, dtype='float"), ElementsAre("float16", "float32", "float64"));
  EXPECT_THAT(Of("strata.schedule('zb"), ElementsAre("zb_h1", "zb_h2", "zbv"));
  EXPECT_THAT(Of("strata.help('partit"), ElementsAre("partition"));
  EXPECT_THAT(Of("strata.help('micro_batch_s"), ElementsAre("micro_batch_size"));
  EXPECT_THAT(Of("strata.help('adamw"), ElementsAre("adamw"));
  Show(kJob);
  EXPECT_THAT(Of("job:search{cluster='8xH1"), ElementsAre("8xH100"));
  EXPECT_THAT(Of("job:plan{}:compare{methods={'uni"), ElementsAre("uniform"));
  EXPECT_THAT(Of("job:plan{}:compare{methods={'uniform', 'ti"), ElementsAre("time"));
  EXPECT_THAT(Of("job:plan{}:compare{schedules={'1f1b', 'zb_"), ElementsAre("zb_h1", "zb_h2"));
  EXPECT_THAT(Of("strata.job{optimizer={'sgd', 'ad"), IsEmpty()) << "only its first element";
  EXPECT_THAT(Of("print('nn.Conv"), IsEmpty()) << "a string is no code";
}

TEST_F(Complete, FilesInStrings) {
  const ScriptFolder folder;
  folder.Write("models/alexnet.lua", "");
  folder.Write("models/alexis.lua", "");
  folder.Write("models/.hidden", "");
  folder.Write("models/deep/x.lua", "");
  const std::string path = folder.path().string();
  EXPECT_THAT(Of("strata.load('" + path + "/mod"), ElementsAre("models/"));
  EXPECT_THAT(Of("strata.load('" + path + "/models/alex"),
              ElementsAre("alexis.lua", "alexnet.lua"));
  EXPECT_THAT(Of("strata.load(\"" + path + "/models/"),
              ElementsAre("alexis.lua", "alexnet.lua", "deep/"));
  EXPECT_EQ(state().Complete("strata.load('" + path + "/mod").start, 13 + path.size() + 1);
  EXPECT_THAT(Of("strata.load('" + path + "/nowhere/"), IsEmpty());
}

TEST_F(Complete, MethodsOfTexts) {
  Show("s = 'text'");
  EXPECT_THAT(Of("s:upp"), ElementsAre("upper"));
  EXPECT_THAT(Of("s.upp"), IsEmpty());
}

TEST_F(Complete, StandsAnyLine) {
  Show("t = {}");
  for (const std::string& line :
       {std::string(100000, 'x'), std::string(100000, '.'), std::string(100000, '['),
        "t" + std::string(50000, '.') + "x", std::string("\xff\xfe."), std::string("a\0b.", 4),
        std::string("t[["), std::string("t]]"), std::string("t[]"), std::string("t::x"),
        std::string("t.:x"), std::string("\t\n"), std::string("1e5."), std::string("t[-1].x")}) {
    EXPECT_LE(state().Complete(line).start, line.size()) << line.substr(0, 20);
  }
  EXPECT_EQ(Show("1 + 1"), "2");
}

TEST_F(Complete, ChangesNothing) {
  Show("t = {x = {y = 1}}");
  const std::string before = Show("_G");
  for (const char* line : {"t.x.", "strata.nn.", "undefined.x", ""}) Of(line);
  EXPECT_EQ(Show("_G"), before);
}

}  // namespace
}  // namespace strata::lua
