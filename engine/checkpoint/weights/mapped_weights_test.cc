#include "engine/checkpoint/weights/mapped_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/checkpoint/weights/published_config.h"
#include "engine/checkpoint/weights/taking.h"
#include "engine/layers/layer_types.h"

namespace {
size_t largest_new = 0;  // bytes of the largest block that `new` gave
}

void* operator new(size_t bytes) {
  largest_new = std::max(largest_new, bytes);
  if (void* block = std::malloc(std::max<size_t>(bytes, 1))) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = MappedWeights::Lookup::Kind;

Value Rule(Value ours, Value theirs, Value::Map options = {}) {
  Value rule = Value::MakeMap({{"1", std::move(ours)}, {"2", std::move(theirs)}});
  for (const auto& [name, value] : options) rule.Set(name, value);
  return rule;
}

Value Names(std::vector<std::string> names) { return Value::List(names.begin(), names.end()); }

class MappedWeightsTest : public testing::Test {
 protected:
  MappedWeights With(std::vector<TestWeight> theirs, const Value& map,
                     const std::string& prefix = "") {
    const std::string path = folder_.Inside(Str(++files_, ".safetensors"));
    WriteTestWeights(path, theirs);
    opened_.push_back(Checkpoint::Open(path));
    return MappedWeights(*opened_.back(), WeightMap::From(map, nullptr), prefix);
  }
  static std::vector<float> Read(const MappedWeights& weights, const std::string& name,
                                 const std::vector<int64_t>& shape) {
    const auto lookup = weights.Find({name, {shape, DType::kFloat32}});
    EXPECT_EQ(lookup.kind, Kind::kFound) << lookup.trouble;
    if (lookup.kind != Kind::kFound) return {};
    return ReadBox(weights, lookup.tensor, Slice::Whole(shape));
  }
  static std::vector<float> ReadBox(const MappedWeights& weights, const MappedTensor& tensor,
                                    const Slice& box) {
    std::vector<float> values(static_cast<size_t>(box.count));
    weights.Read(tensor, box, values.data());
    return values;
  }
  static std::string Trouble(const MappedWeights& weights, const std::string& name,
                             const std::vector<int64_t>& shape) {
    return weights.Find({name, {shape, DType::kFloat32}}).trouble;
  }

  TestFolder folder_;
  int files_ = 0;
  std::vector<std::unique_ptr<Checkpoint>> opened_;
};

TEST_F(MappedWeightsTest, SameNamesWithoutAMap) {
  const MappedWeights weights = With({{"a.w", {2, 3}}}, {});
  EXPECT_THAT(Read(weights, "a.w", {2, 3}), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(MappedWeightsTest, WhatConfigJsonSaysOtherwiseIsTold) {
  WriteTestWeights(folder_.Inside("model.safetensors"), {{"model.norm.weight", {2}}});
  LayerSpec block;
  block.type = "Block";
  block.scripted = true;
  block.children = {
      MakeLayer("RMSNorm", {8}, {{"eps", 1e-5}}, {}, "net.lua:3"),
      MakeLayer("GroupedQueryAttention", {8, 4}, {{"num_kv_heads", 2}}, {}, "net.lua:3")};
  const LayerSpec encoder = MakeLayer("TransformerEncoderLayer", {8, 2}, {}, {}, "net.lua:3");
  const auto notes = [&](const char* map, const LayerSpec& layer, const std::string& config) {
    WriteText(folder_.Inside("config.json"), config);
    const auto source = Checkpoint::Open(folder_.path());
    return ConfigNotes(MappedWeights(*source, WeightMap::From(map, nullptr)), {layer});
  };
  const std::string says = folder_.Inside("config.json says ");
  EXPECT_THAT(notes("llama", block, R"({"num_attention_heads": 4, "num_key_value_heads": null,
                "rope_theta": 10000, "rms_norm_eps": 9.999999747378752e-06, "hidden_act": "silu",
                "rope_scaling": null, "sliding_window": 4096, "use_sliding_window": false})"),
              IsEmpty());
  EXPECT_THAT(notes("llama", block, R"({"num_attention_heads": 8, "num_key_value_heads": 4,
                "rope_theta": 500000.0, "rms_norm_eps": 1e-6, "hidden_act": "gelu",
                "rope_scaling": {"rope_type": "llama3"}, "sliding_window": 4096})"),
              ElementsAre(says + "num_attention_heads 8, the job's layers have 4",
                          says + "num_key_value_heads 4, the job's layers have 2",
                          says + "rope_theta 500000, the job's layers have 10000",
                          AllOf(HasSubstr("rope_scaling {"), HasSubstr("llama3"),
                                HasSubstr(", the job's layers have none")),
                          says + "sliding_window 4096, the job's layers have none",
                          says + "rms_norm_eps 1e-06, the job's layers have 1e-05",
                          says + "hidden_act \"gelu\", the job's layers have \"silu\""));
  EXPECT_THAT(
      notes("llama", block, R"({"rope_parameters": {"rope_theta": 5000, "rope_type": "default"}})"),
      ElementsAre(says + "rope_theta 5000, the job's layers have 10000"));
  EXPECT_THAT(notes("llama", block, R"({"rope_parameters": {"rope_type": "yarn", "factor": 4}})"),
              ElementsAre(HasSubstr("rope_scaling {")));
  for (const char* map : {"bert", "vit"}) {
    EXPECT_THAT(notes(map, encoder, R"({"num_attention_heads": 2, "layer_norm_eps": 1e-12,
                  "hidden_act": "gelu"})"),
                ElementsAre(says + "layer_norm_eps 1e-12, the job's layers have 1e-05",
                            says + "hidden_act \"gelu\", the job's layers have \"relu\""));
  }
  EXPECT_THAT(notes("gpt2", MakeLayer("MultiheadAttention", {8, 2}, {}, {}, "net.lua:3"),
                    R"({"n_head": 4, "n_embd": 16, "model_type": "mine"})"),
              ElementsAre(says + "n_head 4, the job's layers have 2"));
  EXPECT_THAT(notes("llama", block, "{"),
              ElementsAre(HasSubstr("; the job's layers are not compared with it")));
  EXPECT_THAT(notes("llama", block, "[]"), IsEmpty());
}

TEST_F(MappedWeightsTest, Operations) {
  const MappedWeights weights =
      With({{"q", {2, 2}, 0}, {"k", {1, 2}, 10}, {"v", {2, 2}, 20}, {"t", {2, 3}, 0}, {"s", {}, 7}},
           Value::List{Rule("turned", "t", {{"transpose", true}}),
                       Rule("joined", Names({"q", "k", "v"})),
                       Rule("beside", Names({"q", "v"}), {{"dim", 1}}),
                       Rule("both", Names({"t", "t"}), {{"transpose", true}, {"dim", 1}}),
                       Rule("second", "t", {{"part", Value::IntList({1, 2})}}),
                       Rule("middle", "t", {{"part", Value::IntList({1, 3})}, {"dim", 1}}),
                       Rule("{name}", "{name}")});
  EXPECT_THAT(Read(weights, "turned", {3, 2}), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(Read(weights, "joined", {5, 2}), ElementsAre(0, 1, 2, 3, 10, 11, 20, 21, 22, 23));
  EXPECT_THAT(Read(weights, "beside", {2, 4}), ElementsAre(0, 1, 20, 21, 2, 3, 22, 23));
  EXPECT_THAT(Read(weights, "both", {3, 4}), ElementsAre(0, 3, 0, 3, 1, 4, 1, 4, 2, 5, 2, 5));
  EXPECT_THAT(Read(weights, "second", {1, 3}), ElementsAre(3, 4, 5));
  EXPECT_THAT(Read(weights, "middle", {2, 1}), ElementsAre(1, 4));
  EXPECT_THAT(Read(weights, "s", {}), ElementsAre(7));
}

/// Reads the boxes that a rank of the model axis holds of a tensor.
TEST_F(MappedWeightsTest, Boxes) {
  const MappedWeights weights = With(
      {{"t", {4, 6}}}, Value::List{Rule("turned", "t", {{"transpose", true}}), Rule("t", "t")});
  for (const auto& [name, shape] : {std::pair("turned", std::vector<int64_t>{6, 4}),
                                    std::pair("t", std::vector<int64_t>{4, 6})}) {
    const auto found = weights.Find({name, {shape, DType::kFloat32}});
    ASSERT_EQ(found.kind, Kind::kFound) << found.trouble;
    const std::vector<float> whole = ReadBox(weights, found.tensor, Slice::Whole(shape));
    for (const Slice& box : AllBoxes(shape)) {
      std::vector<float> expected;
      for (int64_t row = 0; row < box.shape[0]; ++row) {
        for (int64_t column = 0; column < box.shape[1]; ++column) {
          expected.push_back(whole[static_cast<size_t>((box.offset[0] + row) * shape[1] +
                                                       box.offset[1] + column)]);
        }
      }
      ASSERT_EQ(ReadBox(weights, found.tensor, box), expected) << box.ToString();
    }
  }
}

/// A rank needs no memory for a tensor beside the place where it belongs.
TEST_F(MappedWeightsTest, ALargeTensorIsConvertedPieceByPiece) {
  constexpr int64_t kRows = 3 << 10, kColumns = 1 << 10, kMiB = 1 << 20;
  const MappedWeights weights = With({{"a", {kRows, kColumns}}}, Value());
  const auto lookup = weights.Find({"a", {{kRows, kColumns}, DType::kBFloat16}});
  ASSERT_EQ(lookup.kind, Kind::kFound) << lookup.trouble;
  std::vector<uint16_t> values(kRows * kColumns);
  largest_new = 0;
  weights.Read(lookup.tensor, Slice::Whole({kRows, kColumns}), values.data());
  EXPECT_LE(largest_new, kMiB);
  EXPECT_NE(values.back(), 0);
}

TEST_F(MappedWeightsTest, DTypesAreConverted) {
  const std::string path = "engine/checkpoint/testdata/tensors.pt";
  const auto source = Checkpoint::Open(path);
  const MappedWeights weights(*source, WeightMap());
  EXPECT_THAT(Read(weights, "brain", {3}), ElementsAre(1, -2, 3));
  EXPECT_THAT(Read(weights, "half", {3}), ElementsAre(1, -2, 65504));
  EXPECT_THAT(Read(weights, "scalar", {}), ElementsAre(2.5));
  EXPECT_THAT(Trouble(weights, "counts", {5}), HasSubstr("\"counts\" is int64 (5,)"));
}

TEST_F(MappedWeightsTest, WhatDoesNotFitIsNamed) {
  const MappedWeights weights =
      With({{"layer.weight", {2, 3}}, {"layer.bias", {3}}, {"old", {1}}, {"noise.0", {1}}},
           Value::MakeMap({{"1", Rule("l.{p}", "layer.{p}")},
                           {"2", Rule("m", "layer.weigth")},
                           {"3", Rule("cut", "layer.bias", {{"part", Value::IntList({0, 2})}})},
                           {"4", Rule("turned", "layer.bias", {{"transpose", true}})},
                           {"5", Rule("both", Names({"layer.weight", "layer.bias"}))},
                           {"ignore", Names({"noise.{i}"})}}));
  EXPECT_EQ(Trouble(weights, "l.weight", {3, 2}),
            "tensor \"layer.weight\" is float32 (2, 3), this job's \"l.weight\" is float32 (3, 2)");
  EXPECT_EQ(Trouble(weights, "m", {2, 3}),
            "m (theirs \"layer.weigth\"; did you mean \"layer.weight\"?)");
  EXPECT_EQ(Trouble(weights, "x", {1}), "x (the map has no rule for it)");
  EXPECT_THAT(Trouble(weights, "cut", {1}), HasSubstr("cannot be cut into 2 along dim 0"));
  EXPECT_THAT(Trouble(weights, "turned", {3}),
              HasSubstr("only a tensor of two dims is transposed"));
  EXPECT_THAT(Trouble(weights, "both", {3, 3}), HasSubstr("shapes that do not join"));

  std::vector<MappedTensor> found;
  Taken taken = Take(weights, {{"l.bias", {{3}}}, {"l.weight", {{9}}}, {"x", {{1}}}}, found);
  EXPECT_THAT(found, SizeIs(1));
  const Taken other =
      Taken::FromJson(Take(weights, {{"l.bias", {{3}}}, {"x", {{1}}}}, found).ToJson());
  taken.Add(other);
  EXPECT_THAT(TroublesWith(weights, taken),
              ElementsAre(AllOf(HasSubstr("not in "), HasSubstr(": x (the map")),
                          HasSubstr("of another shape, or dtype: tensor \"layer.weight\""),
                          AllOf(HasSubstr("nobody takes it: old"))));
}

TEST_F(MappedWeightsTest, ACopyIsTheSame) {
  const Value copies =
      Value::MakeMap({{"1", Rule("{name}", "[model.]{name}")},
                      {"ignore", Value::List{"old", Names({"head", "[model.]wte"})}}});
  const auto trouble = [&](const TestWeight& head, const std::string& taken) {
    const MappedWeights weights = With({{"model.wte", {2}, 1}, {"x", {2}}, head}, copies);
    EXPECT_THAT(weights.Unused({"model.wte"}), ElementsAre("x"));
    std::vector<MappedTensor> found;
    EXPECT_THAT(Take(weights, {{taken, {{2}}}}, found).used, SizeIs(1));
    return ErrorOf([&] { weights.CheckCopies(found); });
  };
  EXPECT_EQ(trouble({"head", {2}, 1}, "wte"), "no error");
  EXPECT_THAT(trouble({"head", {2}, 5}, "wte"), HasSubstr("\"head\" is not what \"model.wte\""));
  EXPECT_THAT(trouble({"head", {1}, 1}, "wte"), HasSubstr("\"head\" is not what \"model.wte\""));
  EXPECT_EQ(trouble({"head", {2}, 5}, "x"), "no error") << "nobody takes it";

  const MappedWeights untied =
      With({{"transformer.wte.weight", {2, 2}, 1}, {"lm_head.weight", {2, 2}, 9}}, "gpt2");
  std::vector<MappedTensor> found;
  Take(untied, {{"wte.weight", {{2, 2}}}}, found);
  EXPECT_THAT(ErrorOf([&] { untied.CheckCopies(found); }),
              HasSubstr("\"lm_head.weight\" is not what \"transformer.wte.weight\" holds"));
}

LayerSpec Norm(Value::Map arguments = {}) {
  return MakeLayer("BatchNorm1d", {4}, std::move(arguments), {}, "");
}

TEST_F(MappedWeightsTest, CountsThatNobodyUsesMayMiss) {
  LayerSpec named = Norm();
  named.name = "bn";
  const LayerSpec average = Norm({{"momentum", "none"}});
  const std::vector<LayerSpec> layers = {named, average,
                                         MakeLayer("Sequential", {}, {}, {Norm()}, ""),
                                         MakeLayer("Sequential", {}, {}, {Norm(), average}, "")};
  EXPECT_THAT(TensorsThatMayMiss(layers),
              ElementsAre("2.0.num_batches_tracked", "bn.num_batches_tracked"));

  const MappedWeights weights = With({{"bn.weight", {4}}}, {});
  const std::vector<WantedTensor> wanted = {{"bn.weight", {{4}}},
                                            {"bn.num_batches_tracked", {{}, DType::kInt64}, true},
                                            {"1.num_batches_tracked", {{}, DType::kInt64}}};
  std::vector<MappedTensor> found;
  EXPECT_THAT(Take(weights, wanted, found).missing, ElementsAre("1.num_batches_tracked"));
  EXPECT_THAT(found, SizeIs(1));
}

/// A file may have tensors of unknown dtypes, as long as the job does not use them.
TEST_F(MappedWeightsTest, UnknownTypesMatterWhereTheyAreTaken) {
  const std::string path = folder_.Inside("u.safetensors");
  SafetensorsWriter writer(
      path, {{"w", "F32", {1}}, {"count", "U16", {2}}, {"scale", "F8_E4M3", {1}}}, {});
  const std::vector<char> bytes(9);
  writer.Write(bytes.data(), 9);
  writer.Finish();
  const auto source = Checkpoint::Open(path);
  const MappedWeights weights(*source, WeightMap());
  EXPECT_THAT(Read(weights, "w", {1}), ElementsAre(0));
  EXPECT_EQ(Trouble(weights, "count", {2}),
            "tensor \"count\" is U16 (2,), a dtype that Strata does not know");
  EXPECT_THAT(weights.Unused({"w"}), ElementsAre("count", "scale"));
  std::vector<MappedTensor> found;
  const Taken taken = Take(weights, {{"w", {{1}}}, {"count", {{2}}}}, found);
  EXPECT_THAT(TroublesWith(weights, taken),
              ElementsAre(AllOf(HasSubstr("of another shape, or dtype"), HasSubstr("is U16 (2,)")),
                          HasSubstr("nobody takes it: scale")));
  EXPECT_THAT(ErrorOf([&] { Exported(weights); }),
              HasSubstr("tensor \"count\" is U16 (2,), a dtype that Strata does not know"));
  EXPECT_THAT(ErrorOf([&] {
                Merge(*source, folder_.Inside("out"), [](const SavedTensor&) { return true; });
              }),
              HasSubstr("tensor \"count\" is U16 (2,), a dtype that Strata does not know"));
}

TEST_F(MappedWeightsTest, APrefixThatTheMapDoesNotKnow) {
  const MappedWeights weights = With({{"model.a", {1}, 4}, {"step", {1}}}, {}, "model.");
  EXPECT_THAT(Read(weights, "a", {1}), ElementsAre(4));
  EXPECT_THAT(weights.Unused({}), ElementsAre("a"));
  EXPECT_THAT(ErrorOf([&] {
                With({{"a", {1}}}, {}, "modell.");
              }),
              HasSubstr("has no tensor whose name begins with \"modell.\""));
}

TEST_F(MappedWeightsTest, AMapThatIsAFunction) {
  const std::string path = folder_.Inside("f.safetensors");
  WriteTestWeights(path, {{"W", {2, 1}, 1}, {"B", {1}, 8}});
  const auto source = Checkpoint::Open(path);
  const auto call = [](const Value::List& arguments) -> Value {
    if (arguments[0] == Value("w")) return Value::MakeMap({{"1", "W"}, {"transpose", true}});
    if (arguments[0] == Value("wb")) return Names({"B", "B"});
    return arguments[0] == Value("b") ? Value("B") : Value();
  };
  Value function = FunctionRef{1, "a.lua:1", ""};
  const MappedWeights weights(*source, WeightMap::From(function, call));
  EXPECT_THAT(Read(weights, "b", {1}), ElementsAre(8));
  EXPECT_THAT(Read(weights, "wb", {2}), ElementsAre(8, 8));
  EXPECT_THAT(Trouble(weights, "none", {1}), HasSubstr("no rule"));
  EXPECT_THAT(ErrorOf([&] { Exported(weights); }), HasSubstr("a function goes one way"));
}

TEST_F(MappedWeightsTest, WhatIsNoMap) {
  const auto trouble = [](const Value& map) {
    return ConfigErrorOf([&] { WeightMap::From(map, nullptr); });
  };
  EXPECT_THAT(trouble("gpt"), HasSubstr("there is no map \"gpt\"; did you mean \"gpt2\"?"));
  EXPECT_THAT(trouble(Value::List{Rule("a", "b", {{"transposed", true}})}),
              HasSubstr("\"transpose\""));
  EXPECT_THAT(trouble(Value::List{Rule("a", Value::List{3})}), HasSubstr("must be names"));
  EXPECT_THAT(trouble(Value::List{Rule("a", "b", {{"part", Value::IntList({2, 2})}})}),
              HasSubstr("part is {k, n}"));
  EXPECT_THAT(trouble(Value::MakeMap({{"ignore", Value::List{Names({"a", "b", "c"})}}})),
              HasSubstr("ignore has names and {copy, of}"));
  for (const auto& [name, map] : BuiltInMaps()) EXPECT_EQ(trouble(name), "no error");
}

TEST_F(MappedWeightsTest, ExportedIsImportedBackwards) {
  const Value map = Value::List{Rule("turned", "T", {{"transpose", true}}),
                                Rule("joined", Names({"Q", "K"})),
                                Rule("beside", Names({"L", "R"}), {{"dim", 1}}),
                                Rule("first", "F", {{"part", Value::IntList({0, 2})}}),
                                Rule("second", "F", {{"part", Value::IntList({1, 2})}}),
                                Rule("again", "T", {{"transpose", true}, {"tied", true}})};
  const std::vector<TestWeight> ours = {{"turned", {2, 3}, 0},  {"joined", {4, 1}, 10},
                                        {"beside", {2, 4}, 20}, {"first", {1, 2}, 30},
                                        {"second", {1, 2}, 32}, {"again", {2, 3}, 0}};
  const MappedWeights weights = With(ours, map);
  const std::vector<MappedTensor> theirs = Exported(weights);
  std::vector<std::string> names;
  for (const MappedTensor& tensor : theirs)
    names.push_back(Str(tensor.name, FormatShape(tensor.spec.shape)));
  EXPECT_THAT(names, ElementsAre("T(3, 2)", "Q(2, 1)", "K(2, 1)", "L(2, 2)", "R(2, 2)", "F(2, 2)"));
  const auto values = [&](size_t i) {
    return ReadBox(weights, theirs[i], Slice::Whole(theirs[i].spec.shape));
  };
  EXPECT_THAT(values(0), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(values(2), ElementsAre(12, 13));
  EXPECT_THAT(values(4), ElementsAre(22, 23, 26, 27));
  EXPECT_THAT(values(5), ElementsAre(30, 31, 32, 33));
}

TEST_F(MappedWeightsTest, WhatCannotBeExported) {
  const auto trouble = [&](std::vector<TestWeight> ours, const Value& map) {
    return ErrorOf([&] { Exported(With(ours, map)); });
  };
  EXPECT_THAT(trouble({{"a", {1}}}, Value::List{Rule("b", "B")}),
              HasSubstr("\"a\", for which the map has no rule"));
  EXPECT_THAT(trouble({{"a", {3}}}, Value::List{Rule("a", Names({"B", "C"}))}),
              HasSubstr("cannot be cut into 2 along dim 0"));
  EXPECT_THAT(
      trouble({{"a", {3}}}, Value::List{Rule("a", "B", {{"part", Value::IntList({1, 2})}})}),
      HasSubstr("\"B\": parts of it are not there"));
  EXPECT_THAT(trouble({{"a", {1}, 1}, {"b", {1}, 2}},
                      Value::List{Rule("a", "A"), Rule("b", "A", {{"tied", true}})}),
              HasSubstr("\"b\" is not what \"A\" holds"));
}

}  // namespace
}  // namespace strata
