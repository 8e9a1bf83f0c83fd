#include "engine/base/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace strata {
namespace {

namespace fs = std::filesystem;

class ShareTest : public testing::Test {
 protected:
  ShareTest() : folder_(fs::path(testing::TempDir()) / "share") {
    fs::create_directories(folder_ / "models");
    for (const char* name : {"b.lua", "a.lua", "notes.txt"}) {
      std::ofstream(folder_ / "models" / name) << "-- " << name;
    }
  }
  ~ShareTest() override { fs::remove_all(folder_); }

  std::string folder() const { return folder_.string(); }

 private:
  fs::path folder_;
};

TEST_F(ShareTest, FindsWhatTheVariableHolds) {
  setenv("STRATA_SHARE", folder().c_str(), 1);
  EXPECT_EQ(SharedPath("models/a.lua"), folder() + "/models/a.lua");
  EXPECT_EQ(SharedPath("models/none.lua"), "");
  EXPECT_THAT(SharedModels(), testing::ElementsAre("a", "b"));
  unsetenv("STRATA_SHARE");
  EXPECT_EQ(SharedPath("models/a.lua"), "");
  EXPECT_THAT(SharedModels(), testing::IsEmpty());
}

TEST_F(ShareTest, LibrariesAreBesideTheProgramOrWhereBazelPutsThem) {
  setenv("LIBRARY_OF_A_TEST", "/some/lib.so", 1);
  EXPECT_THAT(LibraryPlaces("LIBRARY_OF_A_TEST", "a/lib.so"), testing::ElementsAre("/some/lib.so"));
  unsetenv("LIBRARY_OF_A_TEST");
  setenv("RUNFILES_DIR", "/run", 1);
  const fs::path program = fs::read_symlink("/proc/self/exe");
  EXPECT_THAT(
      LibraryPlaces("LIBRARY_OF_A_TEST", "a/lib.so"),
      testing::ElementsAre((program.parent_path() / "lib.so").string(),
                           (program.parent_path().parent_path() / "a/lib.so").string(),
                           "/run/strata/a/lib.so", program.string() + ".runfiles/strata/a/lib.so"));
}

TEST_F(ShareTest, TakesLibtorchWithItsFolderOrWithout) {
  unsetenv("LIBTORCH");
  EXPECT_EQ(TorchLibrary("libc10.so"), "");
  setenv("LIBTORCH", folder().c_str(), 1);
  EXPECT_EQ(TorchLibrary("libc10.so"), folder() + "/lib/libc10.so");
  fs::create_directories(folder() + "/torch/lib");
  std::ofstream(folder() + "/torch/lib/libc10.so") << "";
  EXPECT_EQ(TorchLibrary("libc10.so"), folder() + "/torch/lib/libc10.so");
  unsetenv("LIBTORCH");
}

}  // namespace
}  // namespace strata
