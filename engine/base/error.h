// The exceptions of Strata. Our code throws only these: errors of torch, nlohmann::json and Lua
// are translated where they arise.
#pragma once

#include <stdexcept>
#include <string>

namespace strata {

/// The base of everything that Strata throws. Users read `what()`: it is complete sentences in one
/// or several lines, without a trailing newline and without a back-trace.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user asked for something wrong: in a script, on the command line or in a call. The text says
/// where, what was expected, what came, and the nearest valid name.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// Something outside the program failed: a peer died, memory or disk ran out, a file is missing or
/// damaged.
class WorldError : public Error {
 public:
  using Error::Error;
};

}  // namespace strata
