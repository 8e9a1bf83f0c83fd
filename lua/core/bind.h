// Bindings as expressions: whatever they give is pushed. Internal to lua/.
//
//   {"dims", Member<&Topology::dims>},                       // a field, or a method without arguments
//   {"size", Bind<2>([](lua_State* L, const Topology& self) {
//      return self.Size(TextArgument(L, 2, "an axis"));
//    })},
#pragma once

#include <functional>
#include <lua.hpp>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/object.h"

namespace strata::lua {

/// What a binding gives that has pushed its results itself.
struct Pushed {
  int results = 1;
};

template <class T>
struct IsSharedPointer : std::false_type {};
template <class T>
struct IsSharedPointer<std::shared_ptr<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

/// Pushes a C++ value: booleans, numbers, texts, plain data, objects with a TypeOf, and ranges of
/// these as lists. An empty optional is nil.
template <class T>
void Push(lua_State* L, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    lua_pushboolean(L, value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    lua_pushnumber(L, static_cast<lua_Number>(value));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    PushText(L, value);
  } else if constexpr (IsOptional<T>::value) {
    value ? Push(L, *value) : lua_pushnil(L);
  } else if constexpr (IsSharedPointer<T>::value) {
    PushObject(L, value);
  } else if constexpr (requires { TypeOf<T>::Get(); }) {
    PushObject(L, std::make_shared<T>(value));
  } else if constexpr (std::is_convertible_v<const T&, Value>) {
    PushValue(L, value);
  } else {
    lua_createtable(L, static_cast<int>(std::size(value)), 0);
    int position = 0;
    for (const auto& element : value) {
      Push(L, element);
      lua_rawseti(L, -2, ++position);
    }
  }
}

/// Argument 1 as whatever object a binding takes; see Self().
struct AnySelf {
  lua_State* L;
  template <class T>
  operator T&() const {
    return Self<std::remove_const_t<T>>(L);
  }
};

/// Calls `function`, pushes what it gives and returns the number of results.
template <class Function, class... Arguments>
int PushResultOf(lua_State* L, const Function& function, Arguments&&... arguments) {
  using Result = std::remove_cvref_t<std::invoke_result_t<Function, Arguments...>>;
  if constexpr (std::is_void_v<Result>) {
    std::invoke(function, std::forward<Arguments>(arguments)...);
    return 0;
  } else if constexpr (std::is_same_v<Result, Pushed>) {
    return std::invoke(function, std::forward<Arguments>(arguments)...).results;
  } else {
    Push<Result>(L, std::invoke(function, std::forward<Arguments>(arguments)...));
    return 1;
  }
}

template <class Function>
int BindingBody(lua_State* L) {
  if constexpr (std::is_invocable_v<Function, lua_State*>) {
    return PushResultOf(L, Function(), L);
  } else {
    return PushResultOf(L, Function(), L, AnySelf{L});
  }
}

/// The lua_CFunction of a lambda that takes (L) or (L, self). `most` as for Bound().
template <int most = -1, class Function>
lua_CFunction Bind(Function) {
  return Bound<BindingBody<Function>, most>;
}

template <class Class, class T>
Class ClassOf(T Class::*);

template <auto kMember, class T>
int MemberBody(lua_State* L) {
  return PushResultOf(L, kMember, Self<T>(L));
}

/// The lua_CFunction of a member of the object, whose type is T.
template <auto kMember, class T = decltype(ClassOf(kMember))>
int Member(lua_State* L) {
  return Bound<MemberBody<kMember, T>, 1>(L);
}

}  // namespace strata::lua
