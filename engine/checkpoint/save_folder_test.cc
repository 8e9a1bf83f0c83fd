#include "engine/checkpoint/save_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(SaveNameTest, HasEightDigitsOrMore) {
  EXPECT_EQ(SaveName(40), "step-00000040");
  EXPECT_EQ(SaveName(1234567890), "step-1234567890");
  for (const int64_t step : {int64_t{0}, int64_t{40}, int64_t{99999999}, int64_t{100000000}}) {
    EXPECT_EQ(StepOfSave(SaveName(step)), step);
  }
  for (const char* name :
       {"", "step-", "step-40", "step-0000004x", "step-000000400", "step--0000040",
        "step-99999999999999999999", "latest", ".tmp-step-00000040"}) {
    EXPECT_EQ(StepOfSave(name), std::nullopt) << name;
  }
  EXPECT_EQ(RankFileName(3), "rank-00003.safetensors");
}

TEST(SaveFolderTest, ASaveCountsOnceItIsCommitted) {
  TestFolder test;
  SaveFolder folder(test.Inside("a/b"), 2);
  const std::string temporary = folder.Begin(20);
  const Manifest manifest = WriteParts(temporary, TestOwners(), 3, 20);
  EXPECT_EQ(ReadLatest(folder.path()), std::nullopt);
  EXPECT_THAT(ListSaves(folder.path()), IsEmpty());
  const std::string save = folder.Commit(temporary, manifest);
  EXPECT_EQ(save, test.Inside("a/b/step-00000020"));
  EXPECT_EQ(ReadLatest(folder.path())->name, "step-00000020");
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("latest", "step-00000020"));
  EXPECT_EQ(TroubleWithSave(save), "");
}

TEST(SaveFolderTest, KeepsTheNewest) {
  TestFolder test;
  SaveFolder folder(test.path(), 2);
  for (const int64_t step : {10, 20, 30, 40}) WriteTestSave(folder, step);
  EXPECT_THAT(ListSaves(test.path()), ElementsAre("step-00000030", "step-00000040"));
  EXPECT_EQ(ReadManifest(test.Inside("step-00000040")).sequence, 3);
}

TEST(SaveFolderTest, KeepsAllWhenAsked) {
  TestFolder test;
  SaveFolder folder(test.path(), 0);
  for (int64_t step = 1; step <= 5; ++step) WriteTestSave(folder, step);
  EXPECT_EQ(ListSaves(test.path()).size(), 5u);
}

TEST(SaveFolderTest, GoingOnFromAnOlderSaveOutlivesTheNewerOnes) {
  TestFolder test;
  {
    SaveFolder folder(test.path(), 3);
    for (const int64_t step : {10, 20, 30}) WriteTestSave(folder, step);
  }
  SaveFolder folder(test.path(), 3);
  WriteTestSave(folder, 15);
  WriteTestSave(folder, 20);  // again
  EXPECT_EQ(ReadLatest(test.path())->name, "step-00000020");
  EXPECT_THAT(ListSaves(test.path()),
              ElementsAre("step-00000015", "step-00000020", "step-00000030"));
  WriteTestSave(folder, 25);
  EXPECT_THAT(ListSaves(test.path()),
              ElementsAre("step-00000015", "step-00000020", "step-00000025"));
  EXPECT_EQ(TroubleWithSave(test.path()), "");
}

TEST(SaveFolderTest, WhatTheDeadLeftIsRemoved) {
  TestFolder test;
  SaveFolder(test.path(), 2).Begin(10);
  {
    SaveFolder folder(test.path(), 2);
    WriteTestSave(folder, 5);
  }
  ::mkdir(test.Inside(".tmp-step-20-99").c_str(), 0700);
  WriteText(test.Inside(".tmp-step-20-99/rank-00000.safetensors"), "half");
  WriteText(test.Inside(".tmp-latest-99"), "half");
  WriteText(test.Inside(".tmp-notes"), "mine");
  const SaveFolder folder(test.path(), 2);
  EXPECT_THAT(NamesIn(test.path()), UnorderedElementsAre("latest", "step-00000005", ".tmp-notes"));
}

TEST(SaveFolderTest, WhatOnlyHasTheNameOfASaveStays) {
  TestFolder test;
  ::mkdir(test.Inside("step-00000005").c_str(), 0700);
  ::mkdir(test.Inside("step-00000020").c_str(), 0700);
  SaveFolder folder(test.path(), 1);
  WriteTestSave(folder, 10);
  EXPECT_THAT(ErrorOf([&] { WriteTestSave(folder, 20); }), HasSubstr("is in the way"));
  WriteTestSave(folder, 30);
  EXPECT_THAT(ListSaves(test.path()),
              ElementsAre("step-00000005", "step-00000020", "step-00000030"));
}

TEST(SaveFolderTest, DiscardRemovesASaveThatFailed) {
  TestFolder test;
  SaveFolder folder(test.path(), 2);
  const std::string temporary = folder.Begin(10);
  WriteText(temporary + "/rank-00000.safetensors", "half");
  folder.Discard(temporary);
  EXPECT_THAT(NamesIn(test.path()), IsEmpty());
}

TEST(SaveFolderTest, OneWriterAtATime) {
  TestFolder test;
  const SaveFolder folder(test.path(), 2);
  EXPECT_THAT(ConfigErrorOf([&] { SaveFolder second(test.path(), 2, {}); }),
              HasSubstr("another training saves to"));
}

TEST(SaveFolderTest, AFolderThatCannotBeMade) {
  TestFolder test;
  WriteText(test.Inside("file"), "");
  EXPECT_THAT(ErrorOf([&] { SaveFolder folder(test.Inside("file/below"), 2); }),
              HasSubstr("cannot make the folder"));
}

TEST(SaveFolderTest, AFailedCommitDoesNotCount) {
  TestFolder test;
  SaveFolder folder(test.path(), 2);
  WriteTestSave(folder, 10);
  const std::string temporary = folder.Begin(20);
  const Manifest manifest = WriteParts(temporary, TestOwners(), 3, 20);
  WriteText(temporary + "/manifest.json", "in the way");
  EXPECT_THAT(ErrorOf([&] { folder.Commit(temporary, manifest); }), HasSubstr("File exists"));
  EXPECT_EQ(ReadLatest(test.path())->name, "step-00000010");
  EXPECT_EQ(TroubleWithSave(test.path()), "");
}

TEST(ReadLatestTest, ItsEveryFlippedBitIsFound) {
  TestFolder test;
  {
    SaveFolder folder(test.path(), 0);
    for (const int64_t step : {20, 40, 60}) WriteTestSave(folder, step);
  }
  const std::string path = test.Inside("latest"), text = ReadText(path);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    WriteText(path, flipped);
    EXPECT_NE(TroubleWithSave(test.path()), "") << flipped;
  }
  WriteText(path, text.substr(0, 20));
  EXPECT_THAT(TroubleWithSave(test.path()), HasSubstr("latest is damaged"));
}

}  // namespace
}  // namespace strata
