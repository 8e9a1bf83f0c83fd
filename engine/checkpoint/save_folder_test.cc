#include "engine/checkpoint/save_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/testing.h"

/// True if flock() shall fail as on a file system without locks.
static bool has_no_locks = false;

extern "C" int flock(int fd, int operation) noexcept {
  if (!has_no_locks) return static_cast<int>(::syscall(SYS_flock, fd, operation));
  errno = ENOLCK;
  return -1;
}

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

/// The names in a folder, without the owner's file.
std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    names.push_back(entry.path().filename().string());
  }
  std::erase(names, SaveOwner::kFile);
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

TEST(SaveNameTest, AnotherSaveOfAStepHasANumber) {
  EXPECT_EQ(SaveName(40, 7), "step-00000040.7");
  EXPECT_EQ(StepOfSave("step-00000040.7"), 40);
  for (const char* name : {"step-00000040.", "step-00000040.0", "step-00000040.07",
                           "step-00000040.-1", "step-00000040.7.7", "step-00000040.x", "step-.7"}) {
    EXPECT_EQ(StepOfSave(name), std::nullopt) << name;
  }
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
  WriteTestSave(folder, 20);  // the same step again
  EXPECT_EQ(ReadLatest(test.path())->name, "step-00000020.4");
  EXPECT_THAT(ListSaves(test.path()),
              ElementsAre("step-00000015.3", "step-00000020.4", "step-00000030"));
  WriteTestSave(folder, 40);
  EXPECT_THAT(ListSaves(test.path()),
              ElementsAre("step-00000015.3", "step-00000020.4", "step-00000040.5"));
  EXPECT_EQ(TroubleWithSave(test.path()), "");
}

// A reader that has found a save under a name must find the same save there later, or nothing.
TEST(SaveFolderTest, NoNameIsUsedTwice) {
  TestFolder test;
  std::map<std::string, std::string> digests;
  for (int round = 0; round < 4; ++round) {
    SaveFolder folder(test.path(), 1);
    for (const int64_t step : {10, 20, 10 + round}) {
      WriteTestSave(folder, step);
      const LatestSave latest = *ReadLatest(test.path());
      EXPECT_TRUE(digests.emplace(latest.name, latest.manifest_digest).second) << latest.name;
    }
  }
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
              AllOf(HasSubstr("another training saves to"),
                    HasSubstr(Str("process ", ::getpid(), " on "))));
}

/// Sets the time of a file back, as if it had last been touched then.
void Touch(const std::string& path, std::chrono::seconds ago) {
  const auto time = std::filesystem::file_time_type::clock::now() - ago;
  std::filesystem::last_write_time(path, time);
}

// The lock of another machine is not visible here.
TEST(SaveFolderTest, AnOwnerOnAnotherMachineLivesAsLongAsItIsTouched) {
  TestFolder test;
  WriteText(test.Inside(".owner"), "host7/boot 4711 1");
  ::mkdir(test.Inside(".tmp-step-20-99").c_str(), 0700);
  EXPECT_THAT(ConfigErrorOf([&] { SaveFolder second(test.path(), 2, {}); }),
              HasSubstr("process 4711 on host7"));
  EXPECT_THAT(NamesIn(test.path()), ElementsAre(".tmp-step-20-99"));
  Touch(test.Inside(".owner"), std::chrono::seconds(60));
  const SaveFolder folder(test.path(), 2, {});
  EXPECT_THAT(NamesIn(test.path()), IsEmpty());
}

// Without locks the heartbeat alone decides whether an owner lives, also for owners on this
// machine.
TEST(SaveFolderTest, AFileSystemMayHaveNoLocks) {
  has_no_locks = true;
  TestFolder test;
  auto first = std::make_unique<SaveFolder>(test.path(), 2);
  const std::string owner = ReadText(test.Inside(".owner"));
  EXPECT_THAT(ConfigErrorOf([&] { SaveFolder second(test.path(), 2, {}); }),
              HasSubstr("another training saves to"));
  first.reset();
  WriteText(test.Inside(".owner"), owner);  // as a killed process leaves it
  Touch(test.Inside(".owner"), std::chrono::seconds(60));
  EXPECT_EQ(WriteTestSave(*std::make_unique<SaveFolder>(test.path(), 2), 10),
            test.Inside("step-00000010"));
  has_no_locks = false;
}

TEST(SaveFolderTest, WhoLostItsFolderCommitsNothing) {
  TestFolder test;
  SaveFolder folder(test.path(), 2);
  WriteTestSave(folder, 10);
  WriteText(test.Inside(".owner"), "host7/boot 4711 1");
  EXPECT_THAT(ErrorOf([&] { WriteTestSave(folder, 20); }),
              HasSubstr("was taken by process 4711 on host7"));
  EXPECT_EQ(ReadLatest(test.path())->name, "step-00000010");
}

TEST(SaveFolderTest, AnOwnerLeavesNothingBehind) {
  TestFolder test;
  { const SaveFolder folder(test.path(), 2); }
  EXPECT_FALSE(std::filesystem::exists(test.Inside(".owner")));
}

TEST(SaveFolderTest, AFolderThatCannotBeMade) {
  TestFolder test;
  WriteText(test.Inside("file"), "");
  EXPECT_THAT(ErrorOf([&] { SaveFolder folder(test.Inside("file/below"), 2); }),
              HasSubstr("cannot make the folder"));
}

TEST(SaveFolderTest, AFolderThatIsGoneIsMadeAgain) {
  TestFolder test;
  SaveFolder folder(test.Inside("runs"), 2);
  WriteTestSave(folder, 10);
  for (const bool is_made : {false, true}) {
    std::filesystem::remove_all(folder.path());
    // Another program may have created the folder again.
    if (is_made) ::mkdir(folder.path().c_str(), 0700);
    EXPECT_EQ(WriteTestSave(folder, 20), test.Inside("runs/step-00000020"));
    EXPECT_EQ(TroubleWithSave(folder.path()), "");
    EXPECT_THAT(ConfigErrorOf([&] { SaveFolder second(folder.path(), 2, {}); }),
                HasSubstr("another training saves to"));
  }
}

/// The text that is written to stderr while a save is made.
std::string ToldBySave(SaveFolder& folder, int64_t step) {
  ::testing::internal::CaptureStderr();
  WriteTestSave(folder, step);
  return ::testing::internal::GetCapturedStderr();
}

TEST(SaveFolderTest, ASmallerKeepHoldsFromTheNextCommitOnWhichSaysWhatGoes) {
  TestFolder test;
  {
    SaveFolder folder(test.path(), 0);
    for (const int64_t step : {10, 20, 30}) WriteTestSave(folder, step);
  }
  SaveFolder folder(test.path(), 1);
  EXPECT_EQ(ListSaves(test.path()).size(), 3u);
  EXPECT_THAT(ToldBySave(folder, 40), HasSubstr(Str("3 saves are removed from ", test.path(),
                                                    ", all but the newest 1 (save.keep)")));
  EXPECT_THAT(ListSaves(test.path()), ElementsAre("step-00000040"));
  EXPECT_EQ(ToldBySave(folder, 50), "") << "each save takes another's place";
  EXPECT_EQ(TroubleWithSave(test.path()), "");
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
    std::vector<int64_t> steps;
    std::vector<std::string> left;
  } kCases[] = {
      {1, {10}, {"10"}},
      {1, {10, 20, 30}, {"30"}},
      {1, {30, 20, 10}, {"10.2"}},
      {2, {10, 20}, {"10", "20"}},
      {2, {30, 20, 10}, {"10.2", "20.1"}},
      {2, {10, 20, 10, 20}, {"10.2", "20.3"}},
      {2, {10, 10, 10}, {"10.1", "10.2"}},
      {2, {10, 20, 10, 30}, {"10.2", "30.3"}},
      {9, {3, 1, 2}, {"01.1", "02.2", "03"}},
  };
  for (const auto& [keep, steps, left] : kCases) {
    TestFolder test;
    SaveFolder folder(test.path(), keep);
    std::vector<std::string> names;
    for (const int64_t step : steps) WriteTestSave(folder, step);
    for (const std::string& name : left) names.push_back("step-000000" + name);
    EXPECT_EQ(ListSaves(test.path()), names);
    EXPECT_EQ(ReadManifest(Str(test.path(), "/", ReadLatest(test.path())->name)).training.step,
              steps.back());
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
  EXPECT_EQ(ReadLatest(test.path())->name, "step-00000010.1");
  EXPECT_EQ(ReadManifest(test.Inside("step-00000010.1")).sequence, 1);
  EXPECT_EQ(ReadManifest(test.Inside("step-00000020")).sequence, 0);
}

TEST(SaveFolderTest, BeginsAnew) {
  TestFolder test;
  SaveFolder folder(test.path(), 0);
  WriteText(folder.Begin(10) + "/rank-00000.safetensors", "half");
  EXPECT_THAT(NamesIn(folder.Begin(10)), IsEmpty());
}

// While a step is saved that is already saved, `latest` must never name a save that is gone.
TEST(SaveFolderTest, ASaveOfTheSameStepTouchesNothingOfTheOther) {
  TestFolder test;
  SaveFolder folder(test.path(), 1);
  WriteTestSave(folder, 10);
  const std::string temporary = folder.Begin(10);
  const Manifest manifest = WriteParts(temporary, TestOwners(), 3, 10);
  {
    const FullDisk full(1);  // has room for neither manifest nor `latest`
    EXPECT_THAT(ErrorOf([&] { folder.Commit(temporary, manifest); }), HasSubstr("too large"));
  }
  EXPECT_EQ(ReadLatest(test.path())->name, "step-00000010");
  EXPECT_EQ(TroubleWithSave(test.path()), "");
}

TEST(SaveFolderTest, ASaveWhoseNameDidNotComeToLatestIsCountedAllTheSame) {
  TestFolder test;
  SaveFolder folder(test.path(), 2);
  WriteTestSave(folder, 10);
  const std::string text = ReadText(test.Inside("latest"));
  std::filesystem::remove(test.Inside("latest"));
  ::mkdir(test.Inside("latest").c_str(), 0700);  // a file cannot replace a folder
  EXPECT_THAT(ErrorOf([&] { WriteTestSave(folder, 20); }), HasSubstr("cannot replace"));
  std::filesystem::remove(test.Inside("latest"));
  WriteText(test.Inside("latest"), text);
  EXPECT_EQ(TroubleWithSave(test.path()), "");
  WriteTestSave(folder, 20);
  EXPECT_EQ(ReadLatest(test.path())->name, "step-00000020.2");
  EXPECT_THAT(ListSaves(test.path()), ElementsAre("step-00000020", "step-00000020.2"));
  EXPECT_EQ(TroubleWithSave(test.path()), "");
}

// An error such as EIO, or too few descriptors, may pass, so it is no reason to remove a save.
TEST(SaveFolderTest, ASaveThatCannotBeReadNowIsNotRemoved) {
  TestFolder test;
  {
    SaveFolder folder(test.path(), 1);
    WriteTestSave(folder, 10);
  }
  const std::string manifest = test.Inside("step-00000010/manifest.json");
  std::filesystem::rename(manifest, manifest + ".away");
  ::mkdir(manifest.c_str(), 0700);  // reading it fails, though it exists
  {
    SaveFolder folder(test.path(), 1);
    for (const int64_t step : {20, 30}) WriteTestSave(folder, step);
  }
  std::filesystem::remove(manifest);
  std::filesystem::rename(manifest + ".away", manifest);
  EXPECT_EQ(TroubleWithSave(test.Inside("step-00000010")), "");
  EXPECT_THAT(ListSaves(test.path()), ElementsAre("step-00000010", "step-00000030"));
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
  EXPECT_THAT(ErrorOf([&] { ReadLatest(test.path()); }), HasSubstr("it is a folder"));
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
