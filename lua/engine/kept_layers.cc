#include "lua/engine/kept_layers.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/tensors/copy_on_write.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"
#include "engine/comm/current.h"
#include "engine/comm/specs.h"
#include "engine/layers/inputs.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/packed_weight.h"
#include "lua/core/convert.h"
#include "lua/engine/script_call.h"
#include "lua/tensors/call.h"
#include "lua/tensors/tensor_object.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

/// The position of an input given by name. Throws ConfigError for an unknown name; otherwise a mask
/// in the place of another one would go unnoticed.
size_t PlaceOf(const KeptLayer& kept, const std::string& name) {
  const std::span<const std::string_view> known = InputNames(kept.spec.type);
  const auto found = std::ranges::find(known, name);
  if (found != known.end()) return found - known.begin();
  const std::vector<std::string> names(known.begin(), known.end());
  const std::string hint = names.empty() ? "; its inputs have no names" : DidYouMean(name, names);
  throw ConfigError(
      Str(kept.path, " ", kept.spec.ToString(), " takes no input \"", name, "\"", hint));
}

/// Reads the arguments from stack index 2 on: tensors, lists of tensors, and the inputs named in a
/// trailing table, at their positions. If the layer's inputs have names, those left out or nil
/// before other inputs become undefined tensors.
Tensors CalledWith(lua_State* L, const KeptLayer& kept) {
  constexpr std::string_view kWhat = "a tensor";
  const bool has_names = !InputNames(kept.spec.type).empty();
  Tensors tensors;
  const auto take = [&](int index) {
    if (has_names && lua_isnil(L, index)) return tensors.emplace_back(), void();
    for (at::Tensor& tensor : TensorsArgument(L, index, kWhat))
      tensors.push_back(std::move(tensor));
  };
  const int count = lua_gettop(L);
  for (int i = 2; i <= count; ++i) {
    const TableShape shape = IsPlainTable(L, i) ? ShapeOf(L, i) : TableShape();
    if (i != count || shape.names.empty()) {
      take(i);
      continue;
    }
    for (int position = 1; position <= shape.positions; ++position) {
      lua_rawgeti(L, i, position);
      take(lua_gettop(L));
      lua_pop(L, 1);
    }
    for (const std::string& name : shape.names) {
      const size_t place = PlaceOf(kept, name);
      tensors.resize(std::max(tensors.size(), place + 1));
      if (tensors[place].defined()) {
        throw ConfigError(Str(kept.path, " was given ", name, " twice"));
      }
      lua_getfield(L, i, name.c_str());
      tensors[place] = TensorArgument(L, lua_gettop(L), kWhat);
      lua_pop(L, 1);
    }
  }
  while (!tensors.empty() && !tensors.back().defined()) tensors.pop_back();
  return tensors;
}

/// Throws ConfigError with the reason if the layer's shape rule refuses these inputs. The rules are
/// written for float32, so half precision is treated as float32.
void CheckInputs(const KeptLayer& kept, const Tensors& inputs) {
  const auto is_defined = [](const at::Tensor& x) { return x.defined(); };
  if (HasScripted(kept.spec) || !std::ranges::all_of(inputs, is_defined)) return;
  TensorSpecs specs = SpecsOf(inputs);
  for (TensorSpec& spec : specs) {
    if (at::isReducedFloatingType(ToScalarType(spec.dtype))) spec.dtype = DType::kFloat32;
  }
  InferLayer(kept.spec, specs, nullptr);
}

/// Protects inputs that the script may write to before the backward, such as buffers and tensors
/// that it keeps between calls. Inputs with a history are left out: autograd itself refuses writes
/// to those.
Tensors Unwritten(Tensors inputs) {
  if (!at::GradMode::is_enabled()) return inputs;
  for (at::Tensor& x : inputs) {
    if (x.defined() && !x.requires_grad()) x = CopyOnWrite(x);
  }
  return inputs;
}

/// Converts float32 inputs to the type of the layer's parameters if that is the job's half
/// precision, as is done between the layers of a list. A norm's parameters keep their type, so a
/// norm keeps its input's type.
Tensors InTypeOf(Layer& layer, Tensors inputs) {
  for (const Parameter& parameter : layer.parameters()) {
    const at::ScalarType type = parameter.value.scalar_type();
    if (parameter.keeps_type || !at::isReducedFloatingType(type)) continue;
    for (at::Tensor& x : inputs) {
      if (x.defined() && x.scalar_type() == at::kFloat) x = x.to(type);
    }
    break;
  }
  return inputs;
}

Tensors Compute(const KeptLayer& kept, const Tensors& inputs) {
  Pass pass = **kept.pass;
  if (pass.weight_gradients) {
    pass.weight_gradients = std::make_shared<WeightGradients>(pass.weight_gradients, kept.is_read);
  }
  try {
    if (IsPlanning()) CheckInputs(kept, inputs);
    return (*kept.layer)->Forward(InTypeOf(**kept.layer, Unwritten(inputs)), pass);
  } catch (const ConfigError& error) {
    if (HasPlace(error.what())) throw;
    throw ConfigError(Str(kept.path, " ", kept.spec.ToString(), ": ", error.what()));
  } catch (const c10::Error& error) {
    try {
      CheckInputs(kept, inputs);
    } catch (const ConfigError& reason) {
      throw ConfigError(Str(kept.path, " ", kept.spec.ToString(), ": ", reason.what()));
    }
    throw ConfigError(Str(kept.path, " ", kept.spec.ToString(), ": ", ErrorText(error)));
  }
}

/// Runs Compute() while other ranks of this process can run Lua. They may need to, since this rank
/// may wait for the others of its model axis.
Tensors ComputeUnlocked(lua_State* L, const KeptLayer& kept, const Tensors& inputs) {
  if (IsPlanning()) return Compute(kept, inputs);
  const Unlocked unlocked(State::Of(L));
  return Compute(kept, inputs);
}

/// Runs a kept layer: self.attn(x, ...).
int CallKept(lua_State* L) {
  const auto kept = ObjectArgument<KeptLayer>(L, 1);
  if (!kept->pass || !*kept->pass) {
    throw ConfigError(Str(kept->path, " can be called only while the forward of its layer runs"));
  }
  if (!kept->prefix.empty()) {
    throw ConfigError(Str(kept->path, " runs within its container only"));
  }
  const NestedCall nested(L);
  const Tensors outputs = ComputeUnlocked(L, *kept, CalledWith(L, *kept));
  luaL_checkstack(L, static_cast<int>(outputs.size()), "too many outputs");
  for (const at::Tensor& output : outputs) PushTensor(L, output);
  return static_cast<int>(outputs.size());
}

/// All parameters and buffers, by their names within the layer.
std::vector<std::pair<std::string, at::Tensor>> TensorsOf(const KeptLayer& kept) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  Layer* const layer = *kept.layer;
  if (!layer) return all;
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    if (name.starts_with(kept.prefix)) all.emplace_back(name.substr(kept.prefix.size()), value);
  };
  for (const Parameter& parameter : layer->parameters()) add(parameter.name, parameter.value);
  for (const LayerBuffer& buffer : layer->buffers()) add(buffer.name, buffer.value);
  return all;
}

/// Throws ConfigError if a forward reads a weight that has a low-rank part, which what it computes
/// with the weight would lack, or that is packed and has no elements to read.
void CheckHasNoPart(const KeptLayer& kept, const std::string& name) {
  if (!kept.pass || !*kept.pass) return;
  for (const Parameter& parameter : (*kept.layer)->parameters()) {
    if (parameter.name != kept.prefix + name) continue;
    if (parameter.packed) {
      throw ConfigError(Str(kept.path, ".", name, " is held as ",
                            PackingName(parameter.packed->packing()),
                            " (adapt.base), and only a call of the layer unpacks it: call it, or "
                            "leave out adapt.base"));
    }
    if (!parameter.low_rank) continue;
    throw ConfigError(Str(kept.path, ".", name,
                          " has a low-rank part (adapt), which only a call of the layer adds: call "
                          "it, or leave this weight out of adapt.layers"));
  }
}

/// __index of a kept layer: self.attn.NAME is a tensor, or the part with that name. Position i is
/// part i - 1.
int FieldOfKept(lua_State* L) {
  const auto kept = ObjectAt<KeptLayer>(L, 1);
  const bool is_position = lua_type(L, 2) == LUA_TNUMBER;
  const std::string name = is_position ? std::to_string(lua_tointeger(L, 2) - 1)
                                       : std::string(TextArgument(L, 2, "a name"));
  lua_settop(L, 2);
  if (name == "forward") return lua_pushcfunction(L, Bound<CallKept>), 1;
  lua_pushnil(L);
  if (!kept) return 1;
  for (const auto& [path, tensor] : TensorsOf(*kept)) {
    if (path == name) {
      CheckHasNoPart(*kept, name);
      if (kept->pass && *kept->pass && at::GradMode::is_enabled() && tensor.requires_grad()) {
        *kept->is_read = true;
      }
      PushTensor(L, tensor);
      return 1;
    }
    if (!path.starts_with(name + ".")) continue;
    KeptLayer part = *kept;
    part.path += "." + name;
    part.prefix += name + ".";
    PushObject(L, std::make_shared<KeptLayer>(std::move(part)));
    return 1;
  }
  return 1;
}

int NamesOfKept(lua_State* L) {
  std::vector<std::string> names;
  if (const auto kept = ObjectAt<KeptLayer>(L, 1)) {
    for (const auto& [path, tensor] : TensorsOf(*kept)) {
      const std::string name = path.substr(0, path.find('.'));
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  Push(L, names);
  return 1;
}

std::string ShowKept(const KeptLayer& kept) {
  return kept.prefix.empty() ? Str(kept.path, " ", kept.spec.ToString()) : kept.path;
}

}  // namespace

KeptLayers::~KeptLayers() {
  for (const auto& kept : list) *kept->layer = nullptr;
}

void KeptLayers::Add(std::string path, const LayerSpec& spec, Layer& layer,
                     const CurrentPass& pass) {
  list.push_back(std::make_shared<KeptLayer>(
      KeptLayer{std::move(path), "", spec, std::make_shared<Layer*>(&layer), pass}));
}

const ObjectType& TypeOf<KeptLayer>::Get() {
  static const ObjectType type{
      .name = "built layer",
      .metamethods = {{"__tostring", Function<ShowKept>}, {"__call", Bound<CallKept>}},
      .lookup = Bound<FieldOfKept>,
      .list_names = Bound<NamesOfKept>};
  return type;
}

}  // namespace strata::lua
