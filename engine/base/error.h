// The exceptions of Strata. Nothing else leaves our code: torch's, nlohmann's and Lua's own errors
// are translated where they arise.
#pragma once

#include <stdexcept>
#include <string>

namespace strata {

/// Base of everything that Strata throws. `what()` is for the user's eyes: complete sentences, one
/// or several lines, no trailing newline, no back-trace.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the user declared is wrong. Thrown before any process starts. The text says where, what was
/// expected, what came, and the nearest valid name.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// The world failed: a peer died, memory or disk ran out, a file is missing or damaged.
class WorldError : public Error {
 public:
  using Error::Error;
};

}  // namespace strata
