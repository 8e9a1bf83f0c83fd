// Broken data files: missing, cut off, too long, or nonsense. Each must give an error that names
// the file and the expected content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>

#include "engine/data/testing.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class BrokenFiles : public DatasetTest {
 protected:
  std::string DigitsError(const std::string& content) {
    return ErrorOf("digits", Options({{"path", Write("digits.csv", content)}}));
  }
  std::string CifarError(const std::string& content) {
    Write("test_batch.bin", content);
    return ErrorOf("cifar10", Options({{"path", folder_.string()}, {"split", "test"}}));
  }
  std::string TextError(const std::string& path, int64_t length = 4) {
    return ErrorOf("text", Options({{"path", path}, {"length", length}}));
  }
};

TEST_F(BrokenFiles, WhatIsNoFileIsRefusedUnread) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // A folder, a device without an end, a pipe without a writer, and a missing file.
  const std::string none = (folder_ / "none").string();
  const std::pair<std::string, std::string> cases[] = {{folder_.string(), "it is a folder"},
                                                       {"/dev/zero", "it is no regular file"},
                                                       {pipe, "it is no regular file"},
                                                       {none, "No such file or directory"}};
  for (const auto& [path, why] : cases) {
    EXPECT_EQ(ErrorOf("digits", Options({{"path", path}})),
              "cannot read " + path + " (the UCI digits; tools/setup puts them there): " + why);
    if (path == folder_) continue;  // the source text reads all files of a folder
    EXPECT_EQ(TextError(path), "cannot read " + path + " (text for training): " + why);
  }
  std::filesystem::create_directories(folder_ / "test_batch.bin");
  EXPECT_EQ(ErrorOf("cifar10", Options({{"path", folder_.string()}, {"split", "test"}})),
            "cannot read " + folder_.string() +
                "/test_batch.bin (CIFAR-10's binary version): it is a folder");
}

TEST_F(BrokenFiles, TheSystemsReasonIsTold) {
  const std::string file = Write("digits.csv", "");
  const auto ends_in = [](const std::string& reason) { return testing::EndsWith("): " + reason); };
  EXPECT_THAT(TextError(file + "/below"), ends_in("Not a directory"));
  std::filesystem::create_symlink("circle", folder_ / "circle");
  EXPECT_THAT(TextError((folder_ / "circle").string()),
              ends_in("Too many levels of symbolic links"));
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string error = ErrorOf("digits", Options({{"path", file}}));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(error, ends_in("Too many open files"));
}

TEST_F(BrokenFiles, AnEmptyFileIsReadAndTooShort) {
  EXPECT_THAT(DigitsError(""), HasSubstr("digits.csv: expected at least 5 digits, got 0"));
  EXPECT_THAT(DigitsError("\n\n \r\n"), HasSubstr("got 0"));
  EXPECT_THAT(CifarError(""), HasSubstr("got 0 bytes"));
  EXPECT_EQ(TextError(Write("text", "")),
            "text: expected at least 10 pieces of 4 bytes and one byte more, got 0 bytes");
}

// ---- digits ----

TEST_F(BrokenFiles, DigitsNameLineAndColumn) {
  const std::string row = DigitsLines(1);
  struct Case {
    std::string line;
    int column;
  };
  const auto with = [&](const std::string& first) { return first + row.substr(1); };
  const Case cases[] = {
      {with("17"), 1},
      {with("-1"), 1},
      {with(""), 1},

      {with("0.5"), 1},
      {with("+3"), 1},
      {with("0x1"), 1},
      {with("99999999999"), 1},
      {with("\xff"), 1},
      {with("0,0"), 65},
      {row.substr(0, 9), 5},
      {"7", 1},
      {row.substr(0, row.size() - 2) + "10", 65},
      {row.substr(0, row.size() - 2) + "x", 65},
      {row.substr(0, row.size() - 2), 65},
      {row.substr(0, row.size() - 1) + ",1", 65},
      {row.substr(0, row.size() - 3), 64},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(DigitsError(DigitsLines(6) + "\n" + c.line),
              Str((folder_ / "digits.csv").string(), ":8: expected 64 pixels from 0 to 16 and a ",
                  "label from 0 to 9 with commas between them; column ", c.column, " is wrong"))
        << c.line;
  }
}

TEST_F(BrokenFiles, DigitsMayHaveEmptyLinesAndReturns) {
  std::string text = "\n" + DigitsLines(7) + "\n";
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
    text.insert(at, "\r");
  }
  EXPECT_EQ(Open("digits", Options({{"path", Write("digits.csv", text)}}))->size(), 6);
}

/// Cuts the file at many places. A cut within a line must give an error that names the line. A cut
/// between lines is an error only if too few digits are left.
TEST_F(BrokenFiles, DigitsCutOffAnywhere) {
  const std::string whole = DigitsLines(6);
  for (size_t size = 0; size < whole.size(); size += 7) {
    const std::string error = DigitsError(whole.substr(0, size));
    const auto lines = std::count(whole.begin(), whole.begin() + static_cast<int64_t>(size), '\n');
    const bool within = size > 0 && whole[size - 1] != '\n' && whole[size] != '\n';
    if (within) {
      EXPECT_THAT(error, HasSubstr(Str("digits.csv:", lines + 1, ": expected 64 pixels"))) << size;
    } else {
      const int64_t digits = lines + (whole[size] == '\n' ? 1 : 0);
      EXPECT_EQ(error == "no error", digits >= 5) << size;
    }
  }
}

TEST_F(BrokenFiles, RandomBytesAreNoDigits) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::string bytes(1 + random() % 500, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    EXPECT_THAT(DigitsError(bytes),
                AllOf(StartsWith((folder_ / "digits.csv").string()), HasSubstr("expected ")));
  }
}

// ---- CIFAR-10 ----

TEST_F(BrokenFiles, CifarHasWholeRecords) {
  const std::string whole = Cifar(3);
  for (size_t size : {size_t{1}, size_t{3072}, size_t{3074}, 2 * size_t{3073} + 5}) {
    EXPECT_EQ(CifarError(whole.substr(0, size)),
              Str((folder_ / "test_batch.bin").string(), ": expected records of 3073 bytes (a ",
                  "label and 3x32x32 pixels), got ", size, " bytes"));
  }
  for (size_t records : {1, 2, 3}) {
    EXPECT_EQ(CifarError(whole.substr(0, records * 3073)), "no error");
  }
}

TEST_F(BrokenFiles, CifarNamesTheRecordOfAWrongLabel) {
  for (const int label : {10, 11, 127, 128, 255}) {
    for (size_t record : {0, 2, 4}) {
      std::string content = Cifar(5);
      content[record * 3073] = static_cast<char>(label);
      EXPECT_EQ(CifarError(content), Str((folder_ / "test_batch.bin").string(), ": record ", record,
                                         " has label ", label, ", expected 0 to 9"));
    }
  }
}

TEST_F(BrokenFiles, CifarMissesAnyOfTheFiveBatches) {
  const Value train = Options({{"path", folder_.string()}});
  for (int missing = 1; missing <= 5; ++missing) {
    for (int i = 1; i <= 5; ++i) Write(Str("data_batch_", i, ".bin"), Cifar(1));
    EXPECT_EQ(Open("cifar10", train)->size(), 5);
    const std::string name = Str("data_batch_", missing, ".bin");
    std::filesystem::remove(folder_ / name);
    EXPECT_EQ(ErrorOf("cifar10", train),
              Str("cannot read ", folder_.string(), "/", name,
                  " (CIFAR-10's binary version): No such file or directory"));
  }
}

TEST_F(BrokenFiles, CifarRefusesAnotherInput) {
  Write("test_batch.bin", Cifar(1));
  const Value options = Options({{"path", folder_.string()}, {"split", "test"}});
  for (const TensorSpec& input :
       {TensorSpec{{1, 32, 32}, DType::kFloat32}, TensorSpec{{3, 32}, DType::kFloat32},
        TensorSpec{{3, 32, 32}, DType::kInt64}, TensorSpec{{}, DType::kFloat32}}) {
    context_.input = input;
    EXPECT_EQ(
        ErrorOf("cifar10", options),
        "cifar10 gives float32 images (3, height, width), the job's input is " + input.ToString());
  }
}

// ---- text ----

TEST_F(BrokenFiles, TextNeedsTenPiecesAndAByte) {
  EXPECT_THAT(TextError(Write("text", std::string(40, 'x'))), HasSubstr("got 40 bytes"));
  EXPECT_EQ(TextError(Write("text", std::string(41, 'x'))), "no error");
  EXPECT_THAT(TextError(Write("text", std::string(41, 'x')), int64_t{1} << 31),
              HasSubstr("10 pieces of 2147483648 bytes"));
}

TEST_F(BrokenFiles, TextToBePredictedIsWhole) {
  const auto pieces = [&](size_t bytes) {
    const std::string path = Write("text", std::string(bytes, 'x'));
    return Open("text", Options({{"path", path}, {"length", 4}, {"targets", false}}))->size();
  };
  EXPECT_EQ(pieces(121), 30) << "none is held out";
  EXPECT_EQ(pieces(5), 1) << "short texts have pieces too";
  EXPECT_EQ(pieces(4), 1) << "and no target behind them";
  EXPECT_THAT(strata::ErrorOf([&] { pieces(3); }),
              HasSubstr("expected at least 1 piece of 4 bytes, got 3 bytes"));
}

TEST_F(BrokenFiles, TextFoldersNeedAFile) {
  const std::string folder = (folder_ / "texts").string();
  std::filesystem::create_directories(folder + "/inner");
  EXPECT_EQ(TextError(folder), "no file in the folder " + folder);
  std::filesystem::create_symlink("/dev/zero", folder + "/link");
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(TextError(folder), "no file in the folder " + folder) << "links and pipes are none";
  Write("texts/inner/a", std::string(99, 'x'));
  EXPECT_EQ(TextError(folder), "no file in the folder " + folder) << "nor those further below";
  Write("texts/a", std::string(99, 'x'));
  EXPECT_EQ(TextError(folder), "no error");
}

TEST_F(BrokenFiles, TextIsAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const std::string utf8 = "\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82";
  const std::string path = Write("text", bytes + utf8 + utf8);
  const auto text = Open("text", Options({{"path", path}, {"length", 1}}));
  std::vector<int64_t> read;
  for (int64_t i = 0; i < text->size(); ++i) read.push_back(Ints(*text, i, false)[0]);
  std::vector<int64_t> expected;
  const std::string all = bytes + utf8 + utf8;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (i % 10 != 9) expected.push_back(static_cast<uint8_t>(all[i]));
  }
  EXPECT_EQ(read, expected) << "from 0 to 255, no byte is another's sign";
}

}  // namespace
}  // namespace strata
