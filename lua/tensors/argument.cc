// Conversion between Lua values and the arguments and results of LibTorch's operators.
#include "lua/tensors/argument.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

using c10::IValue;
using c10::TypeKind;
using Maybe = std::optional<IValue>;

Maybe ToTyped(lua_State* L, int index, const c10::TypePtr& type, const c10::Argument& argument);

bool IsNumber(lua_State* L, int index) { return lua_type(L, index) == LUA_TNUMBER; }
bool IsString(lua_State* L, int index) { return lua_type(L, index) == LUA_TSTRING; }

/// The number that operators take for a reduction, from its word in torch.nn.functional.
Maybe ReductionNumber(std::string_view word) {
  if (word == "none") return IValue(int64_t{0});
  if (word == "mean") return IValue(int64_t{1});
  if (word == "sum") return IValue(int64_t{2});
  return std::nullopt;
}

Maybe ToInt(lua_State* L, int index, const c10::Argument& argument) {
  if (IsString(L, index) && argument.name() == "reduction") {
    return ReductionNumber(TextAt(L, index));
  }
  if (!IsNumber(L, index)) return std::nullopt;
  const Value number = NumberValue(lua_tonumber(L, index));
  if (!number.is_int()) return std::nullopt;
  return IValue(number.as_int());
}

/// Converts a whole number to an integer, so that F.arange(4):add(3) stays int64.
Maybe ToScalar(lua_State* L, int index) {
  if (lua_isboolean(L, index)) return IValue(lua_toboolean(L, index) != 0);
  if (!IsNumber(L, index)) return std::nullopt;
  const Value number = NumberValue(lua_tonumber(L, index));
  return number.kind() == Value::Kind::kInt ? IValue(number.as_int()) : IValue(number.as_double());
}

/// Converts the name of a dtype, layout or memory format. For the dispatcher these are integers;
/// only the real type of the argument tells them apart.
Maybe ToEnum(lua_State* L, int index, TypeKind kind) {
  if (!IsString(L, index)) return std::nullopt;
  const std::string word(TextAt(L, index));
  if (kind == TypeKind::ScalarTypeType) {
    try {
      return IValue(ToScalarType(ParseDType(word)));
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }
  if (kind == TypeKind::LayoutType) {
    if (word == "strided") return IValue(c10::kStrided);
    if (word == "sparse_coo") return IValue(c10::kSparse);
    return std::nullopt;
  }
  if (word == "contiguous_format") return IValue(c10::MemoryFormat::Contiguous);
  if (word == "preserve_format") return IValue(c10::MemoryFormat::Preserve);
  if (word == "channels_last") return IValue(c10::MemoryFormat::ChannelsLast);
  return std::nullopt;
}

Maybe ToDevice(lua_State* L, int index) {
  if (!IsString(L, index)) return std::nullopt;
  try {
    return IValue(c10::Device(std::string(TextAt(L, index))));
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

/// The elements of the table at `index`, each converted to `type`; nothing if one cannot be.
std::optional<std::vector<IValue>> Elements(lua_State* L, int index, const c10::TypePtr& type,
                                            const c10::Argument& argument) {
  if (!IsPlainTable(L, index)) return std::nullopt;
  std::vector<IValue> elements;
  // A nil among the elements is only accepted by lists whose elements are optional.
  const TableShape shape = ShapeOf(L, index);
  if (!shape.names.empty()) return std::nullopt;
  for (int i = 1; i <= shape.positions; ++i) {
    lua_rawgeti(L, index, i);
    Maybe element = ToTyped(L, lua_gettop(L), type, argument);
    lua_pop(L, 1);
    if (!element) return std::nullopt;
    elements.push_back(std::move(*element));
  }
  return elements;
}

IValue MakeList(const std::vector<IValue>& elements, const c10::TypePtr& type) {
  // A list of symbolic integers also takes plain integers.
  const bool is_symbolic = type->kind() == TypeKind::SymIntType;
  c10::impl::GenericList list(is_symbolic ? c10::TypePtr(c10::IntType::get()) : type);
  for (const IValue& element : elements) list.push_back(element);
  return list;
}

/// Converts a list. If the schema states its length (int[2] stride), one value may stand for all
/// elements.
Maybe ToList(lua_State* L, int index, const c10::TypePtr& element_type,
             const c10::Argument& argument) {
  if (const auto elements = Elements(L, index, element_type, argument)) {
    return MakeList(*elements, element_type);
  }
  if (!argument.N() || !IsNumber(L, index)) return std::nullopt;
  const Maybe one = ToTyped(L, index, element_type, argument);
  if (!one) return std::nullopt;
  return MakeList(std::vector<IValue>(static_cast<size_t>(*argument.N()), *one), element_type);
}

Maybe ToTyped(lua_State* L, int index, const c10::TypePtr& type, const c10::Argument& argument) {
  switch (type->kind()) {
    case TypeKind::OptionalType:
      if (lua_isnoneornil(L, index)) return IValue();
      return ToTyped(L, index, type->expectRef<c10::OptionalType>().getElementType(), argument);
    case TypeKind::TensorType:
      if (const at::Tensor* tensor = TensorAt(L, index)) return IValue(*tensor);
      return std::nullopt;
    case TypeKind::ListType:
      return ToList(L, index, type->expectRef<c10::ListType>().getElementType(), argument);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return ToInt(L, index, argument);
    case TypeKind::FloatType:
      if (!IsNumber(L, index)) return std::nullopt;
      return IValue(static_cast<double>(lua_tonumber(L, index)));
    case TypeKind::NumberType:
      return ToScalar(L, index);
    case TypeKind::BoolType:
      if (!lua_isboolean(L, index)) return std::nullopt;
      return IValue(lua_toboolean(L, index) != 0);
    case TypeKind::StringType:
      if (!IsString(L, index)) return std::nullopt;
      return IValue(std::string(TextAt(L, index)));
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
      return ToEnum(L, index, type->kind());
    case TypeKind::DeviceObjType:
      return ToDevice(L, index);
    case TypeKind::AnyType:
      if (lua_isnoneornil(L, index)) return std::nullopt;
      return IValue(true);  // functions with Any read the Lua value itself
    default:
      return std::nullopt;
  }
}

void PushList(lua_State* L, c10::ArrayRef<IValue> elements) {
  lua_createtable(L, static_cast<int>(elements.size()), 0);
  for (size_t i = 0; i < elements.size(); ++i) {
    PushResult(L, elements[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

}  // namespace

std::optional<IValue> ToArgument(lua_State* L, int index, const c10::Argument& argument) {
  return ToTyped(L, index, argument.real_type(), argument);
}

bool IsCollectable(const c10::Argument& argument) {
  const auto list = argument.real_type()->cast<c10::ListType>();
  if (!list) return false;
  const TypeKind kind = list->getElementType()->kind();
  return kind == TypeKind::IntType || kind == TypeKind::SymIntType || kind == TypeKind::TensorType;
}

Maybe Collect(lua_State* L, int first, int last, const c10::Argument& argument) {
  const c10::TypePtr type = argument.real_type()->expectRef<c10::ListType>().getElementType();
  std::vector<IValue> elements;
  for (int index = first; index <= last; ++index) {
    Maybe element = ToTyped(L, index, type, argument);
    if (!element) return std::nullopt;
    elements.push_back(std::move(*element));
  }
  return MakeList(elements, type);
}

namespace {

std::string DefaultText(const IValue& value) {
  if (value.isNone()) return "nil";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isDouble()) return FormatDouble(value.toDouble());
  if (value.isString()) return Str("\"", value.toStringRef(), "\"");
  if (value.isList()) {
    std::vector<std::string> elements;
    for (const IValue& element : value.toListRef()) elements.push_back(DefaultText(element));
    const bool is_one = !elements.empty() && std::ranges::count(elements, elements[0]) ==
                                                 static_cast<std::ptrdiff_t>(elements.size());
    return is_one ? elements[0] : "{" + Join(elements, ", ") + "}";
  }
  return Str(value);
}

/// The argument's type in PyTorch's form, "int[2]?".
std::string TypeText(const c10::Argument& argument) {
  std::string type = argument.real_type()->str();
  for (size_t at; (at = type.find("SymInt")) != type.npos;) type.replace(at, 6, "int");
  const size_t list = type.find("[]");
  if (list != type.npos && argument.N()) type.insert(list + 1, Str(*argument.N()));
  return type;
}

}  // namespace

std::string ArgumentText(const c10::Argument& argument) {
  const std::string text = Str(TypeText(argument), " ", argument.name());
  return argument.default_value() ? Str(text, "=", DefaultText(*argument.default_value())) : text;
}

int PushResult(lua_State* L, const IValue& value) {
  if (value.isTensor()) {
    PushTensor(L, value.toTensor());
  } else if (value.isTuple()) {
    int pushed = 0;
    for (const IValue& element : value.toTupleRef().elements()) pushed += PushResult(L, element);
    return pushed;
  } else if (value.isList()) {
    PushList(L, value.toListRef());
    if (value.isTensorList()) WatchTensors(L);
  } else if (value.isBool()) {
    lua_pushboolean(L, value.toBool());
  } else if (value.isInt() || value.isSymInt()) {
    lua_pushnumber(L, static_cast<double>(value.toInt()));
  } else if (value.isDouble()) {
    lua_pushnumber(L, value.toDouble());
  } else if (value.isString()) {
    PushText(L, value.toStringRef());
  } else {
    lua_pushnil(L);
  }
  return 1;
}

}  // namespace strata::lua
