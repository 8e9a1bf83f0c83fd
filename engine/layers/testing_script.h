// A script for tests, without Lua.
#pragma once

#include <utility>

#include "engine/layers/script.h"

namespace strata {

/// A Script that answers each call with `answer` and records the last function and its arguments.
/// The outputs of its layers have the shapes of the inputs; it has no data.
struct AnsweringScript : Script {
  explicit AnsweringScript(Value answer = {}) : answer(std::move(answer)) {}

  Value Call(const FunctionRef& function, const Value::List& arguments) override {
    called = function;
    asked = arguments;
    return answer;
  }
  TensorSpecs InferShapes(const LayerSpec&, const TensorSpecs& inputs) override { return inputs; }
  FirstBatch InferData(const FunctionRef&, int64_t) override { return {}; }
  void TryLoss(const LayerSpec&, const TensorSpecs&, const TensorSpecs&) override {}

  Value answer;
  FunctionRef called;
  Value::List asked;
};

}  // namespace strata
