// Tests that commands are found, that their help is shown, and how their errors are reported.
#include "launcher/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> ran;  // the name and the arguments of the last command

int Remember(const Command& command, const std::vector<std::string>& arguments) {
  ran = arguments;
  ran.insert(ran.begin(), command.name);
  return 7;
}

int Refuse(const Command&, const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw std::runtime_error("vector::at");
  if (arguments[0] == "config") throw ConfigError("no such layer");
  throw WorldError("disk full");
}

const std::vector<Command>& TestCommands() {
  static const std::vector<Command> commands = {
      {.name = "train",
       .usage = "SCRIPT [--flags]",
       .summary = "trains a model",
       .details = "Trains.",
       .flags = {Field::Int("nproc", "ranks to start").Optional(),
                 Field::String("svg", "a picture").Optional().OnlyDefaultYet("pictures")},
       .takes_job = true,
       .run = &Remember},
      {.name = "run",
       .usage = "FILE [--one=AAAAAAAAAA] [--two=BBBBBBBBBB] [--three=CCCCCCCCC] [--four=D]",
       .summary = "runs",
       .details =
           "Runs what the file says, line by line, and shows what its last expression\ngives.",
       .run = &Remember},
      {.name = "eval", .usage = "", .summary = "evaluates", .details = "", .run = &Remember},
      {.name = "refuse", .usage = "", .summary = "refuses", .details = "", .run = &Refuse}};
  return commands;
}

struct Shown {
  int code;
  std::string out;
  std::string err;
};

Shown Strata(const std::vector<std::string>& arguments) {
  ran.clear();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = Main(TestCommands(), arguments);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(MainTest, RunsTheCommand) {
  EXPECT_EQ(Strata({"train", "a.lua", "--steps=5"}).code, 7);
  EXPECT_THAT(ran, ElementsAre("train", "a.lua", "--steps=5"));
}

TEST(MainTest, WithoutACommandShowsHelpAsAnError) {
  const Shown shown = Strata({});
  EXPECT_EQ(shown.code, 2);
  EXPECT_THAT(shown.err, HasSubstr("Usage: strata COMMAND"));
  EXPECT_EQ(shown.out, "");
}

TEST(MainTest, HelpKnowsWhatThePromptKnows) {
  EXPECT_THAT(Strata({"help", "nn.Conv2d"}).out, StartsWith("nn.Conv2d{in_channels"));
  EXPECT_THAT(Strata({"help", "schedule"}).out, StartsWith("job.schedule: "));
  EXPECT_THAT(Strata({"help", "train"}).out, StartsWith("Usage: strata train"));
}

TEST(MainTest, HelpOfAKeyWithTheNameOfACommand) {
  EXPECT_THAT(Strata({"help", "eval"}).out,
              AllOf(StartsWith("Usage: strata eval"),
                    EndsWith("\n\"strata help job.eval\" is about the key of a job.\n")));
  EXPECT_THAT(Strata({"help", "train"}).out, Not(HasSubstr("strata help job.train")));
  EXPECT_THAT(Strata({"help", "job.eval"}).out, StartsWith("job.eval: "));
  EXPECT_THAT(Strata({"help", "job.eval.every"}).out, StartsWith("job.eval.every: "));
}

TEST(MainTest, TheManualPageHasCommandsFlagsAndKeys) {
  const std::string page = Strata({"help", "--man"}).out;
  EXPECT_THAT(page, StartsWith(".TH STRATA 1"));
  for (const char* text : {".SS strata train SCRIPT", "\\fB\\-\\-nproc\\fR=", "\\-\\-optimizer"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_THAT(page, Not(HasSubstr("svg")));  // not supported by this build
}

TEST(MainTest, HelpForPrograms) {
  const Value told = Value::FromJson(Strata({"help", "--json"}).out);
  EXPECT_EQ(told["commands"].as_list().size(), TestCommands().size());
  EXPECT_GT(told["layers"].as_list().size(), 50u);
}

TEST(MainTest, ShowsHelp) {
  for (const char* word : {"help", "--help", "-h"}) {
    const Shown shown = Strata({word});
    EXPECT_EQ(shown.code, 0);
    EXPECT_THAT(shown.out, HasSubstr("  train   trains a model\n"));
  }
}

TEST(MainTest, ShowsHelpOfACommand) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"help", "train"}, {"train", "--help"}, {"train", "a.lua", "-h"}}) {
    const Shown shown = Strata(arguments);
    EXPECT_EQ(shown.code, 0);
    EXPECT_THAT(shown.out, StartsWith("Usage: strata train SCRIPT [--flags]\n\nTrains.\n"));
    EXPECT_THAT(shown.out, HasSubstr("nproc"));
    EXPECT_THAT(shown.out, HasSubstr("\noptimizer "));
    for (const char* absent : {"\nsvg ", "\nlayers ", "\nseed_fn "}) {
      EXPECT_THAT(shown.out, Not(HasSubstr(absent)));
    }
    EXPECT_THAT(ran, IsEmpty());
  }
}

TEST(MainTest, HelpFitsATerminal) {
  EXPECT_EQ(Strata({"help", "run"}).out,
            "Usage: strata run FILE [--one=AAAAAAAAAA] [--two=BBBBBBBBBB] [--three=CCCCCCCCC]\n"
            "                  [--four=D]\n\n"
            "Runs what the file says, line by line, and shows what its last expression gives.\n");
}

TEST(MainTest, FlagsBehindAFileThatIsRunAreItsOwn) {
  EXPECT_EQ(Strata({"run", "a.lua", "--help"}).code, 7);
  EXPECT_THAT(ran, ElementsAre("run", "a.lua", "--help"));
  EXPECT_THAT(Strata({"run", "--help"}).out, StartsWith("Usage: strata run FILE"));
}

TEST(MainTest, TellsItsVersion) { EXPECT_THAT(Strata({"--version"}).out, StartsWith("strata ")); }

TEST(MainTest, AnUnknownCommandNamesTheNearest) {
  const Shown shown = Strata({"trian"});
  EXPECT_EQ(shown.code, 2);
  EXPECT_EQ(shown.err, "strata: there is no command \"trian\"; did you mean \"train\"?\n");
  EXPECT_THAT(Strata({"help", "trian"}).err, HasSubstr("did you mean \"train\"?"));
}

TEST(MainTest, AScriptWithoutACommand) {
  EXPECT_THAT(Strata({"models/a.lua"}).err,
              HasSubstr("did you mean \"strata train models/a.lua\""));
}

TEST(MainTest, ErrorsHaveTheirCodes) {
  const Shown config = Strata({"refuse", "config"});
  EXPECT_EQ(config.code, 2);
  EXPECT_EQ(config.err, "strata: no such layer\n");
  const Shown world = Strata({"refuse", "world"});
  EXPECT_EQ(world.code, 1);
  EXPECT_EQ(world.err, "strata: disk full\n");
  const Shown bug = Strata({"refuse"});
  EXPECT_EQ(bug.code, 1);
  EXPECT_EQ(bug.err, "strata: a bug in Strata: vector::at\n");
}

}  // namespace
}  // namespace strata::launcher
