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

class SaveFolderTest : public ::testing::Test {
 protected:
  const std::string& path() const { return folder_.path(); }
  std::string Inside(const std::string& name) const { return folder_.Inside(name); }

  /// Writes the saves of a training that has ended.
  void WriteTestSaves(int64_t keep, const std::vector<int64_t>& steps) {
    SaveFolder folder(path(), keep);
    for (const int64_t step : steps) WriteTestSave(folder, step);
  }

 private:
  TestFolder folder_;
};

using ReadLatestTest = SaveFolderTest;

TEST_F(SaveFolderTest, ASaveCountsOnceItIsCommitted) {
  SaveFolder folder(Inside("a/b"), 2);
  const std::string temporary = folder.Begin(20);
  const Manifest manifest = WriteParts(temporary, TestOwners(), 3, 20);
  EXPECT_EQ(ReadLatest(folder.path()), std::nullopt);
  EXPECT_THAT(ListSaves(folder.path()), IsEmpty());
  const std::string save = folder.Commit(temporary, manifest);
  EXPECT_EQ(save, Inside("a/b/step-00000020"));
  EXPECT_EQ(ReadLatest(folder.path())->name, "step-00000020");
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("latest", "step-00000020"));
  EXPECT_EQ(TroubleWithSave(save), "");
}

TEST_F(SaveFolderTest, GoingOnFromAnOlderSaveOutlivesTheNewerOnes) {
  WriteTestSaves(3, {10, 20, 30});
  SaveFolder folder(path(), 3);
  WriteTestSave(folder, 15);
  WriteTestSave(folder, 20);  // the same step again
  EXPECT_EQ(ReadLatest(path())->name, "step-00000020.4");
  EXPECT_THAT(ListSaves(path()),
              ElementsAre("step-00000015.3", "step-00000020.4", "step-00000030"));
  WriteTestSave(folder, 40);
  EXPECT_THAT(ListSaves(path()),
              ElementsAre("step-00000015.3", "step-00000020.4", "step-00000040.5"));
  EXPECT_EQ(TroubleWithSave(path()), "");
}

// A reader that has found a save under a name must find the same save there later, or nothing.
TEST_F(SaveFolderTest, NoNameIsUsedTwice) {
  std::map<std::string, std::string> digests;
  for (int round = 0; round < 4; ++round) {
    SaveFolder folder(path(), 1);
    for (const int64_t step : {10, 20, 10 + round}) {
      WriteTestSave(folder, step);
      const LatestSave latest = *ReadLatest(path());
      EXPECT_TRUE(digests.emplace(latest.name, latest.manifest_digest).second) << latest.name;
    }
  }
}

TEST_F(SaveFolderTest, WhatTheDeadLeftIsRemoved) {
  SaveFolder(path(), 2).Begin(10);
  WriteTestSaves(2, {5});
  ::mkdir(Inside(".tmp-step-20-99").c_str(), 0700);
  WriteText(Inside(".tmp-step-20-99/rank-00000.safetensors"), "half");
  WriteText(Inside(".tmp-latest-99"), "half");
  WriteText(Inside(".tmp-notes"), "mine");
  const SaveFolder folder(path(), 2);
  EXPECT_THAT(NamesIn(path()), UnorderedElementsAre("latest", "step-00000005", ".tmp-notes"));
}

TEST_F(SaveFolderTest, WhatOnlyHasTheNameOfASaveStays) {
  ::mkdir(Inside("step-00000005").c_str(), 0700);
  ::mkdir(Inside("step-00000020").c_str(), 0700);
  SaveFolder folder(path(), 1);
  WriteTestSave(folder, 10);
  EXPECT_THAT(ErrorOf([&] { WriteTestSave(folder, 20); }), HasSubstr("is in the way"));
  WriteTestSave(folder, 30);
  EXPECT_THAT(ListSaves(path()), ElementsAre("step-00000005", "step-00000020", "step-00000030"));
}

TEST_F(SaveFolderTest, DiscardRemovesASaveThatFailed) {
  SaveFolder folder(path(), 2);
  const std::string temporary = folder.Begin(10);
  WriteText(temporary + "/rank-00000.safetensors", "half");
  folder.Discard(temporary);
  EXPECT_THAT(NamesIn(path()), IsEmpty());
}

TEST_F(SaveFolderTest, OneWriterAtATime) {
  const SaveFolder folder(path(), 2);
  EXPECT_THAT(ConfigErrorOf([&] { SaveFolder second(path(), 2, {}); }),
              AllOf(HasSubstr("another training saves to"),
                    HasSubstr(Str("process ", ::getpid(), " on "))));
}

/// Sets the time of a file back, as if it had last been touched then.
void Touch(const std::string& path, std::chrono::seconds ago) {
  const auto time = std::filesystem::file_time_type::clock::now() - ago;
  std::filesystem::last_write_time(path, time);
}

// The lock of another machine is not visible here.
TEST_F(SaveFolderTest, AnOwnerOnAnotherMachineLivesAsLongAsItIsTouched) {
  WriteText(Inside(".owner"), "host7/boot 4711 1");
  ::mkdir(Inside(".tmp-step-20-99").c_str(), 0700);
  EXPECT_THAT(ConfigErrorOf([&] { SaveFolder second(path(), 2, {}); }),
              HasSubstr("process 4711 on host7"));
  EXPECT_THAT(NamesIn(path()), ElementsAre(".tmp-step-20-99"));
  Touch(Inside(".owner"), std::chrono::seconds(60));
  const SaveFolder folder(path(), 2, {});
  EXPECT_THAT(NamesIn(path()), IsEmpty());
}

// Without locks the heartbeat alone decides whether an owner lives, also for owners on this
// machine.
TEST_F(SaveFolderTest, AFileSystemMayHaveNoLocks) {
  has_no_locks = true;
  auto first = std::make_unique<SaveFolder>(path(), 2);
  const std::string owner = ReadText(Inside(".owner"));
  EXPECT_THAT(ConfigErrorOf([&] { SaveFolder second(path(), 2, {}); }),
              HasSubstr("another training saves to"));
  first.reset();
  WriteText(Inside(".owner"), owner);  // as a killed process leaves it
  Touch(Inside(".owner"), std::chrono::seconds(60));
  EXPECT_EQ(WriteTestSave(*std::make_unique<SaveFolder>(path(), 2), 10), Inside("step-00000010"));
  has_no_locks = false;
}

TEST_F(SaveFolderTest, WhoLostItsFolderCommitsNothing) {
  SaveFolder folder(path(), 2);
  WriteTestSave(folder, 10);
  WriteText(Inside(".owner"), "host7/boot 4711 1");
  EXPECT_THAT(ErrorOf([&] { WriteTestSave(folder, 20); }),
              HasSubstr("was taken by process 4711 on host7"));
  EXPECT_EQ(ReadLatest(path())->name, "step-00000010");
}

TEST_F(SaveFolderTest, AnOwnerLeavesNothingBehind) {
  { const SaveFolder folder(path(), 2); }
  EXPECT_FALSE(std::filesystem::exists(Inside(".owner")));
  EXPECT_EQ(ErrorOf([&] { SaveFolder second(path(), 2, {}); }), "no error");
}

TEST_F(SaveFolderTest, AFolderThatCannotBeMade) {
  WriteText(Inside("file"), "");
  EXPECT_THAT(ErrorOf([&] { SaveFolder folder(Inside("file/below"), 2); }),
              HasSubstr("cannot make the folder"));
}

TEST_F(SaveFolderTest, AFolderThatIsGoneIsMadeAgain) {
  SaveFolder folder(Inside("runs"), 2);
  WriteTestSave(folder, 10);
  for (const bool is_made : {false, true}) {
    std::filesystem::remove_all(folder.path());
    // Another program may have created the folder again.
    if (is_made) ::mkdir(folder.path().c_str(), 0700);
    EXPECT_EQ(WriteTestSave(folder, 20), Inside("runs/step-00000020"));
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

TEST_F(SaveFolderTest, ASmallerKeepHoldsFromTheNextCommitOnWhichSaysWhatGoes) {
  WriteTestSaves(0, {10, 20, 30});
  SaveFolder folder(path(), 1);
  EXPECT_EQ(ListSaves(path()).size(), 3u);
  EXPECT_THAT(ToldBySave(folder, 40), HasSubstr(Str("3 saves are removed from ", path(),
                                                    ", all but the newest 1 (save.keep)")));
  EXPECT_THAT(ListSaves(path()), ElementsAre("step-00000040"));
  EXPECT_EQ(ToldBySave(folder, 50), "") << "each save takes another's place";
  EXPECT_EQ(TroubleWithSave(path()), "");
}

TEST_F(SaveFolderTest, AFailedCommitDoesNotCount) {
  SaveFolder folder(path(), 2);
  WriteTestSave(folder, 10);
  const std::string temporary = folder.Begin(20);
  const Manifest manifest = WriteParts(temporary, TestOwners(), 3, 20);
  WriteText(temporary + "/manifest.json", "in the way");
  EXPECT_THAT(ErrorOf([&] { folder.Commit(temporary, manifest); }), HasSubstr("File exists"));
  EXPECT_EQ(ReadLatest(path())->name, "step-00000010");
  EXPECT_EQ(TroubleWithSave(path()), "");
}

TEST_F(ReadLatestTest, ItsEveryFlippedBitIsFound) {
  WriteTestSaves(0, {20, 40, 60});
  const std::string latest = Inside("latest"), text = ReadText(latest);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    WriteText(latest, flipped);
    EXPECT_NE(TroubleWithSave(path()), "") << flipped;
  }
  WriteText(latest, text.substr(0, 20));
  EXPECT_THAT(TroubleWithSave(path()), HasSubstr("latest is damaged"));
}

TEST_F(SaveFolderTest, KeepsAsManyAsAsked) {
  const struct {
    int64_t keep;
    std::vector<int64_t> steps;
    std::vector<std::string> left;
  } kCases[] = {
      {0, {10, 20, 30, 40, 50}, {"10", "20", "30", "40", "50"}},
      {1, {10}, {"10"}},
      {1, {10, 20, 30}, {"30"}},
      {1, {30, 20, 10}, {"10.2"}},
      {2, {10, 20}, {"10", "20"}},
      {2, {10, 20, 30, 40}, {"30", "40"}},
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
    const Manifest latest = ReadManifest(Str(test.path(), "/", ReadLatest(test.path())->name));
    EXPECT_EQ(latest.training.step, steps.back());
    EXPECT_EQ(latest.sequence, static_cast<int64_t>(steps.size()) - 1);
    EXPECT_EQ(NamesIn(test.path()).size(), left.size() + 1);
    EXPECT_EQ(TroubleWithSave(test.path()), "");
  }
}

TEST_F(SaveFolderTest, TwoSavesAtATime) {
  SaveFolder folder(path(), 0);
  const std::string first = folder.Begin(10), second = folder.Begin(20);
  EXPECT_NE(first, second);
  const Manifest ten = WriteParts(first, TestOwners(), 3, 10);
  folder.Commit(second, WriteParts(second, TestOwners(), 3, 20));
  EXPECT_THAT(ListSaves(path()), ElementsAre("step-00000020"));
  folder.Commit(first, ten);
  EXPECT_EQ(ReadLatest(path())->name, "step-00000010.1");
  EXPECT_EQ(ReadManifest(Inside("step-00000010.1")).sequence, 1);
  EXPECT_EQ(ReadManifest(Inside("step-00000020")).sequence, 0);
}

TEST_F(SaveFolderTest, BeginsAnew) {
  SaveFolder folder(path(), 0);
  WriteText(folder.Begin(10) + "/rank-00000.safetensors", "half");
  EXPECT_THAT(NamesIn(folder.Begin(10)), IsEmpty());
}

// While a step is saved that is already saved, `latest` must never name a save that is gone.
TEST_F(SaveFolderTest, ASaveOfTheSameStepTouchesNothingOfTheOther) {
  SaveFolder folder(path(), 1);
  WriteTestSave(folder, 10);
  const std::string temporary = folder.Begin(10);
  const Manifest manifest = WriteParts(temporary, TestOwners(), 3, 10);
  {
    const FullDisk full(1);  // has room for neither manifest nor `latest`
    EXPECT_THAT(ErrorOf([&] { folder.Commit(temporary, manifest); }), HasSubstr("too large"));
  }
  EXPECT_EQ(ReadLatest(path())->name, "step-00000010");
  EXPECT_EQ(TroubleWithSave(path()), "");
}

TEST_F(SaveFolderTest, ASaveWhoseNameDidNotComeToLatestIsCountedAllTheSame) {
  SaveFolder folder(path(), 2);
  WriteTestSave(folder, 10);
  const std::string text = ReadText(Inside("latest"));
  std::filesystem::remove(Inside("latest"));
  ::mkdir(Inside("latest").c_str(), 0700);  // a file cannot replace a folder
  EXPECT_THAT(ErrorOf([&] { WriteTestSave(folder, 20); }), HasSubstr("cannot replace"));
  std::filesystem::remove(Inside("latest"));
  WriteText(Inside("latest"), text);
  EXPECT_EQ(TroubleWithSave(path()), "");
  WriteTestSave(folder, 20);
  EXPECT_EQ(ReadLatest(path())->name, "step-00000020.2");
  EXPECT_THAT(ListSaves(path()), ElementsAre("step-00000020", "step-00000020.2"));
  EXPECT_EQ(TroubleWithSave(path()), "");
}

// An error such as EIO, or too few descriptors, may pass, so it is no reason to remove a save.
TEST_F(SaveFolderTest, ASaveThatCannotBeReadNowIsNotRemoved) {
  WriteTestSaves(1, {10});
  const std::string manifest = Inside("step-00000010/manifest.json");
  std::filesystem::rename(manifest, manifest + ".away");
  ::mkdir(manifest.c_str(), 0700);  // reading it fails, though it exists
  WriteTestSaves(1, {20, 30});
  std::filesystem::remove(manifest);
  std::filesystem::rename(manifest + ".away", manifest);
  EXPECT_EQ(TroubleWithSave(Inside("step-00000010")), "");
  EXPECT_THAT(ListSaves(path()), ElementsAre("step-00000010", "step-00000030"));
}

TEST_F(SaveFolderTest, DamagedSavesGoFirst) {
  WriteTestSaves(3, {10, 20, 30});
  WriteText(Inside("step-00000020/manifest.json"), "damaged");
  SaveFolder folder(path(), 3);
  WriteTestSave(folder, 40);
  EXPECT_THAT(ListSaves(path()), ElementsAre("step-00000010", "step-00000030", "step-00000040"));
}

TEST_F(SaveFolderTest, ADiskThatTakesNoMore) {
  SaveFolder folder(path(), 1);
  WriteTestSave(folder, 10);
  const std::string temporary = folder.Begin(20);
  const Manifest manifest = WriteParts(temporary, TestOwners(), 3, 20);
  {
    const FullDisk full(100);
    EXPECT_THAT(ErrorOf([&] { folder.Commit(temporary, manifest); }), HasSubstr("too large"));
  }
  folder.Discard(temporary);
  EXPECT_THAT(NamesIn(path()), UnorderedElementsAre("latest", "step-00000010"));
  EXPECT_EQ(TroubleWithSave(path()), "");
  WriteTestSave(folder, 20);
  EXPECT_THAT(ListSaves(path()), ElementsAre("step-00000020"));
}

TEST_F(ReadLatestTest, WhatItMaySay) {
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
  for (const auto& [text, fits] : kCases) {
    WriteText(Inside("latest"), text);
    const std::string trouble = ErrorOf([&] { ReadLatest(path()); });
    EXPECT_EQ(trouble, fits ? "no error" : Inside("latest is damaged: it names no save")) << text;
  }
  WriteText(Inside("latest"), std::string(201, 'a'));
  EXPECT_THAT(ErrorOf([&] { ReadLatest(path()); }), HasSubstr("more than such a file"));
}

TEST_F(ReadLatestTest, WhatIsNoFile) {
  EXPECT_FALSE(ReadLatest(Inside("none")));
  ASSERT_EQ(::symlink("nowhere", Inside("latest").c_str()), 0);
  EXPECT_THAT(ErrorOf([&] { ReadLatest(path()); }), HasSubstr("No such file"));
  std::filesystem::remove(Inside("latest"));
  ASSERT_EQ(::mkdir(Inside("latest").c_str(), 0700), 0);
  EXPECT_THAT(ErrorOf([&] { ReadLatest(path()); }), HasSubstr("it is a folder"));
}

TEST_F(ReadLatestTest, NamesOneManifestOnly) {
  SaveFolder folder(path(), 0);
  for (const int64_t step : {10, 20}) WriteTestSave(folder, step);
  const std::string digest = ReadLatest(path())->manifest_digest;
  EXPECT_EQ(ManifestDigest(ReadText(Inside("step-00000020/manifest.json"))), digest);
  WriteText(Inside("latest"), "step-00000010 " + digest + "\n");
  EXPECT_THAT(TroubleWithSave(path()), HasSubstr("not the one that was saved last"));
  EXPECT_EQ(TroubleWithSave(Inside("step-00000010")), "");
}

}  // namespace
}  // namespace strata
