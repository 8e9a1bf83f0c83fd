// Tests names, order and defaults of arguments against PyTorch's, from testdata/signatures.json.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/base/text.h"
#include "engine/job/job_fields.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

const Value& Signatures() {
  static const Value signatures = ReadJson("engine/layers/testdata/signatures.json");
  return signatures;
}

/// Compares a table with PyTorch's signature. Our own arguments come after PyTorch's and can only
/// be given by name.
void ExpectSignature(const std::string& type, const FieldTable& table, const Value& signature) {
  const Value::List& arguments = signature.as_list();
  FieldTable ours;
  for (const Field& field : table) {
    bool known = false;
    for (const Value& argument : arguments) known |= argument.as_list()[0] == Value(field.name);
    if (known) {
      ours.push_back(field);
    } else {
      EXPECT_TRUE(field.named_only) << type << " adds " << field.name << " with a position";
    }
  }
  ASSERT_EQ(ours.size(), arguments.size()) << type;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Value::List& argument = arguments[i].as_list();
    const bool named_only = argument.size() == 3;
    const Field* field = FindField(ours, argument[0].as_string());
    ASSERT_NE(field, nullptr) << type;
    const std::string what = Str(type, ".", field->name);
    EXPECT_EQ(field->named_only, named_only) << what;
    EXPECT_TRUE(named_only || ours[i].name == field->name) << type << " has another order";
    if (!field->refused.empty()) continue;
    EXPECT_EQ(field->required, argument.size() == 1) << what;
    if (field->required) continue;
    const Value expected =
        argument[1].is_null() ? Value() : CanonicalizeField(*field, argument[1], {});
    EXPECT_EQ(field->fallback, expected) << what;
  }
}

TEST(Signatures, LayersTakePyTorchsArguments) {
  for (const auto& [type, signature] : Signatures()["layers"].as_map()) {
    const LayerType* found = FindLayerType(type);
    ASSERT_NE(found, nullptr) << type;
    ExpectSignature(type, found->fields, signature);
  }
}

TEST(Signatures, EveryLayerIsCompared) {
  for (const std::string& name : LayerTypeNames()) {
    static const std::set<std::string> ours = {
        "Residual",        "TransformerEncoder",    "TransformerDecoder",
        "RotaryEmbedding", "GroupedQueryAttention", "SwiGLU"};
    const bool is_ours = ours.contains(name) || !FindLayerType(name)->stands_for.empty();
    EXPECT_TRUE(is_ours || Signatures()["layers"].Has(name)) << name;
  }
}

TEST(Signatures, OptimizersTakePyTorchsArguments) {
  for (const OptionTable& type : OptimizerTypes()) {
    if (type.name == "lion") continue;  // PyTorch has none
    ExpectSignature(type.name, type.fields, Signatures()["optimizers"][type.name]);
  }
  EXPECT_EQ(OptimizerTypes().size(), Signatures()["optimizers"].as_map().size() + 1);
}

}  // namespace
}  // namespace strata
