// Function<>: makes a lua_CFunction from a C++ function. It derives from the signature how each
// argument is read from Lua and how the result is pushed. Internal to lua/.
//
//   {"dims", Function<&Topology::dims>},                // a field, or a method without arguments
//   {"size", Function<&Topology::Size, "an axis">},     // errors say "expected an axis, got ..."
//   {"uniform", Function<partition::Uniform, "a number of items", "a number of parts">},
//   {"repr", Function<Repr, "a rank", "the options">},  // Repr(const Topology&, int64_t, Value)
#pragma once

#include <algorithm>
#include <functional>
#include <lua.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/object.h"

namespace strata::lua {

template <class T>
concept HasObjectType = requires {
  TypeOf<T>::Get();
};

template <template <class...> class Template, class T>
inline constexpr bool kIsA = false;
template <template <class...> class Template, class... T>
inline constexpr bool kIsA<Template, Template<T...>> = true;

/// The result type of a C++ function that has pushed its results itself.
struct Pushed {
  int results = 1;
};

/// Pushes a C++ value: a boolean, number, text, Value, or object with a TypeOf; a map from names to
/// such values as a table; a range of them as a list. An empty optional becomes nil.
template <class T>
void Push(lua_State* L, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    lua_pushboolean(L, value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    lua_pushnumber(L, static_cast<lua_Number>(value));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    PushText(L, value);
  } else if constexpr (kIsA<std::optional, T>) {
    value ? Push(L, *value) : lua_pushnil(L);
  } else if constexpr (kIsA<std::shared_ptr, T>) {
    PushObject(L, value);
  } else if constexpr (HasObjectType<T>) {
    PushObject(L, std::make_shared<T>(value));
  } else if constexpr (std::is_convertible_v<const T&, Value>) {
    PushValue(L, value);
  } else if constexpr (requires { typename T::mapped_type; }) {
    lua_newtable(L);
    for (const auto& [name, entry] : value) {
      Push(L, entry);
      lua_setfield(L, -2, name.c_str());
    }
  } else {
    lua_createtable(L, static_cast<int>(std::size(value)), 0);
    int position = 0;
    for (const auto& element : value) {
      Push(L, element);
      lua_rawseti(L, -2, ++position);
    }
  }
}

/// Reads the argument at `index` as a C++ value. `what` names the expected value in errors.
/// Specialise it for further types.
template <class T>
T ArgumentAt(lua_State* L, int index, const char* what) {
  if constexpr (kIsA<std::optional, T>) {
    if (lua_isnoneornil(L, index)) return std::nullopt;
    return ArgumentAt<typename T::value_type>(L, index, what);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return TextArgument(L, index, what);
  } else if constexpr (std::is_floating_point_v<T>) {
    return NumberArgument(L, index, what);
  } else if constexpr (std::is_same_v<T, Value>) {
    return ToValue(L, index, what);
  } else {
    static_assert(std::is_same_v<T, int64_t>, "specialise ArgumentAt for this type");
    return IntArgument(L, index, what);
  }
}

/// A string literal as a template argument.
template <size_t size>
struct Words {
  consteval Words(const char (&from)[size]) { std::copy_n(from, size, text); }
  char text[size];
};

/// The parameter types of a function; for a member, the first one is its object.
template <class... T>
struct Parameters {
  static constexpr bool kTakesState = (std::is_same_v<T, lua_State*> || ...);
  static constexpr int kFromLua = (int{!std::is_same_v<T, lua_State*>} + ... + 0);
};
template <class Result, class... T>
Parameters<T...> ParametersOf(Result (*)(T...));
template <class Result, class Class, class... T>
Parameters<const Class&, T...> ParametersOf(Result (Class::*)(T...) const);
template <class Result, class Class>
Parameters<const Class&> ParametersOf(Result Class::*) requires(!std::is_function_v<Result>);
template <class Lambda>
requires std::is_class_v<Lambda>
auto ParametersOf(Lambda lambda) -> decltype(ParametersOf(+lambda));

/// The type in which an argument is stored while the function runs.
template <class T, class Bare = std::remove_cvref_t<T>>
using Kept = std::conditional_t<
    HasObjectType<Bare>, Bare&,
    std::conditional_t<std::is_same_v<Bare, std::string_view>, std::string, Bare>>;

/// Reads the next argument: one of our objects, or a value described by the next of `words`.
template <class T>
Kept<T> TakeArgument(lua_State* L, int& index, const char* const*& words) {
  using Bare = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<T, lua_State*>) {
    return L;
  } else if constexpr (HasObjectType<Bare>) {
    return *ObjectArgument<Bare>(L, index++);
  } else {
    return ArgumentAt<Kept<T>>(L, index++, *words++);
  }
}

template <auto kFunction, Words... kWords, class... T>
int CallWithArguments(lua_State* L, Parameters<T...>) {
  static constexpr const char* kAll[] = {kWords.text..., nullptr};
  const char* const* words = kAll;
  int index = 1;
  std::tuple<Kept<T>...> arguments{TakeArgument<T>(L, index, words)...};
  using Result = std::invoke_result_t<decltype(kFunction), T...>;
  if constexpr (std::is_void_v<Result>) {
    std::apply(kFunction, arguments);
    return 0;
  } else if constexpr (std::is_same_v<Result, Pushed>) {
    return std::apply(kFunction, arguments).results;
  } else {
    Push<std::remove_cvref_t<Result>>(L, std::apply(kFunction, arguments));
    return 1;
  }
}

template <auto kFunction, Words... kWords>
int BodyOf(lua_State* L) {
  return CallWithArguments<kFunction, kWords...>(L, decltype(ParametersOf(kFunction))());
}

/// The lua_CFunction for a function, a member, or a lambda without captures. Its parameters may be
/// the lua_State, objects with a TypeOf, and types that ArgumentAt() reads. Each parameter of the
/// last kind needs one entry in kWords, which says in errors what was expected.
template <auto kFunction, Words... kWords>
int Function(lua_State* L) {
  using All = decltype(ParametersOf(kFunction));
  return RunBody(L, BodyOf<kFunction, kWords...>, All::kTakesState ? -1 : All::kFromLua);
}

/// As Function<>, for a function that takes the lua_State and reads at most `most` arguments; see
/// Bound().
template <int most, auto kFunction, Words... kWords>
int FunctionOf(lua_State* L) {
  return RunBody(L, BodyOf<kFunction, kWords...>, most);
}

}  // namespace strata::lua
