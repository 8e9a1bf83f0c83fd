#include "engine/checkpoint/saves/save_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/saves/checkpoint.h"
#include "engine/checkpoint/saves/testing.h"

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

TEST(SaveFolderTest, KeepsAsManyAsAsked) {
  const struct {
    int64_t keep;
    std::vector<int64_t> steps, left;
  } kCases[] = {
      {1, {10}, {10}},         {1, {10, 20, 30}, {30}},         {1, {30, 20, 10}, {10}},
      {2, {10, 20}, {10, 20}}, {2, {30, 20, 10}, {10, 20}},     {2, {10, 20, 10, 20}, {10, 20}},
      {2, {10, 10, 10}, {10}}, {2, {10, 20, 10, 30}, {10, 30}}, {9, {3, 1, 2}, {1, 2, 3}},
  };
  for (const auto& [keep, steps, left] : kCases) {
    TestFolder test;
    SaveFolder folder(test.path(), keep);
    std::vector<std::string> names;
    for (const int64_t step : steps) WriteTestSave(folder, step);
    for (const int64_t step : left) names.push_back(SaveName(step));
    EXPECT_EQ(ListSaves(test.path()), names);
    EXPECT_EQ(ReadLatest(test.path())->name, SaveName(steps.back()));
    EXPECT_EQ(NamesIn(test.path()).size(), left.size() + 1);
    EXPECT_EQ(TroubleWithSave(test.path()), "");
  }
}

TEST(SaveFolderTest, TwoSavesAtATime) {
  TestFolder test;
  SaveFolder folder(test.path(), 0);
  const std::string first = folder.Begin(10), second = folder.Begin(20);
  EXPECT_NE(first, second);
  const Manifest ten = WriteParts(first, TestOwners(), 3, 10);
  folder.Commit(second, WriteParts(second, TestOwners(), 3, 20));
  EXPECT_THAT(ListSaves(test.path()), ElementsAre("step-00000020"));
  folder.Commit(first, ten);
  EXPECT_EQ(ReadLatest(test.path())->name, "step-00000010");
  EXPECT_EQ(ReadManifest(test.Inside("step-00000010")).sequence, 1);
  EXPECT_EQ(ReadManifest(test.Inside("step-00000020")).sequence, 0);
}

TEST(SaveFolderTest, BeginsAnew) {
  TestFolder test;
  SaveFolder folder(test.path(), 0);
  WriteText(folder.Begin(10) + "/rank-00000.safetensors", "half");
  EXPECT_THAT(NamesIn(folder.Begin(10)), IsEmpty());
}

TEST(SaveFolderTest, ASaveOfTheSameStepIsReplacedWhole) {
  TestFolder test;
  SaveFolder folder(test.path(), 0);
  WriteTestSave(folder, 10);
  const TestTensor other = {"other", TensorKind::kParameter, {3}, 7};
  const std::string temporary = folder.Begin(10);
  folder.Commit(temporary, WriteParts(temporary, {{0, other, Slice::Whole({3})}}, 1, 10));
  EXPECT_THAT(NamesIn(test.path()), UnorderedElementsAre("latest", "step-00000010"));
  EXPECT_THAT(NamesIn(test.Inside("step-00000010")),
              UnorderedElementsAre("manifest.json", "rank-00000.safetensors"));
  EXPECT_EQ(TroubleWithSave(test.path()), "");
}

TEST(SaveFolderTest, DamagedSavesGoFirst) {
  TestFolder test;
  {
    SaveFolder folder(test.path(), 3);
    for (const int64_t step : {10, 20, 30}) WriteTestSave(folder, step);
  }
  WriteText(test.Inside("step-00000020/manifest.json"), "damaged");
  SaveFolder folder(test.path(), 3);
  WriteTestSave(folder, 40);
  EXPECT_THAT(ListSaves(test.path()),
              ElementsAre("step-00000010", "step-00000030", "step-00000040"));
}

TEST(SaveFolderTest, ADiskThatTakesNoMore) {
  TestFolder test;
  SaveFolder folder(test.path(), 1);
  WriteTestSave(folder, 10);
  const std::string temporary = folder.Begin(20);
  const Manifest manifest = WriteParts(temporary, TestOwners(), 3, 20);
  {
    const FullDisk full(100);
    EXPECT_THAT(ErrorOf([&] { folder.Commit(temporary, manifest); }), HasSubstr("too large"));
  }
  folder.Discard(temporary);
  EXPECT_THAT(NamesIn(test.path()), UnorderedElementsAre("latest", "step-00000010"));
  EXPECT_EQ(TroubleWithSave(test.path()), "");
  WriteTestSave(folder, 20);
  EXPECT_THAT(ListSaves(test.path()), ElementsAre("step-00000020"));
}

TEST(SaveFolderTest, TheLockEndsWithItsHolder) {
  TestFolder test;
  { const SaveFolder folder(test.path(), 2); }
  EXPECT_EQ(ErrorOf([&] { SaveFolder second(test.path(), 2, {}); }), "no error");
}

TEST(ReadLatestTest, WhatItMaySay) {
  const std::string digest(32, 'a');
  const struct {
    std::string text;
    bool fits;
  } kCases[] = {
      {"step-00000040 " + digest + "\n", true},
      {"step-1234567890 " + digest + "\n", true},
      {"", false},
      {"\n", false},
      {" " + digest + "\n", false},
      {"step-00000040\n", false},
      {"step-00000040 " + digest, false},
      {"step-00000040 " + digest + "\n\n", false},
      {"step-00000040  " + digest + "\n", false},
      {"step-00000040 " + digest + "a\n", false},
      {"step-40 " + digest + "\n", false},
      {"step--0000040 " + digest + "\n", false},
      {"../step-00000040 " + digest + "\n", false},
      {"/step-00000040 " + digest + "\n", false},
      {"step-00000040/ " + digest + "\n", false},
      {".tmp-step-40-1 " + digest + "\n", false},
  };
  TestFolder test;
  for (const auto& [text, fits] : kCases) {
    WriteText(test.Inside("latest"), text);
    const std::string trouble = ErrorOf([&] { ReadLatest(test.path()); });
    EXPECT_EQ(trouble, fits ? "no error" : test.Inside("latest is damaged: it names no save"))
        << text;
  }
  WriteText(test.Inside("latest"), std::string(201, 'a'));
  EXPECT_THAT(ErrorOf([&] { ReadLatest(test.path()); }), HasSubstr("more than such a file"));
}

TEST(ReadLatestTest, WhatIsNoFile) {
  TestFolder test;
  EXPECT_FALSE(ReadLatest(test.Inside("none")));
  ASSERT_EQ(::symlink("nowhere", test.Inside("latest").c_str()), 0);
  EXPECT_THAT(ErrorOf([&] { ReadLatest(test.path()); }), HasSubstr("No such file"));
  std::filesystem::remove(test.Inside("latest"));
  ASSERT_EQ(::mkdir(test.Inside("latest").c_str(), 0700), 0);
  EXPECT_THAT(ErrorOf([&] { ReadLatest(test.path()); }), HasSubstr("no regular file"));
}

TEST(ReadLatestTest, NamesOneManifestOnly) {
  TestFolder test;
  SaveFolder folder(test.path(), 0);
  for (const int64_t step : {10, 20}) WriteTestSave(folder, step);
  const std::string digest = ReadLatest(test.path())->manifest_digest;
  EXPECT_EQ(ManifestDigest(ReadText(test.Inside("step-00000020/manifest.json"))), digest);
  WriteText(test.Inside("latest"), "step-00000010 " + digest + "\n");
  EXPECT_THAT(TroubleWithSave(test.path()), HasSubstr("not the one that was saved last"));
  EXPECT_EQ(TroubleWithSave(test.Inside("step-00000010")), "");
}

}  // namespace
}  // namespace strata
