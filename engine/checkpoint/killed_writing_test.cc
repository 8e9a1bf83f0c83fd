// Code that writes weights and saves is killed before each call that changes the disk, or that call
// fails. The output must be complete or not there, and writing it again must work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/files/killing.h"
#include "engine/checkpoint/testing.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/checkpoint/weights/write_weights.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

/// The bytes of a file, or of all files of a folder, by name.
std::map<std::string, std::string> BytesOf(const std::string& path) {
  std::map<std::string, std::string> bytes;
  const auto add = [&](const std::string& name, const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    bytes[name].assign(std::istreambuf_iterator<char>(in), {});
  };
  if (fs::is_regular_file(path)) add("", path);
  if (!fs::is_directory(path)) return bytes;
  for (const auto& entry : fs::directory_iterator(path)) {
    add(entry.path().filename().string(), entry.path());
  }
  return bytes;
}

class KilledWritingTest : public testing::Test {
 protected:
  KilledWritingTest() {
    WriteTestWeights(in_.Inside("in.safetensors"),
                     {{"a", {2, 2}, 1}, {"b", {3}, 10}, {"c", {1}, 20}});
    source_ = Checkpoint::Open(in_.Inside("in.safetensors"));
    weights_.emplace(*source_, WeightMap());
    tensors_ = Exported(*weights_);
  }

  /// Kills `write`, which creates `name` in an empty folder, before each of its calls.
  void ExpectWholeOrNothing(const std::string& name,
                            const std::function<void(const std::string&)>& write) {
    const TestFolder whole;
    write(whole.Inside(name));
    int kills = 0;
    for (bool is_over = false; !is_over; ++kills) {
      const TestFolder folder;
      const std::string out = folder.Inside(name);
      is_over = !KilledBefore(kills, folder.path(), [&] { write(out); });
      const bool is_there = fs::exists(out);
      if (!is_there) write(out);
      EXPECT_EQ(BytesOf(out), BytesOf(whole.Inside(name))) << kills << is_there;
      EXPECT_TRUE(is_there || !is_over);
    }
    EXPECT_GT(kills, 5);
    for (const bool lasts : {false, true}) ExpectWholeOrTold(name, write, lasts);
  }

  /// Lets the disk fail at each call, only once or from then on.
  void ExpectWholeOrTold(const std::string& name,
                         const std::function<void(const std::string&)>& write, bool lasts) {
    int failures = 0;
    for (bool is_over = false; !is_over; ++failures) {
      const TestFolder folder;
      const std::string out = folder.Inside(name);
      std::string told;
      is_over = !Fails(
          {failures, lasts}, folder, [&] { write(out); }, &told);
      EXPECT_TRUE(fs::exists(out) || !told.empty()) << failures << lasts;
      EXPECT_THAT(told, AnyOf("", HasSubstr("Input/output error"))) << failures << lasts;
      EXPECT_TRUE(!is_over || told.empty()) << told;
      if (!fs::exists(out)) write(out);
      EXPECT_NO_THROW(Checkpoint::Open(out)) << failures << lasts;
    }
    EXPECT_GT(failures, 5);
  }

  /// As FailsOnDisk(); stores the error in `told`, or "" if there is none.
  static bool Fails(const DiskFailure& failure, const TestFolder& folder,
                    const std::function<void()>& work, std::string* told) {
    return FailsOnDisk(failure, folder.path(), [&] {
      try {
        work();
      } catch (const WorldError& error) {
        *told = error.what();
      }
    });
  }

  TestFolder in_;
  std::unique_ptr<Checkpoint> source_;
  std::optional<MappedWeights> weights_;
  std::vector<MappedTensor> tensors_;
};

TEST_F(KilledWritingTest, Import) {
  ExpectWholeOrNothing("out.safetensors",
                       [&](const std::string& out) { WriteWeights(*weights_, tensors_, out); });
}

TEST_F(KilledWritingTest, Export) {
  ExpectWholeOrNothing(
      "out", [&](const std::string& out) { WritePublished(*weights_, tensors_, out, 16); });
}

/// Writes a save behind another one, with both kept, and with only the newest kept.
TEST_F(KilledWritingTest, Save) {
  for (const int64_t keep : {0, 1}) {
    int kills = 0;
    for (bool is_over = false; !is_over; ++kills) {
      const TestFolder folder;
      const auto save = [&](int64_t step) {
        SaveFolder saves(folder.path(), keep);
        WriteTestSave(saves, step);
      };
      save(10);
      is_over = !KilledBefore(kills, folder.path(), [&] { save(20); });
      const std::optional<LatestSave> latest = ReadLatest(folder.path());
      ASSERT_TRUE(latest) << kills;
      EXPECT_THAT(latest->name, AnyOf(SaveName(20), is_over ? "" : SaveName(10))) << kills;
      EXPECT_EQ(TroubleWithSave(folder.path()), "") << kills << ", " << latest->name;
      save(30);  // by the next training
      EXPECT_EQ(ReadLatest(folder.path())->name, SaveName(30)) << kills;
      EXPECT_EQ(TroubleWithSave(folder.path()), "") << kills;
    }
    EXPECT_GT(kills, 10);
  }
}

/// A save that is reported as written must be the newest; one that fails must say why, and leave a
/// complete save.
TEST_F(KilledWritingTest, SaveOnADiskThatFails) {
  for (const bool lasts : {false, true}) {
    int failures = 0;
    for (bool is_over = false; !is_over; ++failures) {
      SCOPED_TRACE(Str("call ", failures, lasts ? " and all after it" : ""));
      const TestFolder folder;
      SaveFolder saves(folder.path(), 1);
      WriteTestSave(saves, 10);
      std::string told;
      is_over = !Fails(
          {failures, lasts}, folder, [&] { WriteTestSave(saves, 20); }, &told);
      const std::optional<LatestSave> latest = ReadLatest(folder.path());
      ASSERT_TRUE(latest);
      EXPECT_THAT(latest->name, AnyOf(SaveName(20), told.empty() ? "" : SaveName(10)));
      EXPECT_EQ(TroubleWithSave(folder.path()), "");
      EXPECT_THAT(told, AnyOf("", HasSubstr("Input/output error")));
      WriteTestSave(saves, 30);  // after the disk works again
      EXPECT_EQ(ReadLatest(folder.path())->name, SaveName(30));
      EXPECT_EQ(TroubleWithSave(folder.path()), "");
    }
    EXPECT_GT(failures, 10);
  }
}

}  // namespace
}  // namespace strata
