// A layer made by the user is a CompositeLayer whose forward is a function of the script. Lua sees
// the content of its `self` as tensors and as KeptLayers.
#include "lua/engine/script_layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/tensors/copy_on_write.h"
#include "engine/base/text.h"
#include "engine/comm/current.h"
#include "engine/layers/axis/axis_scope.h"
#include "engine/layers/composite.h"
#include "engine/layers/random/random.h"
#include "lua/core/bind.h"
#include "lua/core/convert.h"
#include "lua/engine/kept_layers.h"
#include "lua/engine/script_call.h"
#include "lua/library/own_layer.h"
#include "lua/tensors/call.h"
#include "lua/tensors/tensor_object.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

/// The function's results from stack index 1 on: tensors, or one list of tensors.
Tensors ResultTensors(lua_State* L, const std::string& what) {
  if (lua_gettop(L) <= 1) return TensorsArgument(L, 1, what);
  Tensors tensors;
  for (int i = 1; i <= lua_gettop(L); ++i) {
    if (lua_isnil(L, i)) throw ConfigError(Str("value ", i, " of what it returns is nil"));
    tensors.push_back(TensorArgument(L, i, what));
  }
  return tensors;
}

std::string Subject(const LayerSpec& spec) {
  const std::string& place = spec.forward.where;
  return Str(place, place.empty() ? "" : ": ", "the function of layer ", spec.ToString());
}

/// Calls forward with the tensors, after `self` if the layer has one. The function gets copies on
/// write, so it may work in place: its inputs may also be needed by the backward, by a second
/// forward, or after a skip. `after` runs afterwards in the same session.
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
      // A tail call, `return f(x)`, leaves no frame that shows the line.
      if (HasPlace(error.what())) throw;
      throw ConfigError(Str(Subject(spec), ": ", error.what()));
    }
    try {
      // The function may keep these tensors and write to them in its next call.
      outputs = CopyOnWrite(ResultTensors(L, "a tensor or a list of tensors"));
    } catch (const ConfigError& error) {
      throw ConfigError(Str(Subject(spec), " must return a tensor: ", error.what()));
    }
    // Otherwise large outputs of the last layer would stay allocated during the loss's backward.
    lua_settop(L, 0);
    if (after) after(L);
    lua_settop(L, 0);
    CollectIfDue(L);
  });
  return outputs;
}

/// Throws ConfigError if `function` has switched off the gradient of a parameter, since the stage
/// would not notice.
void CheckLearning(const LayerSpec& spec, const char* function,
                   const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    if (parameter.value.requires_grad() || parameter.frozen) continue;
    throw ConfigError(Str(spec.ToString(), ": ", function, " cannot freeze ", parameter.name,
                          "; a job's freeze = \"parameters:REGEX\" names what does not learn"));
  }
}

/// A layer that calls function(x, ...) -> y, ...
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

/// A layer whose forward gets a `self`, which is stored in the Lua state. The layer's own
/// parameters and buffers are fields of it; they are set again when the stage moves them into its
/// flat buffers.
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
      CopyAssigned(L);
    });
  }

  void OnBound() override {
    CompositeLayer::OnBound();
    RunIn(state_, [&](lua_State* L) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, self_);
      const size_t before = field_bytes_;
      SetFields(L);
      // The tensors that the fields had are garbage now, and gradients need their memory.
      if (before >= kLargeBytes) lua_gc(L, LUA_GCCOLLECT, 0);
    });
  }

 protected:
  /// Takes over the self at the top of the stack. A function may use parameters in any way, so
  /// `only_products` is cleared.
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
    field_bytes_ = OwnBytes();
  }

  /// Handles tensors that a function has assigned to fields of the self at the top of the stack.
  /// For a buffer it copies the value, as PyTorch's modules do; for a parameter it throws.
  void CopyAssigned(lua_State* L) {
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
  size_t own_parameters_ = 0, own_buffers_ = 0;  // they precede the children's
  size_t field_bytes_ = 0;                       // of the own parameters in the fields of self

 private:
  /// Collecting garbage for less than this costs more than it saves.
  static constexpr size_t kLargeBytes = 1 << 20;

  size_t OwnBytes() const {
    size_t bytes = 0;
    for (size_t i = 0; i < own_parameters_; ++i) bytes += parameters_[i].value.nbytes();
    return bytes;
  }

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

  /// Stores the buffers before a forward that will run again for the backward.
  void KeepBuffers() {
    constexpr size_t kMost = 4096;  // more than any stage has micro-batches in flight
    if (before_.size() > kMost) before_.clear();
    before_[ScopeSeed()].push_back(CopyOnWrite(OwnBuffers()));
  }

  /// Runs the forward again. It sees its buffers as the first run did, and its writes to them are
  /// dropped.
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

/// A built layer with the function spec.tied_forward; its parameters are fields of `self`.
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

/// A layer of strata.layer. As in PyTorch's modules, initial values are drawn in the order in which
/// init makes the members; then `reset` may change them.
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
      if (PushReset(L, spec_.init, spec_.forward)) Reset(L);
      CopyAssigned(L);
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
  /// Builds the layers and sets the initial values of the parameters, in the order of init.
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
        ApplyInitialValue(L, member, value);
      }
    }
    return layers;
  }

  /// Applies the result of a parameter's init function, at the top of the stack: nothing, the
  /// parameter itself, or its values.
  void ApplyInitialValue(lua_State* L, const OwnMember& member, const at::Tensor& value) const {
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

  /// The layer as it was declared and divided. The init that runs again must make an equal one.
  const LayerSpec& Declared(size_t index, const OwnMember& member) const {
    if (index < spec_.children.size()) {
      const LayerSpec& declared = spec_.children[index];
      if (declared.name == member.name && declared.type == member.layer.type) return declared;
    }
    throw ConfigError(Str(spec_.init.where, ": the init of ", spec_.ToString(), " makes ",
                          member.layer.ToString(), " as ", member.name,
                          ", which it did not do when the layer was declared"));
  }

  /// Stores the members and makes them fields of the self, which is at the top of the stack.
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

  /// Calls the reset function at the top of the stack with the self below it.
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
    CheckLearning(spec_, "reset", parameters_);
  }

  const CurrentPass pass_ = std::make_shared<const Pass*>(nullptr);
  KeptLayers kept_;
};

/// Runs spec.init, a function(layer).
void RunInitOf(State& state, const LayerSpec& spec, Layer& layer) {
  KeptLayers kept;
  kept.Add(spec.type, spec, layer, nullptr);
  RunIn(state, [&](lua_State* L) {
    const at::NoGradGuard no_grad;
    PushFunction(L, spec.init);
    PushObject(L, kept.list.front());
    CallProtected(L, 1, 0);
  });
  CheckLearning(spec, "init", layer.parameters());
}

}  // namespace

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
