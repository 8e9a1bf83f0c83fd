// C++ objects as Lua values: a userdata that holds a shared pointer. Internal to lua/.
//
// Each type has a name, methods (t:rank{...}), properties (t.dims) and a printed form. Scripts
// cannot reach metatables, so a userdata with the metatable of a type is always an object of that
// type.
#pragma once

#include <lua.hpp>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lua/core/binding.h"

namespace strata::lua {

/// The part of a type that scripts see. All functions get the object as argument 1.
struct ObjectType {
  std::string name;  ///< "topology"; for messages and getmetatable()
  std::vector<NamedFunction> methods = {};
  std::vector<NamedFunction> properties = {};  ///< each returns one value
  std::vector<NamedFunction> metamethods = {};
  /// Finds members that differ between objects; may be null. lookup(object, name) returns the
  /// member, or nil if there is none of that name.
  lua_CFunction lookup = nullptr;
  /// Lists the names that `lookup` knows. list_names(object) returns the names of that object,
  /// list_names(nil) the names that all objects have.
  lua_CFunction list_names = nullptr;
  /// to_data(object) returns a plain value that represents the object (see ToValue). Null if there
  /// is no such value.
  lua_CFunction to_data = nullptr;
  /// For help(): a text about the type.
  std::string help = {};
  /// For help(): describe(object, name) returns the text about a name of list_names, or nil.
  lua_CFunction describe = nullptr;
  /// True if the names of list_names are methods. Then lookup(nil, name) finds them without an
  /// object.
  bool lists_methods = false;
};

/// Specialise this for each class whose objects become Lua values, with `static const ObjectType&
/// Get()`.
template <class T>
struct TypeOf;

/// Pushes the metatable of a type and creates it at the first call. `destroy` is its __gc.
void PushMetatable(lua_State* L, const ObjectType& type, lua_CFunction destroy);
/// True if the value at `index` is a type. A type is a metatable; completion and help use it in
/// place of the object that a call would return. Scripts never see one.
bool IsType(lua_State* L, int index);
/// Pushes a method, or the function of a property, of the type at `index`. False, and nothing is
/// pushed, if the type has none of that name.
bool PushTypeMethod(lua_State* L, int index, const std::string& name);
bool PushTypeProperty(lua_State* L, int index, const std::string& name);
/// Pushes the method that the type's `lookup` finds without an object (lists_methods). False, and
/// nothing is pushed, for a type without such a lookup. Throws for an unknown name.
bool PushTypeLookup(lua_State* L, int index, const std::string& name);
/// True if the value at `index` is a userdata of this type.
bool IsObject(lua_State* L, int index, const ObjectType& type);
/// The name of the type of one of our userdata, "topology"; "userdata" for any other.
std::string ObjectTypeName(lua_State* L, int index);
/// Pushes the plain value that represents the userdata at `index` (ObjectType::to_data). False if
/// there is none.
bool PushObjectData(lua_State* L, int index);
/// The names of methods and properties of the userdata or type at `index`, sorted; for completion.
std::vector<std::string> ObjectMembers(lua_State* L, int index);
/// The names among ObjectMembers() that can be called.
std::vector<std::string> ObjectMethods(lua_State* L, int index);
/// The help() text about the type of a userdata, and about one of its members; "" if there is none.
std::string ObjectHelp(lua_State* L, int index);
std::string ObjectMemberHelp(lua_State* L, int index, const std::string& name);

template <class T>
int DestroyObject(lua_State* L) {
  using Pointer = std::shared_ptr<T>;
  static_cast<Pointer*>(lua_touserdata(L, 1))->~Pointer();
  return 0;
}

/// Pushes the type T. It is the NamedFunction::gives of functions that return a T.
template <class T>
int GivenType(lua_State* L) {
  PushMetatable(L, TypeOf<T>::Get(), DestroyObject<T>);
  return 1;
}

template <class T>
void PushObject(lua_State* L, std::shared_ptr<T> object) {
  void* memory = lua_newuserdata(L, sizeof(object));
  PushMetatable(L, TypeOf<T>::Get(), DestroyObject<T>);
  new (memory) std::shared_ptr<T>(std::move(object));
  lua_setmetatable(L, -2);
}

/// The object at `index`, or null if the value has another type.
template <class T>
std::shared_ptr<T> ObjectAt(lua_State* L, int index) {
  if (!IsObject(L, index, TypeOf<T>::Get())) return nullptr;
  return *static_cast<std::shared_ptr<T>*>(lua_touserdata(L, index));
}

/// The object at `index`; throws ConfigError "expected a topology, got ..." if the value has
/// another type.
template <class T>
std::shared_ptr<T> ObjectArgument(lua_State* L, int index) {
  std::shared_ptr<T> object = ObjectAt<T>(L, index);
  if (!object) ThrowExpected(L, index, "a " + TypeOf<T>::Get().name);
  return object;
}

/// The object whose method or property is running.
template <class T>
T& Self(lua_State* L) {
  return *ObjectArgument<T>(L, 1);
}

}  // namespace strata::lua
