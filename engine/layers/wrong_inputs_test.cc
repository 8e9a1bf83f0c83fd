// Tests thousands of wrong declarations, made from correct ones. Each must give a ConfigError that
// names the mistake and the nearest valid name, and never the text of another exception.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <functional>

#include "engine/base/text.h"
#include "engine/job/flags/flags.h"
#include "engine/job/job_fields.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

auto IsOurs() {
  return AllOf(Not(HasSubstr("std::")), Not(HasSubstr("json")), Not(HasSubstr("variant")),
               Not(HasSubstr("basic_string")), Not(HasSubstr("regex_error")),
               Not(HasSubstr("stoi")), Not(HasSubstr("bad_")), Not(testing::StartsWith(": ")),
               Not(testing::EndsWith("\n")), Not(testing::EndsWith(" ")));
}

using Calls = std::vector<std::pair<std::string, Value::Map>>;

/// A correct call of each layer and loss, with its required arguments.
const Calls& RightCalls() {
  static const Calls calls = [] {
    Calls found;
    for (const LayerType& type : LayerTypes()) {
      if (type.holds_layers || type.library != "nn" || !type.stands_for.empty()) continue;
      Value::Map named;
      for (const Field& field : type.fields) {
        const bool is_needed = field.required || field.name == "size";  // Upsample's
        if (!is_needed || !field.refused.empty()) continue;
        const Value number = field.name == "dim" ? 8 : 4;
        named.emplace_back(field.name, field.name == "unflattened_size" ? Ints({2, 2}) : number);
      }
      found.emplace_back(type.name, named);
    }
    return found;
  }();
  return calls;
}

const std::vector<Value>& StrangeValues() {
  static const std::vector<Value> values = {
      true,
      -7,
      0.5,
      1e300,
      std::nan(""),
      -HUGE_VAL,
      "",
      "strange",
      Ints({}),
      Ints({1, 2, 3, 4, 5}),
      Ints({-9, -9}),
      Value::List{"a"},
      Value::List{Ints({1})},
      Value::List{Value(), Value()},
      Value::MakeMap({{"a", 1}}),
      Function("net.lua:1"),
  };
  return values;
}

bool Fits(const Field& field, const Value& value) {
  return ErrorOf([&] { CanonicalizeField(field, value, {}); }).empty();
}

/// `name` with one letter missing, doubled, changed or swapped with the next.
std::vector<std::string> Typos(const std::string& name) {
  const size_t middle = name.size() / 2;
  std::string missing = name, doubled = name, changed = name, swapped = name;
  missing.erase(middle, 1);
  doubled.insert(middle, 1, name[middle]);
  changed[middle] = 'q';
  std::swap(swapped[middle - 1], swapped[middle]);
  std::vector<std::string> typos = {missing, doubled, changed};
  if (swapped != name) typos.push_back(swapped);
  return typos;
}

Value::Map With(const Value::Map& map, const std::string& name, const Value& value) {
  return Value::MakeMap(map).Set(name, value).as_map();
}

std::string LayerError(const std::string& type, const Value::Map& named) {
  return ErrorOf([&] { MakeLayer(type, {}, named, {}, "net.lua:4"); });
}

TEST(WrongLayers, RightCallsAreRight) {
  for (const auto& [type, named] : RightCalls()) EXPECT_EQ(LayerError(type, named), "") << type;
}

TEST(WrongLayers, ValuesOfTheWrongKindNameTheField) {
  int refused = 0;
  for (const auto& [type, named] : RightCalls()) {
    for (const Field& field : FindLayerType(type)->fields) {
      for (const Value& value : StrangeValues()) {
        if (Fits(field, value)) continue;
        const std::string error = LayerError(type, With(named, field.name, value));
        EXPECT_THAT(error, AllOf(HasSubstr("net.lua:4: " + type), HasSubstr(field.name), IsOurs()))
            << value.ToLua();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1500);
}

TEST(WrongLayers, MissingArgumentsAreNamed) {
  for (const auto& [type, named] : RightCalls()) {
    for (const auto& [missing, value] : named) {
      Value rest = Value::MakeMap(named);
      rest.Erase(missing);
      const std::string error = LayerError(type, rest.as_map());
      if (type == "Upsample") {  // either of two arguments is enough
        EXPECT_THAT(error, HasSubstr("takes either size or scale_factor"));
        continue;
      }
      EXPECT_THAT(error,
                  AllOf(HasSubstr("net.lua:4: " + type + " needs " + missing + ": "), IsOurs()));
    }
  }
}

TEST(WrongLayers, MisspeltArgumentsGetTheNearest) {
  int typos = 0;
  for (const auto& [type, named] : RightCalls()) {
    const FieldTable& fields = FindLayerType(type)->fields;
    for (const std::string& name : FieldNames(fields)) {
      if (name.size() < 3) continue;
      for (const std::string& typo : Typos(name)) {
        if (FindField(fields, typo)) continue;
        EXPECT_THAT(LayerError(type, With(named, typo, 1)),
                    AllOf(HasSubstr("has no argument \"" + typo + "\"; did you mean \""), IsOurs()))
            << name;
        ++typos;
      }
    }
  }
  EXPECT_GT(typos, 500);
}

TEST(WrongLayers, TooManyPositionsAreCounted) {
  for (const auto& [type, named] : RightCalls()) {
    EXPECT_THAT(ErrorOf([&, t = type] { MakeLayer(t, Value::List(20, 1), {}, {}, "net.lua:4"); }),
                AllOf(HasSubstr(type + " takes at most "), HasSubstr("got 20"), IsOurs()));
  }
}

TEST(WrongLayers, MisspeltTypesGetTheNearest) {
  for (const std::string& name : LayerTypeNames()) {
    for (const std::string& typo : Typos(name)) {
      EXPECT_THAT(
          LayerError(typo, {}),
          AllOf(HasSubstr("there is no layer \"" + typo + "\"; did you mean \""), IsOurs()));
    }
  }
}

// ---- jobs ----

std::string JobError(const Value::Map& keys) {
  return ErrorOf([&] { Build(keys); });
}

TEST(WrongJobs, ValuesOfTheWrongKindNameTheKey) {
  int refused = 0;
  for (const Field& field : JobFields()) {
    for (const Value& value : StrangeValues()) {
      const std::string error = JobError({{field.name, value}});
      if (error.empty()) continue;
      EXPECT_THAT(error, AllOf(HasSubstr(field.name), HasSubstr("net.lua:"), IsOurs()))
          << field.name << " = " << value.ToLua();
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(WrongJobs, MembersOfTheWrongKindNameTheMember) {
  int refused = 0;
  for (const char* key : {"input", "parallel", "batch", "eval"}) {
    for (const Field& member : FindField(JobFields(), key)->members[0][0]) {
      for (const Value& value : StrangeValues()) {
        if (Fits(member, value)) continue;
        const std::string error = JobError({{key, MapOf({{member.name, value}})}});
        EXPECT_THAT(error, AllOf(HasSubstr(Str("the job's ", key)), HasSubstr(member.name),
                                 HasSubstr("net.lua:3: "), IsOurs()))
            << value.ToLua();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

void ExpectWrongOptionsNamed(const char* key, const std::vector<OptionTable>& types) {
  int refused = 0;
  for (const OptionTable& type : types) {
    for (const Field& option : type.fields) {
      for (const Value& value : StrangeValues()) {
        if (Fits(option, value)) continue;
        const std::string error =
            JobError({{key, MapOf({{"1", type.name}, {option.name, value}})}});
        EXPECT_THAT(error, AllOf(HasSubstr(Str("the ", key, " ", type.name)),
                                 HasSubstr(option.name), IsOurs()))
            << value.ToLua();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(WrongJobs, OptionsOfTheWrongKindNameTheOption) {
  ExpectWrongOptionsNamed("optimizer", OptimizerTypes());
  ExpectWrongOptionsNamed("lr_schedule", LrScheduleTypes());
}

TEST(WrongJobs, MisspeltKeysGetTheNearest) {
  for (const std::string& name : FieldNames(JobFields())) {
    for (const std::string& typo : Typos(name)) {
      if (FindField(JobFields(), typo)) continue;
      EXPECT_THAT(
          JobError({{typo, 1}}),
          AllOf(HasSubstr("the job has no key \"" + typo + "\"; did you mean \""), IsOurs()));
    }
  }
}

TEST(WrongJobs, SeveralWrongKeysAreStillOneError) {
  EXPECT_THAT(JobError({{"stepz", 1}, {"sede", 2}, {"seed", "x"}}), HasSubstr("\"stepz\""));
}

// ---- flags ----

std::string FlagsError(const std::vector<std::string>& arguments) {
  return ErrorOf([&] {
    Flags flags(arguments, {});
    flags.CheckAllTaken();
    Build({{"data", Digits()}}, flags.job());
  });
}

TEST(WrongFlags, MisspeltFlagsGetTheNearest) {
  int typos = 0;
  for (const std::string& path : JobFieldPaths()) {
    if (path.size() < 4) continue;
    for (const std::string& typo : Typos(path)) {
      if (FindJobField(typo)) continue;
      EXPECT_THAT(FlagsError({"--" + typo + "=1"}),
                  AllOf(HasSubstr("there is no flag --" + typo + "; did you mean \""), IsOurs()));
      ++typos;
    }
  }
  EXPECT_GT(typos, 200);
}

TEST(WrongFlags, TextsOfTheWrongKindNameTheFlag) {
  int refused = 0;
  for (const std::string& path : JobFieldPaths()) {
    for (const char* text : {"", "strange", "-5", "0", "1e400", "1,2,3", ",", "true,", "0x10",
                             "nan", "--", "5 5", "\xff\xfe"}) {
      const std::string error = FlagsError({"--" + path + "=" + text});
      if (error.empty()) continue;
      const std::string leaf = path.substr(path.rfind('.') + 1);
      const std::string head = path.substr(0, path.find('.'));
      EXPECT_THAT(error, AllOf(testing::AnyOf(HasSubstr(leaf), HasSubstr(head)), IsOurs()))
          << path << "=" << text;
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

// ---- anything at all ----

rc::Gen<Value> AnyValue(int depth) {
  const auto scalar = rc::gen::oneOf(
      rc::gen::just(Value()),
      rc::gen::map(rc::gen::arbitrary<bool>(), [](bool b) { return Value(b); }),
      rc::gen::map(rc::gen::arbitrary<int64_t>(), [](int64_t i) { return Value(i); }),
      rc::gen::map(rc::gen::arbitrary<double>(), [](double d) { return Value(d); }),
      rc::gen::map(rc::gen::arbitrary<std::string>(), [](std::string s) { return Value(s); }),
      rc::gen::just(Value(Function("net.lua:1"))));
  if (depth == 0) return scalar;
  const auto inner = AnyValue(depth - 1);
  const auto list = rc::gen::map(rc::gen::container<std::vector<Value>>(inner),
                                 [](std::vector<Value> list) { return Value(std::move(list)); });
  const auto key = rc::gen::element<std::string>("1", "2", "lr", "source", "size", "train",
                                                 "groups", "shape", "pipe", "steps", "every", "x");
  const auto map =
      rc::gen::map(rc::gen::container<std::vector<Value::Entry>>(rc::gen::pair(key, inner)),
                   [](const std::vector<Value::Entry>& entries) {
                     Value value = Value::MakeMap();
                     for (const auto& [k, v] : entries) value.Set(k, v);
                     return value;
                   });
  return rc::gen::oneOf(scalar, list, map);
}

RC_GTEST_PROP(Anything, AsAKeyIsTakenOrRefused, ()) {
  const auto key = *rc::gen::elementOf(FieldNames(JobFields()));
  const Value value = *AnyValue(2);
  RC_ASSERT(testing::Value(JobError({{key, value}}), IsOurs()));
}

RC_GTEST_PROP(Anything, AsAnOverrideIsTakenOrRefused, ()) {
  const auto path = *rc::gen::elementOf(JobFieldPaths());
  const Value value = *AnyValue(2);
  const std::string error = ErrorOf([&] {
    Build({{"data", Digits()}, {"optimizer", "sgd"}}, Overrides(MapOf({{path, value}}), "a:1"));
  });
  RC_ASSERT(testing::Value(error, IsOurs()));
}

RC_GTEST_PROP(Anything, AsAnArgumentIsTakenOrRefused, ()) {
  const auto [type, named] = *rc::gen::elementOf(RightCalls());
  const auto name = *rc::gen::elementOf(
      FieldNames(FindLayerType(type)->fields.empty() ? JobFields() : FindLayerType(type)->fields));
  const Value value = *AnyValue(2);
  RC_ASSERT(testing::Value(LayerError(type, With(named, name, value)), IsOurs()));
}

RC_GTEST_PROP(Anything, AsShapesIsTakenOrRefused, ()) {
  const auto [type, named] = *rc::gen::elementOf(RightCalls());
  const LayerSpec layer = MakeLayer(type, {}, named, {}, "");
  TensorSpecs inputs;
  const int count = *rc::gen::inRange(0, 4);
  for (int i = 0; i < count; ++i) {
    inputs.push_back({*rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 9)),
                      *rc::gen::element(DType::kFloat32, DType::kInt64, DType::kBool)});
  }
  RC_ASSERT(testing::Value(ErrorOf([&] { InferLayer(layer, inputs, nullptr); }), IsOurs()));
}

}  // namespace
}  // namespace strata
