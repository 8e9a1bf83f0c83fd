// Helpers for this package's tests: making layers and values, and the text of a ConfigError.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/value.h"
#include "engine/layers/layer_types.h"

namespace strata {

/// The content of a JSON file of this repository.
inline Value ReadJson(const std::string& path) {
  std::ifstream file(path);
  return Value::FromJson(std::string(std::istreambuf_iterator<char>(file), {}));
}

/// The text of the ConfigError that `call` throws; "" when it throws none. Any other exception
/// fails the test by itself.
template <class F>
std::string ErrorOf(F call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// The layer that nn.TYPE{...} gives in a script.
inline LayerSpec Layer(const std::string& type, Value::List positional = {},
                       Value::Map named = {}) {
  return MakeLayer(type, positional, named, {}, "");
}

inline LayerSpec Holding(const std::string& type, std::vector<LayerSpec> children) {
  return MakeLayer(type, {}, {}, std::move(children), "");
}

inline Value Ints(const std::vector<int64_t>& ints) { return Value::IntList(ints); }

/// A reference to a Lua function at this place.
inline FunctionRef Function(const std::string& where) {
  return {.id = 1, .where = where, .digest = "d"};
}

}  // namespace strata
