// A script for tests, without Lua.
#pragma once

#include <utility>

#include "engine/layers/script.h"

namespace strata {

/// Answers each call with `answer` and keeps what it was asked. Its layers keep the shapes of their
/// inputs; its data are none.
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
