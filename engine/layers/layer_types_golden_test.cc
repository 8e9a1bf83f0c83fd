// Tests shapes and parameters of every layer against PyTorch's, from testdata/layers_spec.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

const Value& Golden() {
  static const Value golden = ReadJson("engine/layers/testdata/layers_spec.json");
  return golden;
}

TensorSpec ToTensorSpec(const Value& value) {
  return {value.as_list()[0].as_ints(), ParseDType(value.as_list()[1].as_string())};
}

/// The outcome in the form of the file: the first output's spec, or "no" for any refusal.
std::string Outcome(const Value::List& golden_case) {
  TensorSpecs inputs;
  for (const Value& input : golden_case[2].as_list()) inputs.push_back(ToTensorSpec(input));
  const std::string& type = golden_case[0].as_string();
  Value::Map arguments = golden_case[1].as_map();
  // PyTorch has the classes in dim 1 always; without class_dim we take them in the last dim, too.
  if (type == "NLLLoss" || type == "CrossEntropyLoss") arguments.emplace_back("class_dim", 1);
  try {
    const LayerSpec spec = Layer(type, {}, arguments);
    return InferLayer(spec, inputs, nullptr).at(0).ToString();
  } catch (const ConfigError&) {
    return "no";
  }
}

/// True for layers that PyTorch does not have.
bool IsOurs(const std::string& name) {
  return name == "RotaryEmbedding" || name == "GroupedQueryAttention" || name == "SwiGLU";
}

TEST(LayersGolden, ShapesArePyTorchs) {
  std::map<std::string, int> accepted, refused;
  for (const Value& entry : Golden()["shapes"].as_list()) {
    const Value::List& golden_case = entry.as_list();
    const Value& expected = golden_case[3];
    const bool fits = expected.is_list();
    EXPECT_EQ(Outcome(golden_case), fits ? ToTensorSpec(expected).ToString() : "no")
        << entry.ToJson();
    ++(fits ? accepted : refused)[golden_case[0].as_string()];
  }
  for (const std::string& name : LayerTypeNames()) {
    const LayerType& type = *FindLayerType(name);
    if (type.holds_layers || !type.stands_for.empty() || IsOurs(name)) continue;
    EXPECT_GE(accepted[name], 8) << name;
  }
  for (const char* name :
       {"Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "MaxPool2d", "Flatten"}) {
    EXPECT_GE(refused[name], 50) << name;
  }
}

/// The shapes of one side of LayerType::shapes, such as "(N, C, ...) and (N, ...)", as lists of
/// names.
std::vector<std::vector<std::string>> Names(std::string_view side) {
  std::vector<std::vector<std::string>> shapes;
  for (size_t open = side.find('('); open != side.npos; open = side.find('(', open + 1)) {
    auto& names = shapes.emplace_back();
    const std::string inside(side.substr(open + 1, side.find(')', open) - open - 1));
    if (inside.empty()) continue;
    for (const std::string& name : Split(inside, ',')) names.emplace_back(Trim(name));
  }
  return shapes;
}

/// Matches names with sizes; "..." matches several sizes.
class Sizes {
 public:
  explicit Sizes(const Value& args) {
    for (const auto& [name, value] : args.as_map()) {
      if (value.is_int()) sizes_[name] = {value.as_int()};
      if (!value.is_list()) continue;
      const auto ints = std::ranges::all_of(value.as_list(), [](auto& v) { return v.is_int(); });
      if (ints) sizes_[name] = value.as_ints();
    }
  }
  /// True when the names can stand for the shape. Notes the sizes of new names.
  bool Fit(const std::vector<std::string>& names, std::vector<int64_t> shape) {
    for (size_t i = 0; i < names.size(); ++i) {
      auto known = sizes_.find(names[i]);
      if (known == sizes_.end()) {
        const size_t rest = names.size() - 1 - i;
        const size_t take = names[i] == "..." ? RestFrom(names, i, shape.size()) : 1;
        if (take > shape.size() || (names[i] != "..." && shape.size() < rest)) return false;
        known = sizes_.emplace(names[i], std::vector(shape.begin(), shape.begin() + Signed(take)))
                    .first;
      }
      const std::vector<int64_t>& sizes = known->second;
      if (sizes.size() > shape.size() || !std::equal(sizes.begin(), sizes.end(), shape.begin())) {
        return false;
      }
      shape.erase(shape.begin(), shape.begin() + Signed(sizes.size()));
    }
    return shape.empty();
  }

 private:
  static std::ptrdiff_t Signed(size_t n) { return static_cast<std::ptrdiff_t>(n); }
  /// The number of dims that the "..." at `i` matches, if `left` dims are left.
  size_t RestFrom(const std::vector<std::string>& names, size_t i, size_t left) const {
    size_t behind = 0;
    for (++i; i < names.size(); ++i) {
      const auto known = sizes_.find(names[i]);
      behind += known == sizes_.end() ? 1 : known->second.size();
    }
    return left < behind ? 0 : left - behind;
  }

  std::map<std::string, std::vector<int64_t>> sizes_;
};

TEST(LayersGolden, ShapesInTheHelpAreTrue) {
  // The shapes of these layers are described in words.
  const std::set<std::string> in_words = {
      "Flatten",           "Unflatten",          "GLU",
      "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",  "AdaptiveAvgPool3d",
      "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",  "AdaptiveMaxPool3d",
      "Upsample",          "BatchNorm1d",        "CosineSimilarity",
      "PairwiseDistance",  "GaussianNLLLoss",    "CTCLoss",
      "TripletMarginLoss", "CosineEmbeddingLoss"};
  std::map<std::string, int> fitted;
  for (const Value& entry : Golden()["shapes"].as_list()) {
    const Value::List& golden_case = entry.as_list();
    const std::string& type = golden_case[0].as_string();
    const Value::Map& args = golden_case[1].as_map();
    const Value* first = golden_case[1].Find("batch_first");
    if (in_words.contains(type) || !golden_case[3].is_list() || (first && first->as_bool()) ||
        golden_case[2].as_list().size() > 2) {
      continue;
    }
    const std::string& text = FindLayerType(type)->shapes;
    const size_t arrow = text.find(" -> ");
    ASSERT_NE(arrow, text.npos) << type;
    Sizes sizes(Layer(type, {}, args).args);
    const auto inputs = Names(text.substr(0, arrow));
    bool fits = true;
    for (size_t i = 0; i < golden_case[2].as_list().size(); ++i) {
      fits = fits && sizes.Fit(inputs.at(std::min(i, inputs.size() - 1)),
                               ToTensorSpec(golden_case[2].as_list()[i]).shape);
    }
    fits = fits && sizes.Fit(Names(text.substr(arrow, text.find(';') - arrow)).at(0),
                             ToTensorSpec(golden_case[3]).shape);
    // Losses are exempt: targets of probabilities and single samples have shapes of their own.
    const bool is_loss = FindLayerType(type)->is_loss;
    EXPECT_TRUE(fits || is_loss) << text << " for " << entry.ToJson();
    fitted[type] += fits;
  }
  for (const std::string& name : LayerTypeNames()) {
    const LayerType& type = *FindLayerType(name);
    if (in_words.contains(name) || type.holds_layers || !type.stands_for.empty()) continue;
    if (IsOurs(name)) continue;
    EXPECT_GE(fitted[name], 4) << name;
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
