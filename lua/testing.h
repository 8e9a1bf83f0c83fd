// Helpers for tests of scripts: a folder for files, and a state whose output is collected.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/error.h"
#include "lua/core/state.h"

namespace strata::lua {

/// A folder for the current test, below the test's temporary folder.
class ScriptFolder {
 public:
  ScriptFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) / test->test_suite_name() / test->name();
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  /// Writes a file below the folder and returns its path.
  std::string Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class StateTest : public testing::Test {
 protected:
  StateOptions Options() {
    StateOptions options;
    options.memory_limit = size_t{64} << 20;
    options.seconds = 10;
    options.print = [this](std::string_view text) { printed_ += text; };
    return options;
  }

  /// The text that the prompt shows after evaluating `text`.
  std::string Show(const std::string& text) { return state().Evaluate(text).shown; }

  /// The error of evaluating `text`; "" if there is none.
  std::string Fail(const std::string& text) {
    try {
      state().Evaluate(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  State& state() {
    if (!state_) state_ = std::make_unique<State>(Options());
    return *state_;
  }

  std::string printed_;
  std::unique_ptr<State> state_;
};

/// A test whose state has evaluated the lines kLines at the prompt.
template <const char* kLines>
class BegunTest : public StateTest {
 protected:
  void SetUp() override { Show(kLines); }
};

}  // namespace strata::lua
