// TensorScript: runs a script's layers, losses and data functions for the engine.
#include "lua/engine/tensor_script.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/tensors/copy_on_write.h"
#include "engine/base/tensors/dry_run.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"
#include "engine/comm/current.h"
#include "engine/comm/specs.h"
#include "engine/job/job.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/loss_scope.h"
#include "engine/layers/losses.h"
#include "engine/layers/random/random.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/engine/layer_memory.h"
#include "lua/engine/script_call.h"
#include "lua/engine/script_layers.h"
#include "lua/tensors/call.h"
#include "lua/tensors/tensor_object.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

/// A loss or metric given by function(output, target). It returns the mean over the micro-batch's
/// rows, or a sum and a weight. After either it may return a table of parts: further means, or
/// sums, by name.
class FunctionLoss : public Loss {
 public:
  FunctionLoss(State& state, const LayerSpec& spec) : state_(state), spec_(spec) {}
  LossValue Compute(const Tensors& output, const Tensors& target) override {
    if (!is_metric()) return Run(output, target);
    try {
      return Run(output, target);
    } catch (const ConfigError& error) {
      throw ConfigError(Str(spec_.type, ": ", error.what()));
    }
  }

  Hits CountHits(const Tensors& output, const Tensors& target) override {
    return CountLabelHits(output.at(0), target.at(0), spec_.class_dim);
  }

 private:
  bool is_metric() const { return spec_.type.starts_with(kMetricPrefix); }
  /// The beginning of errors: "net.lua:4: the loss function".
  std::string Subject() const {
    return Str(spec_.forward.where, is_metric() ? ": the function" : ": the loss function");
  }
  LossValue Run(const Tensors& output, const Tensors& target) {
    LossValue value;
    RunIn(state_, [&](lua_State* L) {
      const FactoryDevice there(output.empty() ? c10::Device(c10::kCPU) : output[0].device());
      PushFunction(L, spec_.forward);
      PushTensors(L, CopyOnWrite(output));
      PushTensors(L, CopyOnWrite(target));
      CallProtected(L, 2, LUA_MULTRET);
      const int64_t samples = SamplesOfLoss();
      value = Result(L, samples > 0 ? samples : RowsOf(output));
    });
    return value;
  }
  LossValue Result(lua_State* L, int64_t rows) const {
    const LossParts parts = TakeParts(L);
    const at::Tensor* loss = TensorAt(L, 1);
    if (loss == nullptr || loss->numel() != 1 || lua_gettop(L) > 2) {
      throw ConfigError(Str(Subject(), " must return a tensor of one element, or a sum and its ",
                            "weight, and perhaps a table of parts; got ",
                            loss ? "a tensor " + DescribeTensor(*loss) : Describe(L, 1)));
    }
    if (lua_gettop(L) == 2) {
      GiveLossParts(parts);
      return {loss->sum(), Weight(L)};
    }
    const auto scale = static_cast<double>(rows);
    LossParts sums;
    for (const auto& [name, part] : parts) sums.emplace_back(name, part.mul(scale));
    GiveLossParts(std::move(sums));
    return {loss->sum().mul(scale), scale};
  }

  /// Reads and pops the parts if a table with them is at the top of the stack.
  LossParts TakeParts(lua_State* L) const {
    LossParts parts;
    const int table = lua_gettop(L);
    if (table < 2 || !IsPlainTable(L, table)) return parts;
    const TableShape shape = ShapeOf(L, table);
    if (shape.positions > 0 || shape.names.size() > kMostLossParts) {
      throw ConfigError(Str(Subject(), "'s parts must be a table of up to ", kMostLossParts,
                            " names, {bce = ...}; got ", Describe(L, table)));
    }
    for (const std::string& name : shape.names) {
      lua_getfield(L, table, name.c_str());
      parts.emplace_back(name, Part(L, name));
    }
    lua_settop(L, table - 1);
    return parts;
  }
  at::Tensor Part(lua_State* L, const std::string& name) const {
    const at::Tensor* part = TensorAt(L, -1);
    if (part && part->numel() == 1) return part->detach().reshape({});
    if (!part && lua_type(L, -1) == LUA_TNUMBER) {
      return at::scalar_tensor(lua_tonumber(L, -1), at::kDouble);
    }
    throw ConfigError(Str(Subject(), "'s part \"", name,
                          "\" must be a number or a tensor of one element, got ",
                          part ? "a tensor " + DescribeTensor(*part) : Describe(L, -1)));
  }
  double Weight(lua_State* L) const {
    const at::Tensor* weight = TensorAt(L, 2);
    const bool is_number = weight ? weight->numel() == 1 : lua_type(L, 2) == LUA_TNUMBER;
    if (!is_number) {
      throw ConfigError(Str(Subject(), "'s weight must be a number, got ", Describe(L, 2)));
    }
    if (weight && weight->requires_grad()) {
      throw ConfigError(Str(Subject(),
                            "'s weight depends on parameters, and gives them no gradient: ",
                            "return the quotient alone, or weight:detach() where that is meant"));
    }
    if (weight && DryRun::IsOn()) return 1;
    const double value = weight ? weight->item().toDouble() : lua_tonumber(L, 2);
    if (value < 0) throw ConfigError(Str(Subject(), "'s weight must be at least 0, got ", value));
    return value;
  }
  /// The number of rows; 1 while planning does not know the number of samples.
  static int64_t RowsOf(const Tensors& tensors) {
    return tensors.empty() || tensors[0].dim() == 0 ? 1 : tensors[0].size(0);
  }

  State& state_;
  LayerSpec spec_;
};

/// The distinct values of the first tensor, ascending, if it has integers; otherwise empty.
std::vector<int64_t> DistinctValues(const Tensors& tensors) {
  if (tensors.empty() || !at::isIntegralType(tensors[0].scalar_type(), /*includeBool=*/false)) {
    return {};
  }
  const at::Tensor values =
      std::get<0>(at::_unique(tensors[0].detach().to(at::kCPU, at::kLong))).contiguous();
  const int64_t* first = values.const_data_ptr<int64_t>();
  return {first, first + values.numel()};
}

void AddIds(const Value& value, std::string& ids) {
  if (value.is_function()) ids += Str(value.as_function().id, " ");
  if (value.is_list()) {
    for (const Value& element : value.as_list()) AddIds(element, ids);
  }
  if (value.is_map()) {
    for (const auto& [name, element] : value.as_map()) AddIds(element, ids);
  }
}

void ClearNames(LayerSpec& layer) {
  layer.name.clear();
  for (LayerSpec& child : layer.children) ClearNames(child);
}

/// Equal for two layers whose trials on these inputs come out alike: they have the same types,
/// arguments and functions, and those inside them too. Names do not count, so one block of a
/// Transformer is tried for all. A function counts by its id, because functions of one place in a
/// script may capture different values.
std::string TrialKey(LayerSpec layer, const TensorSpecs& inputs) {
  ClearNames(layer);
  const Value value = layer.ToValue();
  std::string key;
  AddIds(value, key);
  return Str(key, value.ToJson(), ToString(inputs));
}

Tensors Zeros(const TensorSpecs& specs) {
  Tensors tensors;
  for (const TensorSpec& spec : specs) {
    tensors.push_back(at::zeros(spec.shape, ToScalarType(spec.dtype)));
  }
  return tensors;
}

}  // namespace

Value TensorScript::Call(const FunctionRef& function, const Value::List& arguments) {
  return state_.script().Call(function, arguments);
}

void TensorScript::BeginPlan() {
  const Session session(state_, Watch::kClosely);
  notes_.clear();
  told_.clear();
  inferred_.clear();
  measured_.clear();
}

std::vector<std::string> TensorScript::TakeNotes() {
  const Session session(state_, Watch::kClosely);
  std::vector<std::string> notes;
  std::ranges::set_difference(notes_, told_, std::back_inserter(notes));
  told_ = notes_;
  return notes;
}

/// Errors say how the function was called, since it might not fail for real values.
template <class Body>
auto TensorScript::Try(const LayerSpec& of, const TensorSpecs& specs, const Body& body) {
  const PlanningScope planning;
  const RandomScope random(0);
  const auto run = [&](const char* on) {
    try {
      return body();
    } catch (const ConfigError& error) {
      throw ConfigError(
          Str(error.what(), " (planning runs it on ", on, ": ", ToString(specs), ")"));
    }
  };
  {
    const DryRun dry;
    try {
      auto result = run("tensors without values");
      if (DryRun::obstacle().empty()) return result;
    } catch (const std::exception&) {
      if (DryRun::obstacle().empty()) throw;
    }
  }
  const std::string place = of.forward.where.empty() ? of.where : of.forward.where;
  notes_.insert(Str(
      place, ": this function needs values of its tensors (", DryRun::obstacle(),
      "), so planning computes it on zeros, which takes the time and the memory of a ", "pass"));
  const DryRun products(DryRun::Skips::kProducts);
  return run("zeros");
}

TensorSpecs TensorScript::InferShapes(const LayerSpec& layer, const TensorSpecs& inputs) {
  const Session session(state_, Watch::kClosely);
  const std::string key = TrialKey(layer, inputs);
  if (const auto known = inferred_.find(key); known != inferred_.end()) return known->second;
  const at::NoGradGuard no_grad;
  return inferred_[key] = Try(layer, inputs, [&] {
           const std::unique_ptr<Layer> built = strata::BuildLayer(layer, this);
           return SpecsOf(built->Forward(Zeros(inputs), Pass{.training = false}));
         });
}

std::optional<LayerMemory> TensorScript::MeasureMemory(const LayerSpec& layer,
                                                       const TensorSpecs& inputs) {
  const Session session(state_, Watch::kClosely);
  const std::string key = TrialKey(layer, inputs);
  if (const auto known = measured_.find(key); known != measured_.end()) return known->second;
  const auto collect = [this] { RunIn(state_, [](lua_State* L) { lua_gc(L, LUA_GCCOLLECT, 0); }); };
  return measured_[key] = Try(layer, inputs, [&] {
           try {
             const std::unique_ptr<Layer> built = strata::BuildLayer(layer, this);
             return MemoryOfLayer(*built, inputs, collect);
           } catch (const c10::Error& error) {
             const std::string place = layer.where.empty() ? "" : layer.where + ": ";
             throw ConfigError(Str(place, layer.ToString(), ": ", ErrorText(error)));
           }
         });
}

FirstBatch TensorScript::InferData(const FunctionRef& function, int64_t job_seed) {
  const Session session(state_, Watch::kClosely);
  const PlanningScope planning;
  const MicroBatch batch = CallData(function, 0, job_seed);
  return {SpecsOf(batch.input), SpecsOf(batch.target), DistinctValues(batch.input),
          DistinctValues(batch.target)};
}

void TensorScript::TryLoss(const LayerSpec& loss, const TensorSpecs& output,
                           const TensorSpecs& target) {
  const Session session(state_, Watch::kClosely);
  const at::NoGradGuard no_grad;
  TensorSpecs specs = output;
  specs.insert(specs.end(), target.begin(), target.end());
  Try(loss, specs,
      [&] { return FunctionLoss(state_, loss).Compute(Zeros(output), Zeros(target)); });
}

std::unique_ptr<Layer> TensorScript::BuildLayer(const LayerSpec& spec) {
  return MakeScriptLayer(state_, *this, spec);
}

std::unique_ptr<Layer> TensorScript::WithForward(const LayerSpec& spec,
                                                 std::unique_ptr<Layer> layer) {
  return DressLayer(state_, spec, std::move(layer));
}

std::unique_ptr<Loss> TensorScript::BuildLoss(const LayerSpec& spec) {
  return std::make_unique<FunctionLoss>(state_, spec);
}

MicroBatch TensorScript::CallData(const FunctionRef& function, int64_t i, int64_t job_seed) {
  const RandomScope random(ForwardSeed(job_seed, i, -1));
  MicroBatch batch;
  RunIn(state_, [&](lua_State* L) {
    PushFunction(L, function);
    lua_pushnumber(L, static_cast<double>(i));
    CallProtected(L, 1, 2);
    try {
      // The script may keep these tensors and write to them for the next micro-batch.
      batch.input = CopyOnWrite(TensorsArgument(L, 1, "the input, a tensor or a list of tensors"));
      if (!lua_isnil(L, 2)) {
        batch.target =
            CopyOnWrite(TensorsArgument(L, 2, "the target, a tensor or a list of tensors"));
      }
    } catch (const ConfigError& error) {
      throw ConfigError(
          Str(function.where, ": the data function for micro-batch ", i, ": ", error.what()));
    }
  });
  return batch;
}

}  // namespace strata::lua
