#include "launcher/report/output_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;

class OutputFilesTest : public testing::Test {
 protected:
  std::string ErrorWith(const Value::Map& flags) const {
    return ConfigErrorOf([&] { CheckOutputs(Value::MakeMap(flags)); });
  }
  TestFolder folder_;
  const std::string path_ = folder_.Inside("a.x");
};

TEST_F(OutputFilesTest, WhatSomebodyWroteIsRefused) {
  WriteText(path_, "length,width,kind\n1,2,rose\n");
  for (const char* flag : {"log", "csv", "prometheus", "trace", "svg", "html", "write_costs"}) {
    EXPECT_THAT(ErrorWith({{flag, path_}}),
                HasSubstr(Str("--", flag, "=", path_, ": this file exists and is no ")));
  }
  EXPECT_THAT(ErrorWith({{"csv", path_}}),
              HasSubstr("is no table of a training: nothing was written; give another name, or "
                        "remove it"));
  EXPECT_EQ(ReadText(path_), "length,width,kind\n1,2,rose\n");
  EXPECT_EQ(ErrorWith({{"config", path_}}), "no error");
}

TEST_F(OutputFilesTest, WhatAnEarlierRunWroteIsNot) {
  EXPECT_EQ(ErrorWith({{"csv", path_}}), "no error") << "there is no file";
  EXPECT_FALSE(std::filesystem::exists(path_));
  const std::pair<const char*, const char*> kCases[] = {
      {"csv", ""},
      {"csv", "step,lo"},
      {"csv", "step,loss,grad_norm,lr\n0,1,2,3\n"},
      {"log", "{\"step\":0,\"loss\":2.5,\"version\":1}\n"},
      {"log", "{\"version\":1,\"step\":0,\"loss\":2.5}\n"},
      {"html", "\n<!doctype html>\n<html lang=\"en\">\n"}};
  for (const auto& [flag, text] : kCases) {
    WriteText(path_, text);
    EXPECT_EQ(ErrorWith({{flag, path_}}), "no error") << text;
  }
}

TEST_F(OutputFilesTest, TwoNeverNameOneFile) {
  EXPECT_THAT(ErrorWith({{"log", path_}, {"csv", folder_.Inside("./a.x")}}),
              HasSubstr(Str("--log=", path_, " and --csv=")));
  EXPECT_THAT(ErrorWith({{"trace", "new.json"}, {"html", "./new.json"}}),
              HasSubstr("name the same file: give two names"));
  EXPECT_EQ(ErrorWith({{"log", path_}, {"csv", folder_.Inside("b.x")}}), "no error");
  for (const char* shared : {"/dev/null", "/dev/stdout"}) {
    EXPECT_EQ(ErrorWith({{"log", shared}, {"csv", shared}}), "no error");
  }
}

}  // namespace
}  // namespace strata::launcher
