// help(): that everything a user meets has a help text, and what it says.

#include "engine/base/text.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Help : public StateTest {
 protected:
  void SetUp() override {
    Show(
        "job = strata.job{layers = {nn.Linear{2, 3}, nn.ReLU{}}, input = {shape = {2}}, "
        "device = 'cpu', batch = {micro_batches = 1, micro_batch_size = 1}}");
    Show("plan = job:plan{} t = strata.topology{pipe = 2} g = t:grid(0) p = plan.program");
    Show("layer = nn.Linear{2, 3}");
  }
  /// Checks that `line` + NAME + "?" shows help, for every NAME that may follow `line`.
  void EachHasHelp(const std::string& line, size_t least) {
    const std::vector<std::string> names = state().Complete(line).candidates;
    EXPECT_GE(names.size(), least) << line;
    for (const std::string& name : names) {
      const std::string shown = Show(line + name + "?");
      EXPECT_THAT(shown.substr(0, shown.find('\n')), HasSubstr(": ")) << line << name;
    }
  }
};

TEST_F(Help, IsThereForEverything) {
  EachHasHelp("strata.nn.", 25);
  EachHasHelp("strata.data.", 4);
  EachHasHelp("strata.json.", 4);
  EachHasHelp("strata.partition.", 2);
  EachHasHelp("strata.schedule.", 1);
  for (const char* object : {"job", "plan", "t", "g", "p", "layer"})
    EachHasHelp(Str(object, "."), 3);
  for (const char* library : {"string", "table", "math", "bit", "coroutine"}) {
    EachHasHelp(Str(library, "."), 7);
    EXPECT_THAT(Show(Str(library, "?")), StartsWith(Str(library, ": ")));
  }
  for (const char* global : {"print", "pcall", "require", "strata", "nn", "F", "unpack"}) {
    EXPECT_THAT(Show(Str(global, "?")), StartsWith(global)) << global;
  }
  const std::vector<std::string> library = state().Complete("strata.").candidates;
  for (const std::string& name : library) {
    EXPECT_THAT(Show("strata." + name + "?"), HasSubstr(": ")) << name;
  }
}

TEST_F(Help, OfLayersHasOptionsDefaultsAndShapes) {
  EXPECT_THAT(Show("nn.Conv2d?"),
              AllOf(StartsWith("nn.Conv2d{in_channels, out_channels, kernel_size}: convolution"),
                    HasSubstr("shapes: (N, in_channels, H, W) -> (N, out_channels, H', W')"),
                    HasSubstr("stride"), HasSubstr("{1, 1}")));
  EXPECT_THAT(Show("layer?"), AllOf(StartsWith("Linear(2, 3): a layer with 9 parameters"),
                                    HasSubstr("in_features")));
  EXPECT_THAT(Show("nn?"), AllOf(HasSubstr("\n  nn.Conv2d{"), HasSubstr("nn.MSELoss{}: ")));
}

TEST_F(Help, OfKeysComesFromTheirFields) {
  for (const char* asked : {"schedule?", "job.schedule?", "help('schedule')", "?schedule"}) {
    printed_.clear();
    EXPECT_THAT(Show(asked) + printed_, AllOf(StartsWith("job.schedule: "), HasSubstr("zb_h1")));
  }
  EXPECT_THAT(Show("optimizer?"), AllOf(HasSubstr("{\"adamw\", ...} takes"), HasSubstr("betas")));
  EXPECT_THAT(Show("batch?"), HasSubstr("micro_batch_size"));
}

TEST_F(Help, OfMembersAndChoicesOfKeys) {
  EXPECT_THAT(Show("pipe?"), StartsWith("job.parallel.pipe: ranks that share the list of layers"));
  EXPECT_THAT(Show("help('adamw')") + printed_,
              AllOf(StartsWith("job.optimizer = {\"adamw\", ...}: "), HasSubstr("weight_decay")));
  printed_.clear();
  Show("help('zb_h1')");
  EXPECT_THAT(printed_, StartsWith("job.schedule = \"zb_h1\"\njob.schedule: the order of"));
}

TEST_F(Help, OfKeysByTheirTitles) {
  Show("help('job.save')");
  EXPECT_THAT(printed_, StartsWith("job.save: "));
  printed_.clear();
  Show("help('job.save.every')");
  EXPECT_THAT(printed_, AllOf(StartsWith("job.save.every: "), Not(HasSubstr("job.eval.every"))));
  Show("job = nil");
  EXPECT_THAT(Show("job.save?"), StartsWith("job.save: "));
  EXPECT_THAT(Show("job.save.every?"), StartsWith("job.save.every: "));
  EXPECT_THAT(Fail("job.sace?"), HasSubstr("help knows nothing of \"job.sace\""));
}

TEST_F(Help, OfAMemberNamesAllThatHaveIt) {
  EXPECT_THAT(Show("every?"),
              AllOf(HasSubstr("job.eval.every: steps between two evaluations"),
                    HasSubstr("\n\njob.save.every: steps between two saves"),
                    HasSubstr("job.lr_schedule.every of step: steps between two drops")));
  EXPECT_THAT(Show("lr?"), AllOf(StartsWith("job.optimizer.lr of "), HasSubstr("adamw"),
                                 HasSubstr(": learning rate\n")));
  EXPECT_THAT(Show("betas?"), StartsWith("job.optimizer.betas of "));
  EXPECT_THAT(Show("momentum?"), StartsWith("job.optimizer.momentum of "));
  EXPECT_THAT(Show("warmup?"), AllOf(StartsWith("job.lr_schedule = {\"warmup\", ...}: "),
                                     HasSubstr("\n\njob.lr_schedule.warmup of linear, cosine, ")));
}

TEST_F(Help, OfMembersIsTheirs) {
  EXPECT_THAT(Show("plan.bounds?"), StartsWith("plan.bounds: the cuts"));
  EXPECT_THAT(Show("job:plan?"), StartsWith("job:plan{key=value, ...}: "));
  EXPECT_THAT(Show("p.simulate?"), StartsWith("program:simulate{"));
  EXPECT_THAT(Show("plan?"), AllOf(StartsWith("a plan: "), HasSubstr("\n  plan.bounds: ")));
  EXPECT_THAT(Show("strata.load"), StartsWith("strata.load(path [, ")) << "without being asked";
}

TEST_F(Help, OfAFunctionOfTheScriptsIsItsComment) {
  Show("-- Doubles a number.\n-- Slowly.\nfunction double(x) return 2 * x end");
  EXPECT_EQ(Show("double?"), "function double (prompt[4]:3)\nDoubles a number.\nSlowly.");
  EXPECT_THAT(Show("(1 + 1)?"), StartsWith("2: a number"));
}

TEST_F(Help, ShowsWhereToBeginAndNamesTheNearest) {
  EXPECT_THAT(Show("?"), AllOf(StartsWith("help(x)"), HasSubstr("help(F)")));
  Show("help()");
  EXPECT_THAT(printed_, StartsWith("help(x)"));
  EXPECT_THAT(Fail("partitoin?"),
              AllOf(HasSubstr("\"partitoin\""), HasSubstr("did you mean \"partition\"?")));
  EXPECT_THAT(Fail("help('pipee')"), HasSubstr("did you mean \"pipe\"?"));
  EXPECT_THAT(Fail("undefined.x?"), HasSubstr("undefined"));
  EXPECT_THAT(Fail("job.engine"),
              HasSubstr("a job has no \"engine\"; strata.help(x) lists what x has"));
}

TEST_F(Help, IsNoPartOfTheLanguage) {
  EXPECT_EQ(Show("'why?'"), "\"why?\"");
  EXPECT_EQ(Show("-- why?"), "");
  EXPECT_EQ(Show("x = [[\nwhy?\n]]"), "");
}

TEST_F(Help, IsThereForScripts) {
  const ScriptFolder folder;
  state().RunFile(folder.Write("a.lua", "require('strata').help('clip')"));
  EXPECT_THAT(printed_, AllOf(StartsWith("job.clip: "), Not(HasSubstr("schedule"))));
}

}  // namespace
}  // namespace strata::lua
