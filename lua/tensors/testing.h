// Shared by the tests of this folder: a state with tensors, as the prompt has it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "lua/core/core.h"
#include "lua/core/state.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {

class TensorsTest : public testing::Test {
 protected:
  TensorsTest() {
    Session session(state_);
    session.Run([](lua_State* L) { OpenTensors(L); });
  }
  std::string Shown(const std::string& line) { return state_.Evaluate(line).shown; }
  std::string ErrorOf(const std::string& line) {
    try {
      return "no error, but " + Shown(line);
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  State state_;
};

/// An expression and the text that the prompt shows for it.
struct Example {
  std::string text, shown;
};

}  // namespace strata::lua
