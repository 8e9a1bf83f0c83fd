#include "engine/checkpoint/files/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/testing.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class FileTest : public testing::Test {
 protected:
  std::string TroubleWithReading(const std::string& path) {
    return ErrorOf([&] { const InputFile file(path); });
  }
  std::string TroubleWithWriting(const std::string& path) {
    return ErrorOf([&] { WriteSyncedFile(path, "text"); });
  }

  TestFolder folder_;
};

TEST_F(FileTest, ReadsAtAnyPlace) {
  const std::string path = folder_.Inside("file");
  WriteText(path, "0123456789");
  const InputFile file(path);
  EXPECT_EQ(file.path(), path);
  ASSERT_EQ(file.size(), 10);
  for (int64_t offset = 0; offset <= 10; ++offset) {
    for (int64_t count = 0; count <= 10 - offset; ++count) {
      std::string text(static_cast<size_t>(count), '\0');
      file.ReadAt(offset, text.data(), count);
      EXPECT_EQ(text, std::string("0123456789").substr(offset, count));
    }
  }
}

TEST_F(FileTest, DoesNotReadBeyondItsEnd) {
  const std::string path = folder_.Inside("file");
  WriteText(path, "0123456789");
  const InputFile file(path);
  char to[16];
  EXPECT_DEATH(file.ReadAt(-1, to, 1), "-1 \\+ 1 of 10");
  EXPECT_DEATH(file.ReadAt(0, to, 11), "0 \\+ 11 of 10");
  EXPECT_DEATH(file.ReadAt(11, to, 0), "11 \\+ 0 of 10");
  EXPECT_DEATH(file.ReadAt(5, to, INT64_MAX), "5 \\+ 9223372036854775807 of 10");
  EXPECT_DEATH(file.ReadAt(0, to, -1), "0 \\+ -1 of 10");
}

TEST_F(FileTest, WhatCannotBeRead) {
  WriteText(folder_.Inside("file"), "");
  ASSERT_EQ(::symlink("nowhere", folder_.Inside("dangling").c_str()), 0);
  ASSERT_EQ(::symlink("loop", folder_.Inside("loop").c_str()), 0);
  ASSERT_EQ(::mkfifo(folder_.Inside("fifo").c_str(), 0600), 0);
  const struct {
    const char* name;
    const char* reason;
  } kCases[] = {
      {"none", "No such file"},          {"none/below", "No such file"},
      {"file/below", "Not a directory"}, {"dangling", "No such file"},
      {"loop", "symbolic links"},        {"fifo", "it is no regular file"},
      {".", "it is a folder"},
  };
  for (const auto& [name, reason] : kCases) {
    const std::string path = folder_.Inside(name);
    EXPECT_THAT(TroubleWithReading(path), AllOf(HasSubstr(path), HasSubstr(reason)));
    EXPECT_EQ(ErrorOf([&] { ReadSmallFile(path, 100); }), TroubleWithReading(path));
  }
  EXPECT_THAT(TroubleWithReading("/dev/null"), HasSubstr("it is no regular file"));
  EXPECT_THAT(TroubleWithReading(""), HasSubstr("No such file"));
  EXPECT_THAT(TroubleWithReading(folder_.Inside(std::string(300, 'a'))), HasSubstr("too long"));
}

TEST_F(FileTest, ReadsThroughALink) {
  WriteText(folder_.Inside("file"), "text");
  ASSERT_EQ(::symlink("file", folder_.Inside("link").c_str()), 0);
  EXPECT_EQ(ReadSmallFile(folder_.Inside("link"), 4), "text");
}

TEST_F(FileTest, BecomesShorterWhileItIsRead) {
  const std::string path = folder_.Inside("file");
  WriteText(path, "0123456789");
  const InputFile file(path);
  ASSERT_EQ(::truncate(path.c_str(), 4), 0);
  EXPECT_EQ(file.size(), 10);
  std::string text(10, '\0');
  file.ReadAt(0, text.data(), 4);
  EXPECT_EQ(text.substr(0, 4), "0123");
  const std::string trouble = path + " became shorter while it was read";
  EXPECT_EQ(ErrorOf([&] { file.ReadAt(0, text.data(), 10); }), trouble);
  EXPECT_EQ(ErrorOf([&] { file.ReadAt(3, text.data(), 2); }), trouble);
  EXPECT_EQ(ErrorOf([&] { file.ReadAt(9, text.data(), 1); }), trouble);
}

TEST_F(FileTest, IsTheOneThatWasOpened) {
  const std::string path = folder_.Inside("file");
  WriteText(path, "first");
  const InputFile file(path);
  std::filesystem::remove(path);
  WriteText(path, "other");
  std::string text(5, '\0');
  file.ReadAt(0, text.data(), 5);
  EXPECT_EQ(text, "first");
}

TEST_F(FileTest, SmallFilesHaveALimit) {
  const std::string path = folder_.Inside("file");
  for (const size_t size : {0, 1, 99, 100}) {
    WriteText(path, std::string(size, 'x'));
    EXPECT_EQ(ReadSmallFile(path, 100), std::string(size, 'x'));
  }
  WriteText(path, std::string(101, 'x'));
  EXPECT_THAT(ErrorOf([&] { ReadSmallFile(path, 100); }),
              AllOf(StartsWith(path + " has 101 "), HasSubstr("more than such a file can have")));
  // The file has a large size but no content. The reader must not allocate memory for its size.
  ASSERT_EQ(::truncate(path.c_str(), int64_t{1} << 40), 0);
  EXPECT_THAT(ErrorOf([&] { ReadSmallFile(path, 100); }), HasSubstr("more than such a file"));
}

TEST_F(FileTest, WritesWhatIsReadAgain) {
  const std::string path = folder_.Inside("file");
  for (const std::string& text : {std::string(), std::string("a"), std::string("a\0b\r\n\xff", 6),
                                  std::string(1 << 20, 'x')}) {
    WriteSyncedFile(path, text);
    EXPECT_EQ(ReadText(path), text);
    std::filesystem::remove(path);
  }
}

TEST_F(FileTest, OverwritesNothing) {
  WriteText(folder_.Inside("file"), "mine");
  ASSERT_EQ(::mkdir(folder_.Inside("folder").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("nowhere", folder_.Inside("dangling").c_str()), 0);
  for (const char* name : {"file", "folder", "dangling"}) {
    const std::string path = folder_.Inside(name);
    EXPECT_THAT(TroubleWithWriting(path),
                AllOf(StartsWith("cannot write " + path), HasSubstr("File exists")));
  }
  EXPECT_EQ(ReadText(folder_.Inside("file")), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder_.Inside("nowhere")));
}

TEST_F(FileTest, WhereNothingCanBeWritten) {
  WriteText(folder_.Inside("file"), "");
  EXPECT_THAT(TroubleWithWriting(folder_.Inside("none/file")), HasSubstr("No such file"));
  EXPECT_THAT(TroubleWithWriting(folder_.Inside("file/below")), HasSubstr("Not a directory"));
  EXPECT_THAT(TroubleWithWriting("/proc/strata"), StartsWith("cannot write /proc/strata"));
  EXPECT_THAT(TroubleWithWriting(""), StartsWith("cannot write "));
}

TEST_F(FileTest, AFolderWithoutTheRight) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0500), 0);
  EXPECT_THAT(TroubleWithWriting(folder_.Inside("file")), HasSubstr("Permission denied"));
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0700), 0);
}

TEST_F(FileTest, ADiskThatTakesNoMore) {
  const std::string path = folder_.Inside("file");
  OutputFile file(path);
  std::string trouble;
  {
    const FullDisk full(100);
    file.Write(std::string(60, 'x').data(), 60);
    trouble = ErrorOf([&] { file.Write(std::string(60, 'y').data(), 60); });
  }
  EXPECT_THAT(trouble, AllOf(HasSubstr(path), HasSubstr("File too large")));
  EXPECT_EQ(ReadText(path), std::string(60, 'x') + std::string(40, 'y'));
}

TEST_F(FileTest, SyncsFolders) {
  WriteText(folder_.Inside("file"), "");
  EXPECT_EQ(ErrorOf([&] { SyncFolder(folder_.path()); }), "no error");
  EXPECT_THAT(ErrorOf([&] { SyncFolder(folder_.Inside("none")); }),
              AllOf(StartsWith("cannot write the folder " + folder_.Inside("none")),
                    HasSubstr("No such file")));
  EXPECT_THAT(ErrorOf([&] { SyncFolder(folder_.Inside("file")); }), HasSubstr("Not a directory"));
}

RC_GTEST_PROP(FileProperty, PiecesOfAnySizeBecomeTheWhole, (const std::string& text)) {
  TestFolder folder;
  const std::string path = folder.Inside("file");
  OutputFile file(path);
  for (size_t done = 0; done < text.size();) {
    const auto count = *rc::gen::inRange<size_t>(1, text.size() - done + 1);
    file.Write(text.data() + done, static_cast<int64_t>(count));
    done += count;
  }
  file.Sync();
  RC_ASSERT(ReadSmallFile(path, static_cast<int64_t>(text.size())) == text);
}

}  // namespace
}  // namespace strata
