#include "engine/job/flags/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/job/flags/overrides.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

FieldTable OwnFields() {
  return {Field::Int("nproc", "local ranks").AtLeast(1).Optional(),
          Field::Bool("json", "prints JSON").Default(false),
          Field::String("svg", "a file").Optional()};
}

Flags Parse(const std::vector<std::string>& arguments) { return Flags(arguments, OwnFields()); }

std::string ParseError(const std::vector<std::string>& arguments) {
  return ErrorOf([&] { Parse(arguments).CheckAllTaken(); });
}

TEST(Flags, NoneIsFine) {
  const Flags flags = Parse({});
  EXPECT_EQ(flags.own(), MapOf({{"nproc", Value()}, {"json", false}, {"svg", Value()}}));
  EXPECT_EQ(flags.job(), Value::MakeMap());
  EXPECT_TRUE(flags.rest().empty());
  flags.CheckAllTaken();
}

TEST(Flags, TakeBothForms) {
  EXPECT_EQ(Parse({"--steps=5"}).job(), MapOf({{"steps", 5}}));
  EXPECT_EQ(Parse({"--steps", "5"}).job(), MapOf({{"steps", 5}}));
  EXPECT_EQ(Parse({"--nproc=2"}).own()["nproc"], Value(2));
  EXPECT_EQ(Parse({"--nproc", "2"}).own()["nproc"], Value(2));
}

TEST(Flags, DashesAndUnderscoresAreTheSame) {
  EXPECT_EQ(Parse({"--micro-batches=4"}).job(), Parse({"--micro_batches=4"}).job());
  EXPECT_EQ(Parse({"--hang-timeout=9"}).job(), MapOf({{"hang_timeout", 9.0}}));
}

TEST(Flags, TheDesignsExamples) {
  EXPECT_EQ(Parse({"--optimizer.lr=0.1"}).job(), MapOf({{"optimizer", MapOf({{"lr", 0.1}})}}));
  EXPECT_EQ(Parse({"--pipe=4", "--micro_batches=16"}).job(),
            MapOf({{"parallel", MapOf({{"pipe", 4}})}, {"batch", MapOf({{"micro_batches", 16}})}}));
  EXPECT_EQ(Parse({"--partition=0,19,22"}).job(), MapOf({{"partition", Ints({0, 19, 22})}}));
  EXPECT_EQ(Parse({"--schedule=gpipe", "--micro_batches=4"}).job()["schedule"], Value("gpipe"));
}

TEST(Flags, BooleansStandAlone) {
  EXPECT_EQ(Parse({"--losses"}).job(), MapOf({{"losses", true}}));
  EXPECT_EQ(Parse({"--no-losses"}).job(), MapOf({{"losses", false}}));
  EXPECT_EQ(Parse({"--no_losses"}).job(), MapOf({{"losses", false}}));
  EXPECT_EQ(Parse({"--losses=false"}).job(), MapOf({{"losses", false}}));
  EXPECT_EQ(Parse({"--losses", "off"}).job(), MapOf({{"losses", false}}));
  EXPECT_EQ(Parse({"--json"}).own()["json"], Value(true));
  EXPECT_EQ(Parse({"--json", "--no-json"}).own()["json"], Value(false));
}

TEST(Flags, ABooleanDoesNotEatWhatFollows) {
  const Flags flags = Parse({"--losses", "file.txt"});
  EXPECT_EQ(flags.job(), MapOf({{"losses", true}}));
  EXPECT_THAT(flags.rest(), ElementsAre("file.txt"));
}

TEST(Flags, ResumeAloneMeansTheLatest) {
  const Flags flags = Parse({"--resume", "net.lua", "--save.dir=run", "--save.every=5"});
  EXPECT_EQ(flags.job(),
            MapOf({{"resume", "latest"}, {"save", MapOf({{"dir", "run"}, {"every", 5}})}}));
  EXPECT_THAT(flags.rest(), ElementsAre("net.lua"));
  EXPECT_EQ(Parse({"--resume=7"}).job(), MapOf({{"resume", "7"}}));
  EXPECT_EQ(Build({}, Parse({"--save=run", "--resume"}).job()).save.dir, "run");
  EXPECT_EQ(Build({{"save", "run"}}, Parse({"--save.every=5"}).job()).save.dir, "run");
  EXPECT_EQ(Build({{"save", "run"}}, Parse({"--save=none"}).job()).save.dir, "");
}

TEST(Flags, ValuesAreTypedByTheKey) {
  EXPECT_EQ(Parse({"--name=123"}).job(), MapOf({{"name", "123"}}));
  EXPECT_EQ(Parse({"--seed=123"}).job(), MapOf({{"seed", 123}}));
  EXPECT_EQ(Parse({"--optimizer.betas=0.8,0.9"}).job()["optimizer"]["betas"],
            Value(Value::List{0.8, 0.9}));
  EXPECT_EQ(Parse({"--input.shape=3,64,64"}).job()["input"]["shape"], Ints({3, 64, 64}));
  EXPECT_EQ(Parse({"--input.dtype=long"}).job()["input"]["dtype"], Value("int64"));
  EXPECT_EQ(Parse({"--clip=none"}).job(), MapOf({{"clip", Value()}}));
  EXPECT_EQ(Parse({"--freeze=0,type:Embedding"}).job()["freeze"],
            Value(Value::List{0, "type:Embedding"}));
  EXPECT_EQ(Parse({"--partition=type:conv|linear"}).job()["partition"], Value("type:conv|linear"));
  EXPECT_EQ(Parse({"--data.train.path=7"}).job()["data"]["train"]["path"], Value("7"));
  EXPECT_EQ(Parse({"--log="}).job(), MapOf({{"log", ""}}));
}

TEST(Flags, NegativeNumbersAreValues) {
  EXPECT_THAT(ParseError({"--seed", "-1"}), HasSubstr("seed expects an integer, at least 0"));
}

TEST(Flags, TheLastOfEqualsHolds) {
  EXPECT_EQ(Parse({"--steps=5", "--steps=6"}).job(), MapOf({{"steps", 6}}));
  EXPECT_EQ(Parse({"--nproc=5", "--nproc=6"}).own()["nproc"], Value(6));
  EXPECT_EQ(Parse({"--pipe=2", "--parallel.pipe=3"}).job()["parallel"]["pipe"], Value(3));
}

TEST(Flags, DataIsADegreeOrASource) {
  EXPECT_EQ(Parse({"--data=2"}).job(), MapOf({{"parallel", MapOf({{"data", 2}})}}));
  const Flags flags = Parse({"--data=digits"});
  EXPECT_THAT(ErrorOf([&] { Build({}, flags.job()); }), HasSubstr("data expects a source"));
}

TEST(Flags, OwnFlagsWinOverKeys) {
  const Flags flags({"--seed=7"}, {Field::Int("seed", "").Default(1)});
  EXPECT_EQ(flags.own()["seed"], Value(7));
  EXPECT_EQ(flags.job(), Value::MakeMap());
}

TEST(Flags, TheRestKeepsItsOrder) {
  const Flags flags = Parse({"a", "--steps=5", "b", "-x", "--", "--c", "d"});
  EXPECT_THAT(flags.rest(), ElementsAre("a", "b", "-x", "--c", "d"));
  EXPECT_EQ(flags.job(), MapOf({{"steps", 5}}));
}

TEST(Flags, ReachTheJob) {
  const Flags flags =
      Parse({"--pipe=2", "--optimizer=adamw", "--optimizer.lr=0.5", "--batch=32", "--micro-batches",
             "4", "--losses", "--steps=3", "--lr_schedule=cosine", "--lr_schedule.warmup=2"});
  const Job job = Build({{"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}})}}, flags.job());
  EXPECT_EQ(job.parallel.pipe, 2);
  EXPECT_EQ(job.optimizer.type, "adamw");
  EXPECT_EQ(job.optimizer.options["lr"], Value(0.5));
  EXPECT_EQ(job.batch.micro_batch_size, 8);
  EXPECT_EQ(job.steps, 3);
  EXPECT_TRUE(job.losses);
  EXPECT_EQ(job.lr_schedule.type, "cosine");
  EXPECT_EQ(job.lr_schedule.options["warmup"], Value(2));
}

TEST(Flags, TheJobsTypeSaysWhatItsOptionsTake) {
  const auto job_of = [](const std::vector<std::string>& flags) {
    return Build({{"steps", 3}}, Parse(flags).job());
  };
  const Job half = job_of({"--precision=fp16", "--precision.reduce=fp16"});
  EXPECT_EQ(half.precision.reduce, DType::kFloat16);
  EXPECT_EQ(job_of({"--precision=fp16", "--precision.messages=fp16"}).precision.name, "fp16");
  EXPECT_EQ(
      job_of({"--optimizer=adafactor", "--optimizer.eps=1e-30,1e-3"}).optimizer.options["eps"],
      Value(Value::List{1e-30, 1e-3}));
  EXPECT_TRUE(job_of({"--lr_schedule=cosine", "--lr_schedule.steps=none"})
                  .lr_schedule.options["steps"]
                  .is_null());
  EXPECT_EQ(Parse({"--data.train.split=all"}).job()["data"]["train"]["split"], Value("all"));
  EXPECT_THAT(ErrorOf([&] {
                job_of({"--precision=bf16", "--precision.reduce=fp16"});
              }),
              HasSubstr("the precision bf16: reduce expects one of \"float32\", \"bf16\"; got"));
  EXPECT_THAT(ErrorOf([&] {
                job_of({"--optimizer=adafactor", "--optimizer.eps=1e-8"});
              }),
              HasSubstr("the optimizer adafactor: eps expects a list of 2 numbers"));
  EXPECT_THAT(ErrorOf([&] {
                job_of({"--lr_schedule=warmup", "--lr_schedule.steps=none"});
              }),
              HasSubstr("the lr_schedule warmup needs steps"));
}

// ---- errors ----

TEST(Flags, AMissingOneNamesWhatMayBeIt) {
  const auto error = [](const std::vector<std::string>& arguments) {
    return ErrorOf([&] { Flags(arguments, {Field::String("output", "the new file")}); });
  };
  EXPECT_EQ(error({"--out=a"}), "the command line needs --output: the new file; is it --out?");
  EXPECT_EQ(error({"--otput=a"}), "the command line needs --output: the new file; is it --otput?");
  EXPECT_EQ(error({"--depth=3"}), "the command line needs output: the new file (a string)");
  EXPECT_EQ(error({"--output=a", "--out=b"}), "");
}

class WrongFlags : public testing::TestWithParam<std::pair<std::vector<std::string>, std::string>> {
};

TEST_P(WrongFlags, AreRefused) { EXPECT_EQ(ParseError(GetParam().first), GetParam().second); }

INSTANTIATE_TEST_SUITE_P(
    Flags, WrongFlags,
    testing::Values(
        std::pair{std::vector<std::string>{"--stepz=5"},
                  "there is no flag --stepz; did you mean \"steps\"?"},
        std::pair{std::vector<std::string>{"--nprok", "5"},
                  "there is no flag --nprok; did you mean \"nproc\"?"},
        std::pair{std::vector<std::string>{"--optimizer.lrr=5"},
                  "there is no flag --optimizer.lrr; did you mean \"optimizer.lr\"?"},
        std::pair{std::vector<std::string>{"--lr=0.1"},
                  "there is no flag --lr; did you mean \"optimizer.lr\"?"},
        std::pair{std::vector<std::string>{"--max-grad-norm=1"},
                  "there is no flag --max_grad_norm; did you mean \"clip\"?"},
        std::pair{std::vector<std::string>{"--xyzzyplugh"}, "there is no flag --xyzzyplugh"},
        std::pair{std::vector<std::string>{"--no-pipe"}, "there is no flag --no_pipe"},
        std::pair{std::vector<std::string>{"--steps"},
                  "the command line: --steps needs a value: an integer, at least 1, or none"},
        std::pair{std::vector<std::string>{"--steps", "--losses"},
                  "the command line: --steps needs a value: an integer, at least 1, or none"},
        std::pair{std::vector<std::string>{"--recompute"},
                  "the command line: --recompute needs a value: layers that run forward again "
                  "instead of keeping activations: true, {every=N}, layers, a function, auto"},
        std::pair{std::vector<std::string>{"--steps=five"},
                  "the command line: steps expects an integer, at least 1, or none; got the string "
                  "\"five\""},
        std::pair{std::vector<std::string>{"--steps="},
                  "the command line: steps expects an integer, at least 1, or none; got the string "
                  "\"\""},
        std::pair{std::vector<std::string>{"--steps=1,2"},
                  "the command line: steps expects an integer, at least 1, or none; got the list "
                  "{1, 2}"},
        std::pair{std::vector<std::string>{"--device=gpu"},
                  "the command line: device expects one of \"cuda\", \"cpu\", or none; got the "
                  "string \"gpu\""},
        std::pair{std::vector<std::string>{"--device=cdua"},
                  "the command line: device expects one of \"cuda\", \"cpu\", or none; got the "
                  "string \"cdua\"; did you mean \"cuda\"?"},
        std::pair{std::vector<std::string>{"--losses=maybe"},
                  "the command line: losses expects true or false; got the string \"maybe\""},
        std::pair{std::vector<std::string>{"--json=2"},
                  "the command line: json expects true or false; got the string \"2\""},
        std::pair{std::vector<std::string>{"--nproc=0"},
                  "the command line: nproc expects an integer, at least 1, or none; got the number "
                  "0"},
        std::pair{std::vector<std::string>{"--zero=4"},
                  "the command line: zero expects an integer, at least 0, at most 3; got the "
                  "number 4; the largest is "
                  "3"},
        std::pair{std::vector<std::string>{"--seed_fn=f"},
                  "the command line: seed_fn expects a function, or none; got the string \"f\""},
        std::pair{std::vector<std::string>{"--layers=3"}, "there is no flag --layers"}));

// ---- the script's options ----

TEST(TakeOptions, GivesDefaultsWithoutFlags) {
  Flags flags = Parse({});
  const Value defaults = MapOf({{"cifar", ""}, {"classes", 10}, {"rate", 0.5}, {"fast", false}});
  EXPECT_EQ(flags.TakeOptions(defaults, "net.lua:2"), defaults);
  flags.CheckAllTaken();
}

TEST(TakeOptions, TypesByTheDefault) {
  Flags flags = Parse({"--classes=100", "--cifar", "7", "--rate=1", "--fast", "--sizes=1,2"});
  const Value options = flags.TakeOptions(
      MapOf({{"cifar", ""}, {"classes", 10}, {"rate", 0.5}, {"fast", false}, {"sizes", Ints({3})}}),
      "net.lua:2");
  EXPECT_EQ(options["classes"], Value(100));
  EXPECT_EQ(options["cifar"], Value("7"));
  EXPECT_EQ(options["rate"], Value(1));
  EXPECT_EQ(options["fast"], Value(true));
  EXPECT_EQ(options["sizes"], Ints({1, 2}));
  flags.CheckAllTaken();
}

TEST(TakeOptions, ListsOfOneAndNone) {
  Flags flags = Parse({"--sizes=5", "--names="});
  const Value options =
      flags.TakeOptions(MapOf({{"sizes", Ints({3})}, {"names", Value::List{"a"}}}), "");
  EXPECT_EQ(options["sizes"], Ints({5}));
  EXPECT_EQ(options["names"], Value(Value::List{}));
}

TEST(TakeOptions, BooleansTurnOff) {
  Flags flags = Parse({"--no-shuffle"});
  EXPECT_EQ(flags.TakeOptions(MapOf({{"shuffle", true}}), "")["shuffle"], Value(false));
  flags.CheckAllTaken();
}

TEST(TakeOptions, SeveralCallsShareTheFlags) {
  Flags flags = Parse({"--a=1", "--b=2"});
  EXPECT_EQ(flags.TakeOptions(MapOf({{"a", 0}}), "")["a"], Value(1));
  EXPECT_THAT(ErrorOf([&] { flags.CheckAllTaken(); }), HasSubstr("there is no flag --b"));
  EXPECT_EQ(flags.TakeOptions(MapOf({{"b", 0}}), "")["b"], Value(2));
  flags.CheckAllTaken();
}

TEST(TakeOptions, TheLastOfEqualsHolds) {
  Flags flags = Parse({"--classes=1", "--classes=2"});
  EXPECT_EQ(flags.TakeOptions(MapOf({{"classes", 0}}), "")["classes"], Value(2));
}

TEST(TakeOptions, DashesMeanUnderscores) {
  Flags flags = Parse({"--hidden-size=5"});
  EXPECT_EQ(flags.TakeOptions(MapOf({{"hidden_size", 3}}), "")["hidden_size"], Value(5));
  flags.CheckAllTaken();
}

TEST(TakeOptions, LayersMayBeAnOption) {
  Flags flags = Parse({"--layers=12"});
  EXPECT_EQ(flags.TakeOptions(MapOf({{"layers", 8}}), "")["layers"], Value(12));
  flags.CheckAllTaken();
}

TEST(TakeOptions, NothingIsAskedForByAnEmptyTable) {
  Flags flags = Parse({"--classes=1"});
  EXPECT_EQ(flags.TakeOptions(Value::List{}, ""), Value::MakeMap());
  EXPECT_NE(ErrorOf([&] { flags.CheckAllTaken(); }), "");
}

TEST(TakeOptions, Errors) {
  const auto error = [](const std::vector<std::string>& arguments, const Value::Map& defaults) {
    return ErrorOf([&] {
      Flags flags = Parse(arguments);
      flags.TakeOptions(Value::MakeMap(defaults), "net.lua:2");
      flags.CheckAllTaken();
    });
  };
  EXPECT_EQ(error({"--classes=ten"}, {{"classes", 10}}),
            "the command line: classes expects a number; got the string \"ten\"");
  EXPECT_EQ(error({"--classes"}, {{"classes", 10}}),
            "the command line: --classes needs a value: a number");
  EXPECT_EQ(error({"--fast=5"}, {{"fast", false}}),
            "the command line: fast expects true or false; got the string \"5\"");
  EXPECT_EQ(error({"--clases=5"}, {{"classes", 10}}),
            "there is no flag --clases; did you mean \"classes\"?");
  EXPECT_EQ(error({}, {{"steps", 10}}),
            "net.lua:2: strata.options: \"steps\" is a flag of the job or the command already; "
            "choose another name");
  EXPECT_THAT(error({}, {{"json", true}}),
              HasSubstr("\"json\" is a flag of the job or the command"));
  EXPECT_EQ(error({}, {{"f", Function("net.lua:2")}}),
            "net.lua:2: strata.options: the default of \"f\" must be true or false, a number, a "
            "string or a list; got a function (net.lua:2)");
  EXPECT_THAT(error({}, {{"t", MapOf({{"a", 1}})}}), HasSubstr("the default of \"t\" must be"));
  EXPECT_EQ(ErrorOf([&] { Parse({}).TakeOptions(Value::List{"count"}, "net.lua:2"); }),
            "net.lua:2: strata.options takes names with defaults, {name=default, ...}; got the "
            "string \"count\" without a name");
}

// ---- properties ----

RC_GTEST_PROP(Flags, FormsAgree, ()) {
  const auto paths = JobFieldPaths();
  const auto path = *rc::gen::elementOf(paths);
  const auto text = *rc::gen::element<std::string>("1", "0.5", "abc", "1,2", "true", "none", "cpu");
  if (!FindJobField(path)->flag_value.is_null()) return;  // such a flag's value needs the "="
  const std::string joined = ErrorOf([&] { Parse({"--" + path + "=" + text}); });
  const std::string apart = ErrorOf([&] { Parse({"--" + path, text}); });
  const bool boolean = FindJobField(path)->kind == FieldKind::kBool;
  if (boolean && text != "true") return;  // a boolean flag does not take other texts as its value
  RC_ASSERT(joined == apart);
  if (joined.empty()) {
    RC_ASSERT(Parse({"--" + path + "=" + text}).job() == Parse({"--" + path, text}).job());
  }
}

RC_GTEST_PROP(Flags, NoArgumentsCrash, (const std::vector<std::string>& arguments)) {
  ErrorOf([&] { Parse(arguments).CheckAllTaken(); });
}

RC_GTEST_PROP(Flags, EveryIntegerArrives, ()) {
  const int steps = *rc::gen::inRange(1, 1 << 30);
  RC_ASSERT(Parse({"--steps=" + std::to_string(steps)}).job() == MapOf({{"steps", steps}}));
}

}  // namespace
}  // namespace strata
