// Tests how the columns of tables become numbers, and that errors name file, line and column.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"
#include "engine/job/table_encoding.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

class CsvTest : public DatasetTest {
 protected:
  std::unique_ptr<Dataset> OpenTable(const std::string& text, Value::Map options = {}) {
    options.emplace_back("path", Write("a.csv", text));
    return OpenDataset(SpecOf(MakeDataSource("csv", {}, options, "net.lua:9"), context_), context_);
  }
  std::string ErrorOfTable(const std::string& text, const Value::Map& options = {}) {
    const std::string error = strata::ErrorOf([&] { OpenTable(text, options); });
    EXPECT_THAT(error, HasSubstr("a.csv")) << error;
    return error.substr(std::min(error.find("a.csv"), error.size()));
  }
};

constexpr char kHouses[] =
    "rooms,city,price\n"
    "2,Rome,10.5\n"
    "4,\"Paris, F\",30\n"
    "3,Rome,20\n";

TEST_F(CsvTest, NumbersAndWordsBecomeAVector) {
  const auto houses = OpenTable(kHouses);
  EXPECT_EQ(houses->size(), 3);
  EXPECT_EQ(houses->input().ToString(), "float32 (3,)");
  EXPECT_EQ(houses->target().ToString(), "float32 (1,)");
  EXPECT_EQ(houses->classes(), 0);
  EXPECT_THAT(Floats(*houses, 0), ElementsAre(2, 0, 1));
  EXPECT_THAT(Floats(*houses, 1), ElementsAre(4, 1, 0));
  float price = 0;
  houses->Read(2, nullptr, reinterpret_cast<std::byte*>(&price));
  EXPECT_EQ(price, 20);
}

TEST_F(CsvTest, WordsAsTargetsAreClasses) {
  const auto houses = OpenTable(kHouses, {{"target", "city"}, {"normalise", true}});
  EXPECT_EQ(houses->target().ToString(), "int64 ()");
  EXPECT_EQ(houses->classes(), 2);
  EXPECT_EQ(Ints(*houses, 0, true), (std::vector<int64_t>{1}));
  // The numbers of rooms have the mean 3 and the deviation sqrt(2/3).
  EXPECT_THAT(Floats(*houses, 0)[0], FloatEq(-1.2247449f));
  EXPECT_THAT(Floats(*houses, 2)[0], FloatEq(0));
}

TEST_F(CsvTest, ColumnsAreChosenByName) {
  const auto rooms = OpenTable(kHouses, {{"columns", Value::List{"rooms"}}});
  EXPECT_EQ(rooms->input().ToString(), "float32 (1,)");
  EXPECT_THAT(ErrorOfTable(kHouses, {{"columns", Value::List{"room"}}}),
              AllOf(HasSubstr("no column \"room\""), HasSubstr("did you mean \"rooms\"?")));
  EXPECT_THAT(ErrorOfTable(kHouses, {{"target", "prize"}}), HasSubstr("did you mean \"price\"?"));
}

TEST_F(CsvTest, WholeNumbersAreClassesWhereTheTaskSaysSo) {
  const std::string table = "x,y\n1,0\n2,2\n";
  EXPECT_EQ(OpenTable(table)->classes(), 0);
  EXPECT_EQ(OpenTable(table, {{"task", "classes"}})->classes(), 3);
  EXPECT_THAT(ErrorOfTable("x,y\n1,0.5\n", {{"task", "classes"}}), HasSubstr("are no classes"));
  EXPECT_THAT(ErrorOfTable("x,y\n1,a\n", {{"task", "numbers"}}), HasSubstr("is no number"));
}

TEST_F(CsvTest, MissingValuesAreTheMeanWhereThatIsAskedFor) {
  const std::string table = "x,city,y\n1,Rome,1\nNA,,1\n4,Paris,1\n";
  EXPECT_EQ(ErrorOfTable(table),
            "a.csv:3:1: column \"x\" has no value; missing=\"mean\" takes the column's mean");
  const auto filled = OpenTable(table, {{"missing", "mean"}});
  EXPECT_THAT(Floats(*filled, 1), ElementsAre(2.5, 0, 0));
  EXPECT_EQ(ErrorOfTable("x,y\n1,\n2,3\n", {{"missing", "mean"}}),
            "a.csv:2:3: column \"y\", the target, has no value");
}

TEST_F(CsvTest, TestDataIsSeenAsTheTrainingWas) {
  const std::string training = Write("train.csv", kHouses);
  const std::string test = "rooms,city,price\n5,Rome,1\n";
  const auto houses = OpenTable(test, {{"like", training}, {"normalise", true}});
  EXPECT_EQ(houses->input().ToString(), "float32 (3,)");
  EXPECT_THAT(Floats(*houses, 0), ElementsAre(FloatEq(2.4494898f), 0, 1));
  EXPECT_EQ(ErrorOfTable("rooms,city,price\n5,Roma,1\n", {{"like", training}}),
            "a.csv:2:3: column \"city\": the training has no \"Roma\"; did you mean \"Rome\"?; "
            "unknown=\"none\" takes it for no word");
  EXPECT_THAT(ErrorOfTable("rooms,price\n5,1\n", {{"like", training}}),
              HasSubstr("expected the columns of"));
}

TEST_F(CsvTest, EncodingsAreOfWhatTheNumbersDependOn) {
  const auto encoding = [&](const char* rows, const Value::Map& options) {
    return OpenTable(Str("a,y\n", rows), options)->encoding();
  };
  const auto alike = [&](const char* ours, const char* theirs, const Value::Map& options) {
    return !HasOtherNumbers(encoding(ours, options), encoding(theirs, options));
  };
  const char *one = "1,0\n3,0\n", *moved = "2,0\n4,0\n", *wider = "0,0\n4,0\n";
  EXPECT_TRUE(alike(one, moved, {})) << "numbers stay as they are";
  const Value::Map fills = {{"missing", "mean"}}, scales = {{"normalise", true}};
  const char *gap = "1,0\n3,0\nNA,0\n", *moved_gap = "2,0\n4,0\nNA,0\n";
  EXPECT_TRUE(alike(one, moved, fills)) << "nothing is filled in";
  EXPECT_TRUE(alike(gap, moved, fills)) << "nor here";
  EXPECT_FALSE(alike(gap, moved_gap, fills));
  EXPECT_FALSE(alike(one, moved_gap, fills)) << "the training's mean holds, though it needs none";
  EXPECT_TRUE(HasOtherNumbers(encoding(one, {}), encoding(moved_gap, fills)));
  EXPECT_TRUE(alike(gap, "0,0\n4,0\nNA,0\n", fills));
  EXPECT_TRUE(alike(one, gap, fills));
  EXPECT_TRUE(alike("0.1,0\n0.2,0\n0.7,0\n", "0.7,0\n0.2,0\n0.1,0\n", scales))
      << "in whatever order the rows come";
  EXPECT_FALSE(alike(one, moved, scales));
  EXPECT_FALSE(alike(one, wider, scales));
  EXPECT_TRUE(HasOtherNumbers(encoding(one, scales), encoding(one, {})));
  EXPECT_FALSE(alike("red,0\n", "blue,0\n", {}));
  EXPECT_FALSE(alike("caf\xe9,0\n", "caf\xe8,0\n", {})) << "as Latin-1 has them";
  EXPECT_FALSE(alike(one, "red,0\n", {}));
  EXPECT_FALSE(alike("red,0\n", one, {}));
}

TEST_F(CsvTest, MeansOfTheTrainingFillTheTestData) {
  const Value::Map training = {{"like", Write("train.csv", "a,y\n1,0\n3,0\n")},
                               {"missing", "mean"}};
  const auto test = OpenTable("a,y\n9,0\nNA,0\n", training);
  EXPECT_THAT(Floats(*test, 1), ElementsAre(2));
  EXPECT_FALSE(HasOtherNumbers(OpenTable("a,y\n1,0\n3,0\n")->encoding(), test->encoding()));
}

TEST_F(CsvTest, NotesSayWhichWordsBecameNumbers) {
  EXPECT_THAT(OpenTable("a,y\n1,cat\n2,dog\n")->notes(), ElementsAre()) << "classes are wanted";
  const auto table = OpenTable(
      "day,price,a,y\n2024-01-02,\"1,000\",1,2\n2024-01-03,\"2,000\",1,2\n"
      "2024-01-03,\"3,000\",1,2\n");
  EXPECT_THAT(table->notes(),
              ElementsAre(AllOf(HasSubstr("a.csv\" become a number of 0 or 1 each: "
                                          "\"price\" (3 words, as \"1,000\"), \"day\" (2 words, as "
                                          "\"2024-01-02\")"))));
  std::string names = "y", cells = "1";
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    names += Str(",", name);
    cells += ",word";
  }
  const auto wide = OpenTable(Str(names, "\n", cells, "\n"), {{"target", "y"}});
  EXPECT_THAT(wide->notes(), ElementsAre(testing::EndsWith("\"e\" (1 word, as \"word\"), ...")));
}

TEST_F(CsvTest, ANoteTellsOfTexts) {
  const auto notes = [&](int rows, int texts) {
    std::string table = "a,text,y\n";
    for (int i = 0; i < rows; ++i) table += Str("red,text ", i % texts, ",1\n");
    return OpenTable(table)->notes();
  };
  EXPECT_THAT(notes(40, 21),
              ElementsAre(HasSubstr("\"text\" (21 words"),
                          HasSubstr("a word of its own in \"text\": texts are read by "
                                    "strata.data.jsonl{text=, target=, length=}; columns=")));
  EXPECT_THAT(notes(42, 21), testing::SizeIs(1)) << "half of the rows";
  EXPECT_THAT(notes(20, 20), testing::SizeIs(1)) << "a small table";
}

TEST_F(CsvTest, UnknownWordsOfAnInputAreNoneWhereThatIsAskedFor) {
  const Value::Map options = {{"like", Write("train.csv", kHouses)}, {"unknown", "none"}};
  const auto houses = OpenTable("rooms,city,price\n5,Oslo,1\n6,Rome,2\n", options);
  EXPECT_THAT(Floats(*houses, 0), ElementsAre(5, 0, 0));
  EXPECT_THAT(Floats(*houses, 1), ElementsAre(6, 0, 1));
  Value::Map city = options;
  city.emplace_back("target", "city");
  EXPECT_THAT(ErrorOfTable("rooms,city,price\n5,Oslo,1\n", city),
              HasSubstr("the training has no \"Oslo\""))
      << "a class";
}

TEST_F(CsvTest, ATableToBePredictedHasNoTarget) {
  const std::string training = Write("train.csv", kHouses);
  const Value::Map options = {{"like", training}, {"targets", false}, {"target", "city"}};
  for (const char* test :
       {"price,rooms\n1,5\n", "rooms,price\n5,1\n", "rooms,city,price\n5,?,1\n"}) {
    const auto houses = OpenTable(test, options);
    EXPECT_THAT(Floats(*houses, 0), ElementsAre(5, 1)) << test;
    EXPECT_FALSE(houses->has_targets());
    EXPECT_EQ(houses->classes(), 2);
    EXPECT_THAT(houses->class_names(), ElementsAre("Paris, F", "Rome"));
    EXPECT_EQ(Ints(*houses, 0, true), (std::vector<int64_t>{0}));
  }
  EXPECT_THAT(ErrorOfTable("rooms\n5\n", options), HasSubstr("no column \"price\""));
  EXPECT_EQ(OpenTable("x,y\n1,2\n", {{"targets", false}})->input().ToString(), "float32 (2,)");
  const Value::Map alone = {{"targets", false}, {"target", "y"}};
  EXPECT_THAT(Floats(*OpenTable("x,y\n1,2\n", alone), 0), ElementsAre(1)) << "y is no input";
  EXPECT_THAT(Floats(*OpenTable("x\n1\n", alone), 0), ElementsAre(1)) << "nor must it be there";
}

TEST_F(CsvTest, NamesThePlaceOfWhatIsWrong) {
  EXPECT_EQ(ErrorOfTable("x,y\n1,2\n3\n"),
            "a.csv:3: expected 2 cells, as in the first line, got 1");
  EXPECT_EQ(ErrorOfTable("x,y\n1,2\n3,4,5\n"),
            "a.csv:3: expected 2 cells, as in the first line, got 3");
  EXPECT_EQ(ErrorOfTable("x,y\n1,2\n1o,3\n4,4\n"),
            "a.csv:3:1: column \"x\": \"1o\" is no number, as the column's other cells are");
  EXPECT_EQ(ErrorOfTable("1,2\n3,4\n"),
            "a.csv:1: expected the columns' names, got numbers; header=true if these are names, "
            "header=false if they are a row");
  EXPECT_EQ(OpenTable("1,2\n3,4\n", {{"header", false}, {"target", "1"}})->size(), 2);
  EXPECT_THAT(ErrorOfTable("5.1,3.5,setosa\n4.9,3.0,setosa\n"), HasSubstr("got numbers"));
  EXPECT_EQ(ErrorOfTable("x,y\n"), "a.csv: column \"x\" has no values");
  EXPECT_EQ(ErrorOfTable(""), "a.csv: expected a table, got an empty file");
  EXPECT_THAT(ErrorOfTable("x,y\n1,inf\n2,3\n4,5\n"), HasSubstr("is no number"));
}

TEST_F(CsvTest, NamesMayBeNumbersWhereSomebodySaysSo) {
  const Value::Map named = {{"header", true}, {"target", 2020}};
  const auto table = OpenTable("country,2019,2020\nno,1,2\nse,3,4\n", named);
  EXPECT_EQ(table->size(), 2);
  EXPECT_THAT(table->description(), HasSubstr("-> 2020"));
  const auto encoding = [&](const char* text, const Value::Map& options) {
    return OpenTable(text, options)->encoding();
  };
  EXPECT_NE(encoding("0,1\n1,2\n", {{"header", true}}), encoding("5,1\n1,2\n", {{"header", true}}))
      << "columns of other names";
  EXPECT_EQ(encoding("x,y\n1,2\n", {{"header", true}}), encoding("x,y\n1,2\n", {}));
}

TEST_F(CsvTest, ColumnsOfOneNameAreRefused) {
  EXPECT_EQ(ErrorOfTable("x,y, x,z\n1,2,3,4\n"),
            "a.csv:1:5: the name \"x\" is that of column 1, too; columns need names of their own");
  EXPECT_EQ(OpenTable("1,1\n2,2\n", {{"header", false}})->size(), 2);
}

TEST_F(CsvTest, NumbersThatNoFloatHoldsAreRefused) {
  for (const char* number : {"1e39", "-1e39", "1e308", "1e999", "-1e999"}) {
    const std::string expected = Str(": expected a number that float32 holds, got ", number);
    EXPECT_EQ(ErrorOfTable(Str("x,y\n1,2\n", number, ",3\n")),
              Str("a.csv:3:1: column \"x\"", expected));
    EXPECT_EQ(ErrorOfTable(Str("x,y\n1,2\n1,", number, "\n")),
              Str("a.csv:3:3: column \"y\"", expected));
  }
  EXPECT_THAT(Floats(*OpenTable("x,y\n3.4028235e+38,0\n-3.4e38,0\n1e-50,0\n1e-999,0\n"), 0),
              ElementsAre(std::numeric_limits<float>::max()));
  EXPECT_THAT(ErrorOfTable("x,y\n1e300,1\n2,1\n", {{"normalise", true}}),
              HasSubstr("a number that float32 holds"));
  // The scheme comes from the training file, which does not have the large number of the test file.
  const std::string training = Write("train.csv", "x,y\n1e-30,1\n2e-30,1\n");
  for (const char* number : {"1e39", "3e38"}) {
    EXPECT_EQ(ErrorOfTable(Str("x,y\n", number, ",1\n"), {{"like", training}, {"normalise", true}}),
              Str("a.csv:2:1: column \"x\": expected a number that float32 holds, got ", number));
  }
  // In a column of words such a number is a word.
  EXPECT_EQ(OpenTable("id,y\na,1\nb,1\n1e39,1\n")->input().shape[0], 3);
}

TEST_F(CsvTest, AFileOfOneColumnNamesTheSeparator) {
  EXPECT_EQ(ErrorOfTable("x;y\n1;2\n"),
            "a.csv: there is no column beside the target: the file has one column, \"x;y\", with "
            "separator=\",\"; separator=\";\" may be meant");
  EXPECT_EQ(ErrorOfTable("x;y\n1;2\n", {{"target", "y"}}),
            "a.csv: there is no column \"y\": the file has one column, \"x;y\", with "
            "separator=\",\"; separator=\";\" may be meant");
  EXPECT_THAT(ErrorOfTable("x,y\n1,2\n", {{"separator", "tab"}}),
              HasSubstr("\"x,y\", with separator=\"tab\"; separator=\",\" may be meant"));
  EXPECT_THAT(ErrorOfTable("x\ty\n1\t2\n"), HasSubstr("; separator=\"tab\" may be meant"));
  EXPECT_THAT(ErrorOfTable("x\n1\n"), HasSubstr("the file has one column, \"x\""));
  EXPECT_THAT(ErrorOfTable("1;2\n", {{"header", false}}), HasSubstr("the file has one column"));
  EXPECT_THAT(strata::ErrorOf([&] {
                OpenTable("x,y\n1,2\n", {{"columns", Value::List{}}});
              }),
              HasSubstr("expects a list of names"));
}

TEST_F(CsvTest, OtherSeparators) {
  EXPECT_EQ(OpenTable("x\ty\n1\t2\n", {{"separator", "tab"}})->size(), 1);
  EXPECT_EQ(OpenTable("x;y\n1;2\n", {{"separator", ";"}})->size(), 1);
  // Without the option the separator follows from the ending of each file.
  const Value::Map tabs = {{"path", Write("new.tsv", "x\tcity\n1\tParis, F\n")},
                           {"like", Write("train.csv", "x,city,y\n1,\"Paris, F\",2\n")},
                           {"targets", false}};
  const auto table = OpenDataset(SpecOf(MakeDataSource("csv", {}, tabs, ""), context_), context_);
  EXPECT_THAT(Floats(*table, 0), ElementsAre(1, 1));
}

}  // namespace
}  // namespace strata
