// Helpers that the tests of all packages use: golden files, and the text of a thrown error.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata {

/// The parsed file tests/golden/NAME.json. The test target's `data` must name the file. The path is
/// relative, since tests run at the workspace's root.
inline nlohmann::json Golden(const std::string& name) {
  std::ifstream file("tests/golden/" + name + ".json");
  STRATA_CHECK(file.good()) << "no golden file " << name;
  return nlohmann::json::parse(file);
}

/// The text of the Error that `call` throws, or "no error" when it throws none.
template <class Call>
std::string ErrorOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// As ErrorOf(), for a ConfigError. An Error of another class is passed on and fails the test.
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
