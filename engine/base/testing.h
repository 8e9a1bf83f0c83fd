// What the tests of every package share.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata {

/// tests/golden/NAME.json. Tests run at the workspace's root; the target's `data` must name the
/// file.
inline nlohmann::json Golden(const std::string& name) {
  std::ifstream file("tests/golden/" + name + ".json");
  STRATA_CHECK(file.good()) << "no golden file " << name;
  return nlohmann::json::parse(file);
}

/// What the error says that `call` throws; "no error" without one.
template <class Call>
std::string ErrorOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The same for a ConfigError; another error of ours is passed on and fails the test.
template <class Call>
std::string ConfigErrorOf(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace strata
