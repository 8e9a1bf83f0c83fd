// Tests that records of all formats are read alike. people.jsonl and the files beside it, which
// pyarrow and Python's tarfile wrote, have the same ten records, so all sources give equal samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <thread>

#include "engine/base/testing.h"
#include "engine/data/files/image_file.h"
#include "engine/data/records/record_files.h"
#include "engine/data/sample_order.h"
#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Form {
  const char* source;
  const char* file;
};

constexpr Form kForms[] = {{"parquet", "people.parquet"},
                           {"arrow", "people.stream.arrow"},
                           {"arrow", "people.file.arrow"},
                           {"webdataset", "people.tar"}};

class RecordsTest : public DatasetTest {
 protected:
  static std::string People(const std::string& file) { return TestData("records/" + file); }
  std::unique_ptr<Dataset> OpenPeople(const Form& form, Value::Map named) {
    // A tar has the text and the label as files of their own.
    for (auto& [name, value] : named) {
      if (form.source != std::string("webdataset") || !value.is_string()) continue;
      if (value == Value("text")) value = "txt";
      if (value == Value("label")) value = "cls";
    }
    Value::Map all = {{"path", People(form.file)}};
    all.insert(all.end(), named.begin(), named.end());
    return OpenDataset(SpecOf(MakeDataSource(form.source, {}, all, "net.lua:9"), context_),
                       context_);
  }
  static std::vector<std::vector<std::byte>> Samples(const Dataset& data) {
    std::vector<std::vector<std::byte>> samples;
    for (int64_t i = 0; i < data.size(); ++i) samples.push_back(BytesOfSample(data, i));
    return samples;
  }
  std::string Error(const Form& form, const Value::Map& named) {
    return strata::ErrorOf([&] { Samples(*OpenPeople(form, named)); });
  }
  std::string Copy(const std::string& from, const std::string& to) {
    return Write(to, Content(People(from)));
  }
};

TEST_F(RecordsTest, EveryFormatGivesTheSamplesOfJsonLines) {
  const std::vector<Value::Map> options = {
      {{"text", "text"}, {"length", 7}},
      {{"text", "text"}, {"length", 9}, {"target", "label"}},
      {{"text", "text"}, {"length", 9}, {"target", "word"}},
      {{"text", "text"}, {"length", 9}, {"target", "score"}, {"task", "numbers"}},
      {{"tokens", "tokens"}, {"length", 6}},
      {{"tokens", "tokens"}, {"length", 6}, {"target", "word"}, {"pad", 3}},
      {{"columns", Value::List{"score", "point"}}, {"target", "word"}},
      {{"columns", Value::List{"point"}}, {"target", "score"}, {"task", "numbers"}},
      {{"columns", Value::List{"score"}}}};
  for (const Value::Map& named : options) {
    const auto expected = OpenPeople({"jsonl", "people.jsonl"}, named);
    for (const Form& form : kForms) {
      SCOPED_TRACE(Str(form.file, Value::MakeMap(named).ToLua()));
      const auto data = OpenPeople(form, named);
      EXPECT_EQ(Samples(*data), Samples(*expected));
      EXPECT_EQ(data->class_names(), expected->class_names());
      EXPECT_EQ(data->classes(), expected->classes());
      EXPECT_EQ(data->inputs(), expected->inputs());
    }
  }
}

TEST_F(RecordsTest, ColumnsAndLabelsAreThoseOfTheRecord) {
  const auto data =
      OpenPeople(kForms[0], {{"columns", Value::List{"score", "point"}}, {"target", "word"}});
  EXPECT_EQ(Floats(*data, 3), (std::vector<float>{-0.25, 1.5, -1.5, 9}));
  EXPECT_EQ(Ints(*data, 3, true), std::vector<int64_t>{2}) << "blue, green, red";
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"blue", "green", "red"}));
  const auto without = OpenPeople(kForms[0], {{"columns", Value::List{"score", "point"}},
                                              {"target", "gone"},
                                              {"task", "numbers"},
                                              {"targets", false},
                                              {"like", People("people.parquet")}});
  EXPECT_EQ(Floats(*without, 3), Floats(*data, 3)) << "predictions need no target";
}

TEST_F(RecordsTest, ChatsAndPackedTextsOfEveryFormatAreThoseOfJsonLines) {
  const auto chat = [&](const std::string& file) {
    return MakeDataSource("chat", {},
                          {{"path", People(file)},
                           {"template", "chatml"},
                           {"tokenizer", Write("t.json", ChatTokenizer())},
                           {"length", 30}},
                          "net.lua:9");
  };
  const auto packed = [&](const Value& source) {
    return MakeDataStep("pack", source, {}, {{"length", 200}}, "net.lua:9");
  };
  const auto samples = [&](const Value& source) {
    return Samples(*OpenDataset(SpecOf(source, context_), context_));
  };
  const auto expected = samples(chat("people.jsonl"));
  const auto expected_packed = samples(packed(chat("people.jsonl")));
  for (const Form& form : kForms) {
    EXPECT_EQ(samples(chat(form.file)), expected) << form.file;
    EXPECT_EQ(samples(packed(chat(form.file))), expected_packed) << form.file;
    const auto tokens = [&](const Form& of) {
      return MakeDataSource(of.source, {}, {{"path", People(of.file)}, {"tokens", "tokens"}},
                            "net.lua:9");
    };
    EXPECT_EQ(samples(packed(tokens(form))), samples(packed(tokens({"jsonl", "people.jsonl"}))))
        << form.file;
  }
}

TEST_F(RecordsTest, ImagesAreDecodedInAnyOrder) {
  std::vector<std::vector<float>> expected;
  for (const char* name : {"picture.jpg", "picture.png"}) {
    expected.emplace_back(3 * 8 * 8);
    const data::Image image = data::DecodeImage(Content(TestData(name)), 3, 8, name);
    data::ResizeToPlanes(image, 8, 8, true, expected.back().data());
  }
  for (const Form& form : kForms) {
    const bool is_tar = form.source == std::string("webdataset");
    const auto data = OpenPeople(
        form,
        {{"image", is_tar ? "jpg;png" : "image"}, {"size", 8}, {"target", "label"}, {"window", 5}});
    ASSERT_EQ(data->size(), 10) << form.file;
    const auto read = [&](int64_t first) {
      for (int64_t k = 0; k < 10; ++k) {
        const int64_t i = (first + 7 * k) % 10;
        EXPECT_EQ(Floats(*data, i), expected[static_cast<size_t>(i % 2)]) << form.file << i;
        EXPECT_EQ(Ints(*data, i, true), std::vector<int64_t>{i % 4}) << form.file << i;
      }
    };
    std::thread other(read, 3);
    read(0);
    other.join();
  }
}

TEST_F(RecordsTest, ImagesThatAreDecodedTogetherCallForAWindow) {
  Value::Map options = {{"image", "image"}, {"size", 8}, {"target", "label"}};
  EXPECT_THAT(OpenPeople(kForms[0], options)->notes(),
              testing::ElementsAre(
                  HasSubstr("10 images of 8x8 of engine/data/testdata/records/people.parquet are "
                            "decoded up to 4 rows at once, for each sample of a shuffled "
                            "epoch; window=64 shuffles")));
  EXPECT_EQ(OpenPeople(kForms[1], options)->notes(), std::vector<std::string>()) << "not decoded";
  EXPECT_EQ(OpenPeople(kForms[2], options)->notes().size(), 1) << "compressed";
  options.emplace_back("window", 64);
  EXPECT_EQ(OpenPeople(kForms[0], options)->notes(), std::vector<std::string>());
}

TEST_F(RecordsTest, FilesOfAFolderAndOfAPatternFollowEachOtherByName) {
  for (const char* name : {"d/b-2.parquet", "d/a.parquet", "d/b-1.parquet"}) {
    Copy("people.parquet", name);
  }
  Write("d/state.json", "{}");
  const auto rows = [&](const std::string& path) {
    return OpenDataset(SpecOf(MakeDataSource("parquet", {},
                                             {{"path", (folder_ / path).string()},
                                              {"columns", Value::List{"score"}}},
                                             "net.lua:9"),
                              context_),
                       context_);
  };
  EXPECT_EQ(rows("d")->size(), 30);
  EXPECT_EQ(rows("d/b-*.parquet")->size(), 20);
  EXPECT_EQ(Floats(*rows("d"), 13), Floats(*rows("d/a.parquet"), 3));
  EXPECT_THAT(strata::ErrorOf([&] { rows("d/c*"); }),
              HasSubstr("d/c*: expected files as \"*.parquet\""));
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "d");
  EXPECT_EQ(data::FindRecords("parquet", "b-*", {}).paths,
            (std::vector<std::string>{"./b-1.parquet", "./b-2.parquet"}));
  fs::current_path(before);
  for (const char* path : {"d/b-{1..2}.parquet", "*/b-*.parquet"}) {
    EXPECT_THAT(strata::ErrorOf([&] { rows(path); }),
                HasSubstr("several files are a folder, or a path whose last part has \"*\""));
  }
  fs::create_symlink("nowhere", folder_ / "d/c.parquet");
  EXPECT_THAT(strata::ErrorOf([&] { rows("d"); }), HasSubstr("d/c.parquet"));
  Copy("people.tar", "d/a.tar");
  EXPECT_THAT(
      ErrorOf("chat",
              MakeDataSource(
                  "chat", {},
                  {{"path", (folder_ / "d").string()}, {"template", "chatml"}, {"length", 9}}, "")),
      HasSubstr("has files of several formats"));
}

TEST_F(RecordsTest, OfASavedDataSetTheFilesOfItsStateAreRead) {
  for (const char* name : {"d/train/data-0.arrow", "d/train/data-1.arrow",
                           "d/train/cache-1f.arrow"}) {  // as map() leaves
    Copy("people.stream.arrow", name);
  }
  Write("d/train/state.json",
        R"({"_data_files": [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}]})");
  const std::string all = (folder_ / "d").string(), train = all + "/train";
  for (const char* format : {"arrow", ""}) {
    EXPECT_THAT(data::FindRecords(format, train, context_).paths,
                testing::ElementsAre(train + "/data-1.arrow", train + "/data-0.arrow"));
    EXPECT_THAT(strata::ErrorOf([&] { data::FindRecords(format, all, context_); }),
                HasSubstr("got none; the folder " + train + " has some"));
  }
}

TEST_F(RecordsTest, ViewsOfTextsAndBytesAreRead) {
  const auto data =
      OpenPeople({"arrow", "views.arrow"}, {{"image", "image"}, {"size", 8}, {"target", "word"}});
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"a word that lies elsewhere", "short"}));
  EXPECT_EQ(Ints(*data, 1, true), std::vector<int64_t>{0});
  EXPECT_EQ(Floats(*data, 1), Floats(*OpenPeople(kForms[0], {{"image", "image"}, {"size", 8}}), 1));
}

TEST_F(RecordsTest, APartOfDataWithAWindowKeepsItsOrder) {
  const auto part = [&](Value::Map options) {
    options.insert(options.end(),
                   {{"path", People("people.parquet")}, {"columns", Value::List{"score"}}});
    const Value source = MakeDataSource("parquet", {}, options, "");
    const auto data = OpenDataset(
        SpecOf(MakeDataStep("part", source, {}, {{"begin", 0}, {"end", 7}, {"seed", 1}}, ""),
               context_),
        context_);
    std::vector<float> scores;
    for (int64_t i = 0; i < data->size(); ++i) scores.push_back(Floats(*data, i)[0]);
    return scores;
  };
  std::vector<float> expected = part({});
  EXPECT_FALSE(std::ranges::is_sorted(expected));
  std::ranges::sort(expected);
  EXPECT_EQ(part({{"window", 4}}), expected);
}

/// The number of blocks that are decoded in an epoch, if the last ones are kept.
int64_t Decoded(int64_t size, int64_t window, int64_t rows_at_once) {
  const SampleOrder order = SampleOrder::Windowed(size, window, 7);
  const size_t most = data::BlocksOfWindow(window, rows_at_once);
  std::list<int64_t> kept;
  int64_t decoded = 0;
  for (int64_t place = 0; place < size; ++place) {
    const int64_t block = order[place] / rows_at_once;
    const auto found = std::ranges::find(kept, block);
    decoded += found == kept.end();
    if (found != kept.end()) kept.erase(found);
    kept.push_front(block);
    if (kept.size() > most) kept.pop_back();
  }
  return decoded;
}

TEST_F(RecordsTest, AWindowDecodesBlocksAboutOnceForEachRun) {
  constexpr int64_t kSize = 50'000;
  for (const int64_t rows_at_once : {100, 1000}) {
    for (const int64_t window : {160, 1600, 10'000, 16'000, 40'000}) {
      const int64_t runs = kSize / (window / SampleOrder::kRuns), blocks = kSize / rows_at_once;
      EXPECT_LE(Decoded(kSize, window, rows_at_once), (runs + blocks) * 11 / 10)
          << window << " " << rows_at_once;
    }
  }
}

TEST_F(RecordsTest, ErrorsNameTheFileTheRecordAndTheNearestName) {
  const Form parquet = kForms[0], stream = kForms[1], tar = kForms[3];
  const struct {
    Form form;
    Value::Map options;
    const char* says;
  } cases[] = {
      {parquet,
       {{"text", "txet"}, {"length", 4}},
       "people.parquet: there is no column \"txet\"; did you mean \"text\"?"},
      {stream,
       {{"text", "label"}, {"length", 4}},
       "people.stream.arrow: row 0: \"label\" expects a text, got the number 0"},
      {parquet,
       {{"text", "hole"}, {"length", 4}},
       "people.parquet: row 5: \"hole\" expects a text, got nothing"},
      {parquet,
       {{"text", "when"}, {"length", 4}},
       "people.parquet: the column \"when\" has the type timestamp[us]; expected texts, numbers"},
      {parquet,
       {{"tokens", "point"}, {"length", 4}},
       "people.parquet: row 0: \"point\" expects a list of tokens, whole numbers from 0 on; got "
       "the "
       "number -1.5"},
      {parquet,
       {{"columns", Value::List{"text"}}},
       "people.parquet: row 0: \"text\" expects a finite number, got the string"},
      {parquet,
       {{"columns", Value::List{"tokens"}}},
       "people.parquet: row 1: \"tokens\" expects a list of 3, as the first record has"},
      {parquet,
       {{"columns", Value::List{"score"}}, {"target", "score"}},
       "people.parquet: row 0: \"score\" expects a class, words everywhere or whole numbers from 0 "
       "on (task=\"numbers\" takes any number); got the number -1"},
      {parquet,
       {{"columns", Value::List{"score"}}, {"target", "word"}, {"task", "numbers"}},
       "row 0: \"word\" expects a number, got the string \"red\""},
      {parquet,
       {{"image", "text"}, {"size", 4}},
       "people.parquet: the column \"text\" has the type string; expected images as binary"},
      {{"parquet", "hole.parquet"},
       {{"image", "image"}, {"size", 4}},
       "hole.parquet: row 1: \"image\" expects the bytes of an image, got nothing"},
      {{"parquet", "twice.parquet"},
       {{"columns", Value::List{"a"}}},
       "twice.parquet: no whole Parquet file: two columns have the name \"a\""},
      {{"arrow", "coded.stream.arrow"},
       {{"text", "word"}, {"length", 4}},
       "coded.stream.arrow: no whole Arrow stream: dictionary-encoded columns are read from files"},
      {{"parquet", "nothing.parquet"},
       {{"image", "image"}, {"size", 4}},
       "nothing.parquet: expected images in \"image\", but the file has more rows than bytes"},
      {{"parquet", "wrong.parquet"},
       {{"image", "image"}, {"size", 4}},
       "wrong.parquet: row 0: \"image\" expects the bytes of an image, got nothing; paths are not "
       "followed, but Hugging Face's save_to_disk() writes the images themselves"},
      {{"parquet", "wrong.parquet"},
       {{"text", "text"}, {"length", 4}},
       "wrong.parquet: row 1: \"text\": invalid UTF-8 byte at index 4: 0xFF"},
      {tar,
       {{"text", "txtt"}, {"length", 4}},
       "people.tar: sample \"a/000000\": there is no \"txtt\"; did you mean \"txt\"?"},
      {tar,
       {{"text", "jpg"}, {"length", 4}},
       "people.tar: \"a/000000.jpg\": an image is read by image=\"jpg\"; fields are cls"},
      {tar, {{"image", "webp"}, {"size", 4}}, "sample \"a/000000\": there is no \"webp\""},
      {{"jsonl", "people.jsonl"},
       {{"image", "text"}, {"size", 4}},
       "people.jsonl: JSON lines have no images"},
      {parquet,
       {{"image", "image"}, {"columns", Value::List{"score"}}},
       "net.lua:9: strata.data.parquet takes one of tokens, columns and image, got columns and "
       "image"},
      {parquet,
       {{"columns", "score"}},
       "net.lua:9: strata.data.parquet: columns expects a list of names, got the string"},
      {parquet, {{"image", "image"}}, "net.lua:9: strata.data.parquet needs size"},
      {parquet, {{"tokens", "tokens"}}, "net.lua:9: strata.data.parquet needs length"},
      {{"parquet", "people.tar"},
       {{"text", "text"}, {"length", 4}},
       "people.tar: no whole Parquet file: "},
      {{"arrow", "people.parquet"},
       {{"text", "text"}, {"length", 4}},
       "people.parquet: no whole Arrow stream: "},
      {{"webdataset", "people.jsonl"},
       {{"text", "text"}, {"length", 4}},
       "people.jsonl: byte 0: expected a tar, got another file"},
  };
  for (const auto& [form, options, says] : cases) {
    EXPECT_THAT(Error(form, options), HasSubstr(says)) << Value::MakeMap(options).ToLua();
  }
}

TEST_F(RecordsTest, FilesOfAnotherSchemaAreRefusedByName) {
  Copy("people.jsonl", "d/a.jsonl");
  const std::string other =
      Write("d/b.jsonl", "{\"text\": 5, \"word\": 3}\n{\"words\": \"red\"}\n");
  const auto error = [&](const Value::Map& more) {
    Value::Map all = {{"path", (folder_ / "d").string()}, {"length", 4}};
    all.insert(all.end(), more.begin(), more.end());
    return ErrorOf("jsonl", MakeDataSource("jsonl", {}, all, "net.lua:9"));
  };
  EXPECT_THAT(error({}), HasSubstr("b.jsonl:1: \"text\" expects a text, got the number 5"));
  EXPECT_THAT(error({{"columns", Value::List{"label"}}, {"target", "word"}}),
              HasSubstr("b.jsonl:1: there is no \"label\""));
  EXPECT_THAT(error({{"text", "word"}}), HasSubstr("b.jsonl:1: \"word\" expects a text"));
  Write("d/a.jsonl", "{\"x\": []}\n");
  EXPECT_THAT(
      error({{"columns", Value::List{"x"}}}),
      HasSubstr(
          "a.jsonl:1: \"x\" expects numbers, since a sample has no empty inputs, got the list"));
}

TEST_F(RecordsTest, StreamsNeedTheMarkAtTheirEnd) {
  const std::string whole = Content(People("people.stream.arrow"));
  const std::string cut = Write("cut.arrow", whole.substr(0, whole.size() - 8));
  EXPECT_EQ(ErrorOf("arrow", MakeDataSource("arrow", {}, {{"path", cut}, {"length", 4}}, "")),
            cut + ": no whole Arrow stream: it is cut off: the mark at its end is missing");
}

/// Every file that is cut off anywhere gives an error, or all of the records.
TEST_F(RecordsTest, FilesThatAreCutOffAreRefused) {
  for (const Form& form : kForms) {
    const std::string whole = Content(People(form.file));
    for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
      // What only fills the last block of a tar may be missing.
      if (whole.find_first_not_of('\0', size) == std::string::npos) break;
      const std::string cut = Write("cut", whole.substr(0, size));
      const std::string error = ErrorOf(
          form.source,
          MakeDataSource(form.source, {}, {{"path", cut}, {"columns", Value::List{"score"}}}, ""));
      EXPECT_THAT(error, testing::StartsWith(cut)) << form.file << " " << size;
    }
  }
}

// In a process of its own, since this one may have loaded the library.
TEST_F(RecordsTest, WithoutItsLibraryAnErrorSaysWhatToInstall) {
  const auto read = [&] {
    ::setenv("STRATA_ARROW", "/nowhere/libstrata_arrow.so", 1);
    std::fputs(Error(kForms[0], {{"text", "text"}, {"length", 4}}).c_str(), stderr);
    std::_Exit(0);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      read(), testing::ExitedWithCode(0),
      "cannot load Arrow's library.*nowhere.*pip install 'strata\\[arrow\\]', or pip install "
      "pyarrow==26.0.1");
}

}  // namespace
}  // namespace strata
