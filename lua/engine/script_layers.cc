// A user's own layer is a CompositeLayer whose forward is a function of the script. What its `self`
// holds, Lua sees as tensors and as KeptLayers, which call the layers in C++.
#include "lua/engine/script_layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <map>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/groups/current.h"
#include "engine/comm/groups/specs.h"
#include "engine/layers/axis/axis_scope.h"
#include "engine/layers/composite.h"
#include "engine/layers/random/random.h"
#include "engine/spec/layers/inputs.h"
#include "engine/spec/layers/layers.h"
#include "engine/tensors/copy_on_write.h"
#include "engine/tensors/dtype.h"
#include "lua/core/bind/bind.h"
#include "lua/core/bind/convert.h"
#include "lua/engine/script_call.h"
#include "lua/tensors/operators/call.h"
#include "lua/tensors/tensor_object.h"
#include "lua/tensors/tensors.h"
#include "lua/values/own_layer.h"

namespace strata::lua {
namespace {

/// The pass that runs a layer's forward right now; null between forwards.
using CurrentPass = std::shared_ptr<const Pass*>;

/// A built layer as a value of Lua: self.attn(x) runs it, self.attn.weight is its parameter. The
/// parts of a container are reached by their positions: self.net[1].weight.
struct KeptLayer {
  std::string path;    ///< "Block.attn"
  std::string prefix;  ///< of the names of its parameters within `layer`: "" for all of it
  LayerSpec spec;
  std::shared_ptr<Layer*> layer;  ///< points to null once its owner is gone
  CurrentPass pass;               ///< its owner's; null for a layer that is not called
  /// Whether a function that learns has read one of its parameters.
  std::shared_ptr<bool> is_read = std::make_shared<bool>(false);
};

/// Those of one owner. Lua may have them for longer.
struct KeptLayers {
  KeptLayers() = default;
  ~KeptLayers() {
    for (const auto& kept : list) *kept->layer = nullptr;
  }
  KeptLayers(const KeptLayers&) = delete;
  KeptLayers& operator=(const KeptLayers&) = delete;
  void Add(std::string path, const LayerSpec& spec, Layer& layer, const CurrentPass& pass) {
    list.push_back(std::make_shared<KeptLayer>(
        KeptLayer{std::move(path), "", spec, std::make_shared<Layer*>(&layer), pass}));
  }
  std::vector<std::shared_ptr<KeptLayer>> list;
};

}  // namespace

template <>
struct TypeOf<KeptLayer> {
  static const ObjectType& Get();
};

namespace {

bool HasScripted(const LayerSpec& spec) {
  return spec.has_scripted_forward() || std::ranges::any_of(spec.children, HasScripted);
}

/// The place of an input that is given by name. Refuses other names: a mask in another's place
/// would pass silently.
size_t PlaceOf(const KeptLayer& kept, const std::string& name) {
  const std::span<const std::string_view> known = InputNames(kept.spec.type);
  const auto found = std::ranges::find(known, name);
  if (found != known.end()) return found - known.begin();
  const std::vector<std::string> names(known.begin(), known.end());
  const std::string hint = names.empty() ? "; its inputs have no names" : DidYouMean(name, names);
  throw ConfigError(
      Str(kept.path, " ", kept.spec.ToString(), " takes no input \"", name, "\"", hint));
}

/// The arguments from stack index 2 on: tensors and lists of tensors, and those of a trailing table
/// with names, at their places. Where inputs have names, those that are left out or nil before
/// others are undefined.
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

/// Says why the layer cannot take these inputs, where its shape rule knows. Rules are about
/// float32, whatever a job computes in.
void CheckInputs(const KeptLayer& kept, const Tensors& inputs) {
  const auto is_defined = [](const at::Tensor& x) { return x.defined(); };
  if (HasScripted(kept.spec) || !std::ranges::all_of(inputs, is_defined)) return;
  TensorSpecs specs = SpecsOf(inputs);
  for (TensorSpec& spec : specs) {
    if (at::isReducedFloatingType(ToScalarType(spec.dtype))) spec.dtype = DType::kFloat32;
  }
  InferLayer(kept.spec, specs, nullptr);
}

/// What the script may write to before the backward: its buffers, and what it keeps between calls.
/// A write to what has a history is autograd's to refuse.
Tensors Unwritten(Tensors inputs) {
  if (!at::GradMode::is_enabled()) return inputs;
  for (at::Tensor& x : inputs) {
    if (x.defined() && !x.requires_grad()) x = CopyOnWrite(x);
  }
  return inputs;
}

/// What is float32 in the type of the parameters, where they have the job's half precision: as
/// between the layers of a list. A norm's have not, so that it stays with what it is given.
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

/// The same, while other ranks of this process can run Lua: they may have to, for this one waits
/// for those of its model axis.
Tensors ComputeUnlocked(lua_State* L, const KeptLayer& kept, const Tensors& inputs) {
  if (IsPlanning()) return Compute(kept, inputs);
  const Unlocked unlocked(State::Of(L));
  return Compute(kept, inputs);
}

/// self.attn(x, ...)
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

/// All parameters and buffers by their names within the layer.
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

/// self.attn.NAME: a tensor, or the part of that name. Position i is the part i - 1.
int FieldOfKept(lua_State* L) {
  const auto kept = ObjectAt<KeptLayer>(L, 1);
  const bool is_position = lua_type(L, 2) == LUA_TNUMBER;
  const std::string name = is_position ? std::to_string(lua_tointeger(L, 2) - 1)
                                       : std::string(TextArgument(L, 2, "a name"));
  lua_settop(L, 2);
  lua_pushnil(L);
  if (!kept) return 1;
  for (const auto& [path, tensor] : TensorsOf(*kept)) {
    if (path == name) {
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

/// The function's results from stack index 1 on: tensors, or one list of tensors.
Tensors ResultTensors(lua_State* L, const std::string& what) {
  if (lua_gettop(L) <= 1) return TensorsArgument(L, 1, what);
  Tensors tensors;
  for (int i = 1; i <= lua_gettop(L); ++i) tensors.push_back(TensorArgument(L, i, what));
  return tensors;
}

std::string Subject(const LayerSpec& spec) {
  const std::string& place = spec.forward.where;
  return Str(place, place.empty() ? "" : ": ", "the function of layer ", spec.ToString());
}

/// Calls forward with the tensors, after `self` where the layer has one. It may work in place:
/// others may need what it is given, for the backward, to run it again, or behind a skip.
/// `after`: what is to be done behind it, in the same session.
Tensors CallForward(State& state, const LayerSpec& spec, int self, const Tensors& inputs,
                    const std::function<void(lua_State*)>& after = {}) {
  Tensors outputs;
  RunIn(state, [&](lua_State* L) {
    const FactoryDevice there(inputs.at(0).device());
    PushFunction(L, spec.forward);
    if (self != LUA_NOREF) lua_rawgeti(L, LUA_REGISTRYINDEX, self);
    for (const at::Tensor& input : CopyOnWrite(inputs)) PushTensor(L, input);
    const int arguments = static_cast<int>(inputs.size()) + (self != LUA_NOREF ? 1 : 0);
    try {
      CallProtected(L, arguments, LUA_MULTRET);
    } catch (const ConfigError& error) {
      // `return f(x)` leaves no frame that would tell the line.
      if (HasPlace(error.what())) throw;
      throw ConfigError(Str(Subject(spec), ": ", error.what()));
    }
    try {
      // The function may keep them, and write to them in its next call.
      outputs = CopyOnWrite(ResultTensors(L, "a tensor or a list of tensors"));
    } catch (const ConfigError& error) {
      throw ConfigError(Str(Subject(spec), " must return a tensor: ", error.what()));
    }
    // Large outputs of the last layer would lie beside the loss's backward, until the next call.
    lua_settop(L, 0);
    if (after) after(L);
    lua_settop(L, 0);
    CollectIfDue(L);
  });
  return outputs;
}

/// function(x, ...) -> y, ...
class FunctionLayer : public Layer {
 public:
  FunctionLayer(State& state, const LayerSpec& spec) : state_(state), spec_(spec) {}
  Tensors Forward(const Tensors& inputs, const Pass&) override {
    return CallForward(state_, spec_, LUA_NOREF, inputs);
  }

 private:
  State& state_;
  LayerSpec spec_;
};

/// A layer whose forward gets a `self`, which lives in the state. Its own parameters and buffers
/// are fields there, which follow when the stage moves them into its flat buffers.
class SelfLayer : public CompositeLayer {
 public:
  SelfLayer(State& state, const LayerSpec& spec) : state_(state), spec_(spec) {}
  ~SelfLayer() override { state_.core().Forget(self_); }

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    if (pass.recomputing) return ForwardAgain(inputs);
    const bool again = own_buffers_ > 0 && pass.training && !at::GradMode::is_enabled();
    if (again) KeepBuffers();
    if (own_parameters_ + own_buffers_ == 0) return CallForward(state_, spec_, self_, inputs);
    return CallForward(state_, spec_, self_, inputs, [this](lua_State* L) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, self_);
      TakeAssigned(L);
    });
  }

  void OnBound() override {
    CompositeLayer::OnBound();
    RunIn(state_, [&](lua_State* L) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, self_);
      SetFields(L);
    });
  }

 protected:
  /// Takes the self at the top of the stack. Functions may do with parameters what they like.
  void TakeSelf(lua_State* L) {
    for (Parameter& parameter : parameters_) parameter.only_products = false;
    SetFields(L);
    self_ = luaL_ref(L, LUA_REGISTRYINDEX);
  }

  /// Sets the fields of the self at the top of the stack.
  void SetFields(lua_State* L) {
    const int self = lua_gettop(L);
    for (size_t i = 0; i < own_parameters_; ++i) {
      PushTensor(L, parameters_[i].value);
      SetOwnMember(L, self, parameters_[i].name);
    }
    SetBuffers(L, OwnBuffers());
  }

  /// What a function has set in place of the tensors of the self at the top of the stack: copies
  /// it into a buffer, as PyTorch's modules take it, and refuses it for a parameter.
  void TakeAssigned(lua_State* L) {
    const int self = lua_gettop(L);
    bool is_new = false;
    const auto assigned = [&](const std::string& name, const at::Tensor& own) {
      PushOwnMember(L, self, name);
      const at::Tensor* const now = TensorAt(L, -1);
      if (now == nullptr) {
        throw ConfigError(Str(Subject(spec_), " has set self.", name, " to ", Describe(L, -1)));
      }
      const at::Tensor value = *now;
      lua_pop(L, 1);
      is_new |= !value.is_same(own);
      return value;
    };
    for (size_t i = 0; i < own_parameters_; ++i) {
      const Parameter& own = parameters_[i];
      if (assigned(own.name, own.value).is_same(own.value)) continue;
      throw ConfigError(Str(Subject(spec_), " has set self.", own.name,
                            ", a parameter; write to it: self.", own.name, ":copy_(tensor)"));
    }
    for (size_t i = 0; i < own_buffers_; ++i) {
      LayerBuffer& own = buffers_[i];
      const at::Tensor value = assigned(own.name, own.value);
      if (value.is_same(own.value)) continue;
      if (value.sizes() != own.value.sizes()) {
        throw ConfigError(Str(Subject(spec_), " has set self.", own.name, " to ",
                              DescribeTensor(value), "; the buffer is ",
                              DescribeTensor(own.value)));
      }
      const at::NoGradGuard no_grad;
      if (!IsPlanning()) own.value.copy_(value);
    }
    if (is_new) SetFields(L);
  }

  State& state_;
  LayerSpec spec_;
  size_t own_parameters_ = 0, own_buffers_ = 0;  // the first ones; the others are children's

 private:
  Tensors OwnBuffers() const {
    Tensors values;
    for (size_t i = 0; i < own_buffers_; ++i) values.push_back(buffers_[i].value);
    return values;
  }

  void SetBuffers(lua_State* L, const Tensors& values) {
    const int self = lua_gettop(L);
    for (size_t i = 0; i < own_buffers_; ++i) {
      PushTensor(L, values[i]);
      SetOwnMember(L, self, buffers_[i].name);
    }
  }

  void ShowBuffers(const Tensors& values) {
    RunIn(state_, [&](lua_State* L) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, self_);
      SetBuffers(L, values);
    });
  }

  /// Before a forward that will be run again, for the backward.
  void KeepBuffers() {
    constexpr size_t kMost = 4096;  // no stage has so many micro-batches in flight
    if (before_.size() > kMost) before_.clear();
    before_[ScopeSeed()].push_back(CopyOnWrite(OwnBuffers()));
  }

  /// The forward finds its buffers as it did the first time, and what it writes to them is gone.
  Tensors ForwardAgain(const Tensors& inputs) {
    if (own_buffers_ == 0) return CallForward(state_, spec_, self_, inputs);
    Tensors buffers = OwnBuffers();
    if (const auto kept = before_.find(ScopeSeed()); kept != before_.end()) {
      buffers = std::move(kept->second.front());
      kept->second.pop_front();
      if (kept->second.empty()) before_.erase(kept);
    }
    ShowBuffers(CopyOnWrite(buffers));
    struct Restores {
      ~Restores() { layer.ShowBuffers(layer.OwnBuffers()); }
      SelfLayer& layer;
    } const restores{*this};
    return CallForward(state_, spec_, self_, inputs);
  }

  int self_ = LUA_NOREF;
  std::map<uint64_t, std::deque<Tensors>> before_;  ///< by ScopeSeed()
};

/// The parameters of a built layer as fields of `self`, under spec.tied_forward.
class TiedLayer : public SelfLayer {
 public:
  TiedLayer(State& state, const LayerSpec& spec, Layer& layer) : SelfLayer(state, spec) {
    spec_.forward = spec.tied_forward;
    parameters_ = layer.parameters();
    buffers_ = layer.buffers();
    own_parameters_ = parameters_.size();
    RunIn(state_, [&](lua_State* L) {
      PushSelf(L);
      TakeSelf(L);
    });
  }
};

/// strata.layer's. Initial values are drawn in the order in which init makes things, as PyTorch's
/// modules do; then `reset` may set others.
class OwnLayer : public SelfLayer {
 public:
  OwnLayer(State& state, LayerScript& script, const LayerSpec& spec) : SelfLayer(state, spec) {
    RunIn(state_, [&](lua_State* L) {
      const at::NoGradGuard no_grad;
      std::vector<at::Tensor> values;
      const MakeParameter make = [&](lua_State* L, const ParameterDeclaration& declaration) {
        values.push_back(at::empty(declaration.shape, at::kFloat).fill_(declaration.fill));
        PushTensor(L, values.back());
      };
      const std::vector<OwnMember> members = RunInit(L, spec_, make);
      TakeMembers(L, members, values, Build(L, script, members, values));
      SetFields(L);
      if (PushReset(L, spec_.init)) Reset(L);
      TakeAssigned(L);
      TakeSelf(L);
    });
  }
  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    struct Runs {
      Runs(const Pass*& place, const Pass& now)
          : current(place), before(std::exchange(place, &now)) {}
      ~Runs() { current = before; }
      Runs(const Runs&) = delete;
      Runs& operator=(const Runs&) = delete;
      const Pass*& current;
      const Pass* before;
    } const runs(*pass_, pass);
    return SelfLayer::Forward(inputs, pass);
  }

 private:
  /// The layers, and the drawn values of the parameters, in the order of init.
  std::vector<std::unique_ptr<Layer>> Build(lua_State* L, LayerScript& script,
                                            const std::vector<OwnMember>& members,
                                            const std::vector<at::Tensor>& values) const {
    std::vector<std::unique_ptr<Layer>> layers;
    size_t parameter = 0;
    for (const OwnMember& member : members) {
      if (member.kind == OwnMember::Kind::kLayer) {
        layers.push_back(BuildLayer(Declared(layers.size(), member), &script, CurrentAxis()));
      } else if (member.kind == OwnMember::Kind::kParameter) {
        const at::Tensor& value = values[parameter++];
        if (member.declaration.init.id < 0) continue;
        PushFunction(L, member.declaration.init);
        PushTensor(L, value);
        CallNested(L, 1, 1);
        TakeInitialValue(L, member, value);
      }
    }
    return layers;
  }

  /// What the init function at the top of the stack gave: nothing, the parameter, or values for it.
  void TakeInitialValue(lua_State* L, const OwnMember& member, const at::Tensor& value) const {
    const at::Tensor* const given = TensorAt(L, -1);
    const bool fits = given != nullptr && given->sizes() == value.sizes();
    if (!lua_isnil(L, -1) && !fits) {
      throw ConfigError(Str(member.declaration.init.where, ": the init of ", spec_.type, ".",
                            member.name, " may give a tensor ", FormatShape(value.sizes()),
                            " or nothing, got ", Describe(L, -1)));
    }
    if (fits && !given->is_same(value)) at::Tensor(value).copy_(*given);
    lua_pop(L, 1);
  }

  /// The layer as it was declared and laid out. The init that runs again has made its like.
  const LayerSpec& Declared(size_t index, const OwnMember& member) const {
    if (index < spec_.children.size()) {
      const LayerSpec& declared = spec_.children[index];
      if (declared.name == member.name && declared.type == member.layer.type) return declared;
    }
    throw ConfigError(Str(spec_.init.where, ": the init of ", spec_.ToString(), " makes ",
                          member.layer.ToString(), " as ", member.name,
                          ", which it did not do when the layer was declared"));
  }

  /// Makes them its own and shows them to Lua. The self is at the top of the stack.
  void TakeMembers(lua_State* L, const std::vector<OwnMember>& members,
                   const std::vector<at::Tensor>& values,
                   std::vector<std::unique_ptr<Layer>> layers) {
    const int self = lua_gettop(L);
    for (const OwnMember& member : members) {
      if (member.kind == OwnMember::Kind::kParameter) {
        AddParameter(member.name, values[parameters_.size()]);
      } else if (member.kind == OwnMember::Kind::kBuffer) {
        lua_getfield(L, self, member.name.c_str());
        const at::Tensor& value = TensorArgument(L, -1, "a buffer's tensor");
        buffers_.push_back({member.name, value.detach().clone(at::MemoryFormat::Contiguous)});
        lua_pop(L, 1);
      }
    }
    own_parameters_ = parameters_.size();
    own_buffers_ = buffers_.size();
    auto layer = layers.begin();
    for (const OwnMember& member : members) {
      if (member.kind != OwnMember::Kind::kLayer) continue;
      const LayerSpec& spec = spec_.children[kept_.list.size()];
      Layer* const adopted = Adopt(member.name, std::move(*layer++));
      kept_.Add(Str(spec_.type, ".", member.name), spec, *adopted, pass_);
      PushObject(L, kept_.list.back());
      SetOwnMember(L, self, member.name);
    }
  }

  /// The function is at the top of the stack, the self below it.
  void Reset(lua_State* L) {
    const bool has_shares = std::ranges::any_of(
        parameters_, [](const Parameter& parameter) { return parameter.share.has_value(); });
    if (has_shares) {
      throw ConfigError(Str(spec_.ToString(),
                            ": reset cannot set what ranks of the model axis share; ",
                            "give the layers that say split an init=function(layer) each"));
    }
    lua_pushvalue(L, -2);
    CallNested(L, 1, 0);
    for (const Parameter& parameter : parameters_) {
      if (parameter.value.requires_grad() || parameter.frozen) continue;
      throw ConfigError(Str(spec_.ToString(), ": reset cannot freeze ", parameter.name,
                            "; a job's freeze = \"parameters:REGEX\" names what does not learn"));
    }
  }

  const CurrentPass pass_ = std::make_shared<const Pass*>(nullptr);
  KeptLayers kept_;
};

/// Runs init=function(layer).
void RunInitOf(State& state, const LayerSpec& spec, Layer& layer) {
  KeptLayers kept;
  kept.Add(spec.type, spec, layer, nullptr);
  RunIn(state, [&](lua_State* L) {
    const at::NoGradGuard no_grad;
    PushFunction(L, spec.init);
    PushObject(L, kept.list.front());
    CallProtected(L, 1, 0);
  });
}

}  // namespace

const ObjectType& TypeOf<KeptLayer>::Get() {
  static const ObjectType type{
      .name = "built layer",
      .metamethods = {{"__tostring", Function<ShowKept>}, {"__call", Bound<CallKept>}},
      .lookup = Bound<FieldOfKept>,
      .list_names = Bound<NamesOfKept>};
  return type;
}

std::unique_ptr<Layer> MakeScriptLayer(State& state, LayerScript& script, const LayerSpec& spec) {
  if (spec.type == "function") return std::make_unique<FunctionLayer>(state, spec);
  return std::make_unique<OwnLayer>(state, script, spec);
}

std::unique_ptr<Layer> DressLayer(State& state, const LayerSpec& spec,
                                  std::unique_ptr<Layer> layer) {
  if (!spec.tied_forward.where.empty()) return std::make_unique<TiedLayer>(state, spec, *layer);
  RunInitOf(state, spec, *layer);
  return layer;
}

}  // namespace strata::lua
