// Shapes and parameters of every layer against PyTorch's, testdata/layers.json.
#include <gtest/gtest.h>

#include <map>

#include "engine/base/text.h"
#include "engine/spec/layers.h"
#include "engine/spec/testing.h"

namespace strata {
namespace {

const Value& Golden() {
  static const Value golden = ReadJson("engine/spec/testdata/layers.json");
  return golden;
}

TensorSpec ToTensorSpec(const Value& value) {
  return {value.as_list()[0].as_ints(), ParseDType(value.as_list()[1].as_string())};
}

/// The outcome in the form of the file: the output's spec, or "no" for both kinds of refusal.
std::string Outcome(const Value::List& golden_case) {
  TensorSpecs inputs;
  for (const Value& input : golden_case[2].as_list()) inputs.push_back(ToTensorSpec(input));
  try {
    const LayerSpec spec = Layer(golden_case[0].as_string(), {}, golden_case[1].as_map());
    return ToString(InferLayer(spec, inputs, nullptr));
  } catch (const ConfigError&) {
    return "no";
  }
}

/// Tokens: classes in the last dim, where PyTorch itself would want a transpose.
bool HasClassesLast(const Value::List& golden_case) {
  const std::string& type = golden_case[0].as_string();
  const Value::List& inputs = golden_case[2].as_list();
  if ((type != "NLLLoss" && type != "CrossEntropyLoss") || !golden_case[3].is_string())
    return false;
  TensorSpec output = ToTensorSpec(inputs[0]);
  output.shape.pop_back();
  return output.shape.size() > 1 && ToTensorSpec(inputs[1]).shape == output.shape;
}

TEST(LayersGolden, ShapesArePyTorchs) {
  std::map<std::string, int> accepted, refused;
  for (const Value& entry : Golden()["shapes"].as_list()) {
    const Value::List& golden_case = entry.as_list();
    if (HasClassesLast(golden_case)) continue;
    const Value& expected = golden_case[3];
    const bool fits = expected.is_list();
    EXPECT_EQ(Outcome(golden_case), fits ? ToTensorSpec(expected).ToString() : "no")
        << entry.ToJson();
    ++(fits ? accepted : refused)[golden_case[0].as_string()];
  }
  for (const std::string& name : LayerTypeNames()) {
    const LayerType& type = *FindLayerType(name);
    if (type.holds_layers || !type.stands_for.empty()) continue;
    EXPECT_GE(accepted[name], 8) << name;
  }
  for (const char* name : {"Conv1d", "Conv2d", "ConvTranspose2d", "MaxPool2d", "Flatten"}) {
    EXPECT_GE(refused[name], 50) << name;
  }
}

Value State(const LayerSpec& spec) {
  Value::List state;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    state.push_back(Value::List{parameter.name, Value::IntList(parameter.shape), parameter.buffer});
  }
  return state;
}

TEST(LayersGolden, ParametersAreThoseOfStateDict) {
  ASSERT_GE(Golden()["parameters"].as_list().size(), 300u);
  for (const Value& entry : Golden()["parameters"].as_list()) {
    const Value::List& golden_case = entry.as_list();
    const LayerSpec spec = Layer(golden_case[0].as_string(), {}, golden_case[1].as_map());
    EXPECT_EQ(State(spec), golden_case[2]) << entry.ToJson();
  }
}

}  // namespace
}  // namespace strata
