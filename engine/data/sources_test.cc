// Tests that apply to every source: its shapes are those that engine/job declares for it, and
// Read() keeps its contract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"
#include "engine/job/data_source.h"

namespace strata {
namespace {

using testing::HasSubstr;

class SourcesTest : public DatasetTest {
 protected:
  void SetUp() override {
    DatasetTest::SetUp();
    digits_ = Write("digits.csv", DigitsLines(23));
    for (int i = 1; i <= 5; ++i) Write(Str("cifar/data_batch_", i, ".bin"), Cifar(i));
    Write("cifar/test_batch.bin", Cifar(4));
    others_ = EverySource(folder_);
    context_.script = &script_;
  }

  /// Declarations of every kind of source, with options and without.
  std::vector<Value> Declarations() const {
    const auto make = [](const char* name, const Value::Map& named) {
      return MakeDataSource(name, {}, named, "net.lua:9");
    };
    const std::string cifar = (folder_ / "cifar").string();
    std::vector<Value> declarations = {
        make("digits", {{"path", digits_}}),
        make("digits", {{"path", digits_}, {"split", "test"}}),
        make("cifar10", {{"path", cifar}}),
        make("cifar10", {{"path", cifar}, {"size", 40}, {"split", "test"}}),
        make("cifar10", {{"path", ""}, {"size", 7}}),
        make("images", {{"shape", Value::IntList({6})}, {"samples", 3}}),
        make("images", {{"shape", Value::IntList({})}, {"samples", 3}}),
        make("tokens", {{"vocabulary", 1}, {"length", 1}, {"split", "test"}})};
    declarations.insert(declarations.end(), others_.begin(), others_.end());
    return declarations;
  }

  /// Calls `check` with each declaration and its dataset.
  template <class Check>
  void ForEach(Check check) {
    for (const Value& declaration : Declarations()) {
      SCOPED_TRACE(declaration.ToLua());
      const DataSpec spec = SpecOf(declaration, context_);
      check(spec, *OpenDataset(spec, context_));
    }
  }

  std::string digits_;
  std::vector<Value> others_;
  FakeDataScript script_;
};

TEST_F(SourcesTest, AllKindsAreOpened) {
  std::vector<std::string> opened;
  ForEach([&](const DataSpec& spec, const Dataset&) { opened.push_back(spec.kind); });
  for (const auto* types : {&DataSourceTypes(), &DataStepTypes()}) {
    for (const DataSourceType& type : *types) {
      EXPECT_THAT(opened, testing::Contains(type.name)) << "a new source belongs in this test";
    }
  }
}

TEST_F(SourcesTest, GiveTheSamplesThatTheirDeclarationsTell) {
  ForEach([](const DataSpec& spec, const Dataset& dataset) {
    const DataFacts facts = FactsOf(spec);
    EXPECT_EQ(dataset.inputs(), facts.inputs);
    EXPECT_EQ(dataset.targets(), facts.targets);
    EXPECT_EQ(dataset.classes(), facts.classes);
    EXPECT_GT(dataset.size(), 0);
    if (spec.options["of"].is_null()) {
      EXPECT_THAT(dataset.description(), HasSubstr(spec.kind + ": "));
    }
  });
}

/// The bytes of a sample, with a margin behind each half that must not change.
struct Room {
  explicit Room(const Dataset& dataset)
      : input(static_cast<size_t>(dataset.input_bytes()) + kMargin, kUntouched),
        target(static_cast<size_t>(dataset.target_bytes()) + kMargin, kUntouched) {}

  static constexpr size_t kMargin = 16;
  static constexpr std::byte kUntouched = std::byte(0xa5);
  std::vector<std::byte> input, target;
};

void ExpectMargin(const std::vector<std::byte>& bytes) {
  const std::vector<std::byte> margin(bytes.end() - Room::kMargin, bytes.end());
  EXPECT_EQ(margin, std::vector<std::byte>(Room::kMargin, Room::kUntouched));
}

TEST_F(SourcesTest, WriteWhatTheySayAndNoMore) {
  ForEach([](const DataSpec&, const Dataset& dataset) {
    for (int64_t i : {int64_t{0}, dataset.size() / 2, dataset.size() - 1}) {
      Room both(dataset), apart(dataset);
      dataset.Read(i, both.input.data(), both.target.data());
      dataset.Read(i, apart.input.data(), nullptr);
      dataset.Read(i, nullptr, apart.target.data());
      dataset.Read(i, nullptr, nullptr);
      EXPECT_EQ(both.input, apart.input) << i;
      EXPECT_EQ(both.target, apart.target) << i;
      ExpectMargin(both.input);
      ExpectMargin(both.target);
    }
  });
}

TEST_F(SourcesTest, LabelsAndTokensAreClasses) {
  ForEach([](const DataSpec& spec, const Dataset& dataset) {
    if (dataset.classes() == 0 || dataset.target().dtype != DType::kInt64) return;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      std::vector<int64_t> numbers = Ints(dataset, i, true);
      if (spec.kind == "chat" || spec.kind == "pack") std::erase(numbers, -100);  // ignored
      if (spec.kind != "pack" && spec.options.Has("length") && spec.options["target"].is_null()) {
        const std::vector<int64_t> input = Ints(dataset, i, false);
        numbers.insert(numbers.end(), input.begin(), input.end());
      }
      for (int64_t number : numbers) {
        EXPECT_GE(number, 0) << i;
        EXPECT_LT(number, dataset.classes()) << i;
      }
    }
  });
}

TEST_F(SourcesTest, AreReadBySeveralThreads) {
  ForEach([](const DataSpec&, const Dataset& dataset) {
    std::vector<Room> expected, read;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      Room& sample = expected.emplace_back(dataset);
      read.emplace_back(dataset);
      dataset.Read(i, sample.input.data(), sample.target.data());
    }
    std::vector<std::thread> threads;
    for (size_t first = 0; first < 3; ++first) {
      threads.emplace_back([&, first] {
        for (size_t i = first; i < read.size(); i += 3) {
          dataset.Read(static_cast<int64_t>(i), read[i].input.data(), read[i].target.data());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i].input, expected[i].input) << i;
      EXPECT_EQ(read[i].target, expected[i].target) << i;
    }
  });
}

TEST_F(SourcesTest, BatchesAreSamplesBehindEachOther) {
  ForEach([](const DataSpec&, const Dataset& dataset) {
    const std::vector<int64_t> indices = {dataset.size() - 1, 0, dataset.size() / 2};
    std::vector<std::byte> inputs(3 * static_cast<size_t>(dataset.input_bytes()));
    std::vector<std::byte> targets(3 * static_cast<size_t>(dataset.target_bytes()));
    dataset.ReadBatch(indices, 2, inputs.data(), targets.data());
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<std::byte> one = BytesOfSample(dataset, {indices[i], 2});
      std::vector<std::byte> in_batch(
          inputs.begin() + static_cast<ptrdiff_t>(i) * dataset.input_bytes(),
          inputs.begin() + static_cast<ptrdiff_t>(i + 1) * dataset.input_bytes());
      in_batch.insert(in_batch.end(),
                      targets.begin() + static_cast<ptrdiff_t>(i) * dataset.target_bytes(),
                      targets.begin() + static_cast<ptrdiff_t>(i + 1) * dataset.target_bytes());
      EXPECT_EQ(in_batch, one) << i;
    }
  });
}

// ---- splits ----

/// Reads both splits as lists of numbers; each sample is recognised by its number.
class Splits : public DatasetTest {
 protected:
  std::vector<int64_t> Of(const char* kind, Value options, const char* split) {
    const auto dataset = Open(kind, options.Set("split", split));
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < dataset->size(); ++i) samples.push_back(Number(*dataset, i));
    return samples;
  }

  /// Expects that every `k`-th of 0 ... total-1 is held out, and that both splits keep the order.
  void ExpectEveryKth(const char* kind, const Value& options, int64_t total, int64_t k) {
    std::vector<int64_t> train, test;
    for (int64_t i = 0; i < total; ++i) (i % k == k - 1 ? test : train).push_back(i);
    EXPECT_EQ(Of(kind, options, "train"), train) << total;
    EXPECT_EQ(Of(kind, options, "test"), test) << total;
  }

 private:
  /// The number of a sample. Digits: from the first two pixels; text: from the bytes of the piece,
  /// which count up.
  static int64_t Number(const Dataset& dataset, int64_t i) {
    if (dataset.input().dtype == DType::kInt64) {
      const std::vector<int64_t> bytes = Ints(dataset, i, false);
      return bytes[0] * 256 + bytes[1];
    }
    const std::vector<float> pixels = Floats(dataset, i);
    return static_cast<int64_t>(pixels[0] * 16 * 17 + pixels[1] * 16);
  }
};

TEST_F(Splits, DigitsHoldOutEveryFifth) {
  for (int64_t total : {5, 6, 9, 10, 11, 34}) {
    std::string lines;
    for (int64_t i = 0; i < total; ++i) {
      lines += Str(i / 17, ",", i % 17, ",");
      for (int pixel = 2; pixel < 64; ++pixel) lines += "0,";
      lines += "7\n";
    }
    ExpectEveryKth("digits", Options({{"path", Write("digits.csv", lines)}}), total, 5);
  }
}

TEST_F(Splits, TextHoldsOutEveryTenthPiece) {
  for (int64_t total : {10, 11, 19, 20, 31, 300}) {
    std::string bytes;
    for (int64_t i = 0; i < total; ++i) {
      bytes += static_cast<char>(i / 256);
      bytes += static_cast<char>(i % 256);
    }
    // One byte for the last target, or one byte more than that.
    for (const char* rest : {".", ".."}) {
      const std::string path = Write("text", bytes + rest);
      ExpectEveryKth("text", Options({{"path", path}, {"length", 2}}), total, 10);
    }
  }
}

TEST_F(Splits, TextsThatAreAllOrPredictedHoldOutNothing) {
  const std::string path = Write("text", "0a1b2c");
  const auto open = [&](const char* kind, Value options) {
    return Open(kind, options.Set("path", path).Set("length", 2));
  };
  const auto all = open("text", Options({{"split", "all"}}));
  EXPECT_EQ(all->size(), 2) << "the last target is a byte further on";
  EXPECT_TRUE(all->has_targets());
  EXPECT_EQ(Ints(*all, 1, true), (std::vector<int64_t>{'b', '2'}));
  const auto predicted = open("text", Options({{"split", "train"}, {"targets", false}}));
  EXPECT_EQ(predicted->size(), 3);
  EXPECT_FALSE(predicted->has_targets());
  EXPECT_EQ(Ints(*predicted, 2, false), (std::vector<int64_t>{'2', 'c'}));
  EXPECT_EQ(Ints(*predicted, 2, true), (std::vector<int64_t>{0, 0}));
  Write("text", "a");
  EXPECT_EQ(ErrorOf("text", Options({{"path", path}, {"length", 2}, {"targets", false}})),
            "text: expected at least 1 piece of 2 bytes, got 1 bytes");
}

TEST_F(Splits, JsonLinesThatArePredictedNeedNoTarget) {
  const std::string path = Write("a.jsonl", "{\"text\": \"0a1b\"}\n");
  const auto size = [&](bool has_targets) {
    const Value source = MakeDataSource(
        "jsonl", {}, {{"path", path}, {"length", 2}, {"targets", has_targets}}, "net.lua:9");
    return OpenDataset(SpecOf(source, context_), context_)->size();
  };
  EXPECT_EQ(size(true), 1);
  EXPECT_EQ(size(false), 2);
}

class ImageFolders : public DatasetTest {
 protected:
  std::unique_ptr<Dataset> OpenFolder(bool has_targets = true) {
    Value options = Options({{"path", folder_.string()}, {"size", 8}, {"channels", 3}});
    return Open("image_folder", options.Set("targets", has_targets));
  }
};

/// As torchvision's ImageFolder, finds images at any depth.
TEST_F(ImageFolders, HaveImagesHoweverDeep) {
  for (const char* name : {"cat/2.png", "cat/a/b/1.jpg", "cat/.hidden/3.png", "dog/x/1.JPEG"}) {
    Write(name, "");
  }
  std::filesystem::create_directory_symlink(folder_ / "cat", folder_ / "cat/a/loop");
  // Following the links along every path would visit 986,410 folders.
  for (int i = 0; i < 9; ++i) {
    for (int k = 0; k < 9; ++k) {
      const auto link = folder_ / Str("dog/x/", i, "/", k);
      std::filesystem::create_directories(link.parent_path());
      if (i != k) std::filesystem::create_directory_symlink(folder_ / Str("dog/x/", k), link);
    }
  }
  const auto labelled = OpenFolder();
  EXPECT_THAT(labelled->description(), HasSubstr("3 images of 8x8"));
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < labelled->size(); ++i) labels.push_back(Ints(*labelled, i, true)[0]);
  EXPECT_EQ(labels, (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(labelled->name_of(1), "cat/a/b/1.jpg");
  EXPECT_EQ(OpenFolder(/*has_targets=*/false)->size(), 3);
  EXPECT_EQ(labelled->notes(), std::vector{Str("2 of 3 images in \"", folder_.string(),
                                               "\" lie deeper than the folder of their class")});
}

TEST_F(ImageFolders, TellWhichFilesTheyLeaveOut) {
  for (const char* name : {"cat/1.png", "cat/2.webp", "cat/a/3.gif", "readme.txt", ".hidden"}) {
    Write(name, "");
  }
  const std::string path = folder_.string();
  EXPECT_EQ(
      OpenFolder()->notes(),
      std::vector{Str("3 files in \"", path, "\" left out, as \"", path,
                      "/readme.txt\": images are .jpg, .jpeg and .png in a sub-folder for each "
                      "class")});
  EXPECT_EQ(OpenFolder(/*has_targets=*/false)->notes(),
            std::vector{Str("3 files in \"", path, "\" left out, as \"", path,
                            "/readme.txt\": images are .jpg, .jpeg and .png")});
}

}  // namespace
}  // namespace strata
