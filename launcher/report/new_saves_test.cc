// Tests of the save from which a restarted job continues.
#include "launcher/report/new_saves.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/base/testing.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

class NewSavesTest : public testing::Test {
 protected:
  NewSavesTest() { fs::remove_all(folder_); }

  /// Makes the files of a save that NewSaves looks at.
  void Save(const std::string& folder, const std::string& name, bool says_so = true) const {
    fs::create_directories(Str(folder, "/", name));
    if (says_so) std::ofstream(folder + "/latest") << name << " " << std::string(32, 'a') << "\n";
  }

  const std::string folder_ = testing::TempDir() + "/new_saves";
  const std::string best_ = folder_ + "/best";
  NewSaves saves_;
};

TEST_F(NewSavesTest, WithoutAFolderNothingIsNew) {
  EXPECT_FALSE(saves_.can_be());
  saves_.Begin("");
  saves_.Add("runs/step-00000002");
  EXPECT_FALSE(saves_.can_be());
  EXPECT_EQ(saves_.Resume(), "");
}

TEST_F(NewSavesTest, WhatWasThereBeforeIsNotNew) {
  Save(folder_, "step-00000006");
  Save(best_, "step-00000004");
  saves_.Begin(folder_);
  EXPECT_TRUE(saves_.can_be());
  EXPECT_EQ(saves_.Resume(), "");
  Save(folder_, "step-00000008");
  EXPECT_EQ(saves_.Resume(), "latest");
}

TEST_F(NewSavesTest, ASaveCountsBeforeItIsReported) {
  saves_.Begin(folder_);
  EXPECT_EQ(saves_.Resume(), "");
  Save(folder_, "step-00000002", /*says_so=*/false);
  EXPECT_EQ(saves_.Resume(), "latest");
}

TEST_F(NewSavesTest, AFolderOfAnotherMachineIsReported) {
  saves_.Begin(folder_ + "/");
  saves_.Add(best_ + "/step-00000002");
  EXPECT_EQ(saves_.Resume(), best_ + "/step-00000002");
  saves_.Add(folder_ + "//step-00000002");
  EXPECT_EQ(saves_.Resume(), "latest");
}

TEST_F(NewSavesTest, TheBestIsNoLatest) {
  saves_.Begin(folder_);
  Save(best_, "step-00000004");
  EXPECT_EQ(saves_.Resume(), best_ + "/step-00000004");
  Save(folder_, "step-00000002");
  EXPECT_EQ(saves_.Resume(), "latest");
}

TEST_F(NewSavesTest, WhatIsGoneIsNotGoneOnFrom) {
  saves_.Begin(folder_);
  Save(folder_, "step-00000002");
  saves_.Add(folder_ + "/step-00000002");
  EXPECT_EQ(saves_.Resume(), "latest");
  fs::remove_all(folder_);
  EXPECT_EQ(saves_.Resume(), "");
}

TEST_F(NewSavesTest, ADamagedFileIsNotNew) {
  saves_.Begin(folder_);
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/latest") << "x";
  EXPECT_EQ(saves_.Resume(), "");
}

}  // namespace
}  // namespace strata::launcher
