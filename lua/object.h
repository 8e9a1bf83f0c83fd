// C++ objects as values of Lua: a userdata holds a shared pointer. Internal to lua/.
//
// Each type has a name, methods (t:rank{...}), properties (t.dims) and a text. Scripts cannot reach
// the metatables, so a userdata with a type's metatable is one.
#pragma once

#include <lua.hpp>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lua/binding.h"

namespace strata::lua {

/// What scripts see of a type. Bodies find the object as argument 1.
struct ObjectType {
  std::string name;  ///< "topology"; for messages and getmetatable()
  std::vector<NamedFunction> methods;
  std::vector<NamedFunction> properties;  ///< each gives one value
  std::vector<NamedFunction> metamethods;
  /// For members that differ between objects: (object, name) gives the value, or nil where there is
  /// no such member; (object) gives the list of names, (nil) that of all objects. May be null.
  lua_CFunction lookup = nullptr;
  lua_CFunction list_names = nullptr;
  /// (object) gives what stands for it in plain data (ToValue); null = it cannot be.
  lua_CFunction to_data = nullptr;
  /// For help(): what the type is. (object, name) gives the help of a name of list_names, or nil.
  std::string help = {};
  lua_CFunction describe = nullptr;
  /// The names that list_names gives are methods, which the look-up finds without an object too.
  bool lists_methods = false;
};

/// Specialise for each class that becomes a value, with `static const ObjectType& Get()`.
template <class T>
struct TypeOf;

/// Pushes the metatable of a type, made when first asked for. `destroy` is its __gc.
void PushMetatable(lua_State* L, const ObjectType& type, lua_CFunction destroy);
/// Types as values: metatables, which stand for whatever object a call would give. Scripts never
/// see one.
bool IsType(lua_State* L, int index);
/// Pushes a method, or the function behind a property, of the type at `index`; false where it has
/// none of that name, and then nothing.
bool PushTypeMethod(lua_State* L, int index, const std::string& name);
bool PushTypeProperty(lua_State* L, int index, const std::string& name);
/// Pushes what the type's look-up gives for a method that it lists; throws where it knows none.
bool PushTypeLookup(lua_State* L, int index, const std::string& name);
/// Whether a userdata of that type is at `index`.
bool IsObject(lua_State* L, int index, const ObjectType& type);
/// The name of the type of any of our userdata: "topology"; else "userdata".
std::string ObjectTypeName(lua_State* L, int index);
/// Pushes what stands for the userdata at `index` in plain data; false where nothing does.
bool PushObjectData(lua_State* L, int index);
/// Names of methods and properties of the userdata or type at `index`, sorted: for completion.
std::vector<std::string> ObjectMembers(lua_State* L, int index);
/// Those that can be called.
std::vector<std::string> ObjectMethods(lua_State* L, int index);
/// What help() says of the userdata's type and of a member; "" where nothing is known.
std::string ObjectHelp(lua_State* L, int index);
std::string ObjectMemberHelp(lua_State* L, int index, const std::string& name);

template <class T>
int DestroyObject(lua_State* L) {
  using Pointer = std::shared_ptr<T>;
  static_cast<Pointer*>(lua_touserdata(L, 1))->~Pointer();
  return 0;
}

/// Pushes the type T: what NamedFunction::gives is, for functions that give a T.
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

/// The object at `index`, or null when it is something else.
template <class T>
std::shared_ptr<T> ObjectAt(lua_State* L, int index) {
  if (!IsObject(L, index, TypeOf<T>::Get())) return nullptr;
  return *static_cast<std::shared_ptr<T>*>(lua_touserdata(L, index));
}

/// The object at `index`; throws ConfigError "expected a topology, got ...".
template <class T>
std::shared_ptr<T> ObjectArgument(lua_State* L, int index) {
  std::shared_ptr<T> object = ObjectAt<T>(L, index);
  if (!object) ThrowExpected(L, index, "a " + TypeOf<T>::Get().name);
  return object;
}

/// The object whose method or property runs.
template <class T>
T& Self(lua_State* L) {
  return *ObjectArgument<T>(L, 1);
}

}  // namespace strata::lua
