// Calls of LibTorch's operators. Lua's arguments are fitted to each overload of the operator in
// turn: by position, then by name, then by default; with `collect`, trailing values may form a
// list. Of the overloads that fit, the one with the fewest unused arguments is called. The cost is
// one pass over the arguments for each overload.
#include "lua/tensors/call.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/stack.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/documents.h"
#include "lua/core/binding.h"
#include "lua/core/calls.h"
#include "lua/core/convert.h"
#include "lua/tensors/argument.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

using c10::IValue;

/// The result of fitting arguments to one overload.
struct Fit {
  torch::jit::Stack stack;
  std::vector<int> indices;  ///< Lua stack index of each; 0 = a default or a collected list
  size_t unused = 0;         ///< number of arguments left to their defaults
  std::string trouble;       ///< the reason why it does not fit; "" if it does

  void Add(IValue value, int index) {
    stack.push_back(std::move(value));
    indices.push_back(index);
  }
};

bool NameMatches(std::string_view ours, std::string_view schema) {
  // torch.nn.functional names the argument input, the operators name it self.
  return ours == schema || (ours == "input" && schema == "self");
}

const CallArguments::Named* FindNamed(const CallArguments& arguments, const std::string& name) {
  for (const auto& named : arguments.named) {
    if (NameMatches(named.name, name)) return &named;
  }
  return nullptr;
}

std::string Got(lua_State* L, int index) {
  if (const at::Tensor* tensor = TensorAt(L, index)) return "a tensor " + DescribeTensor(*tensor);
  return Describe(L, index);
}

std::string CheckNames(const std::vector<c10::Argument>& schema, const CallArguments& arguments) {
  std::vector<std::string> names;
  for (const c10::Argument& argument : schema) names.push_back(argument.name());
  for (const auto& named : arguments.named) {
    bool known = false;
    for (const std::string& name : names) known = known || NameMatches(named.name, name);
    if (!known) {
      return Str("has no argument \"", named.name, "\"", DidYouMean(named.name, names));
    }
  }
  return "";
}

/// Fits positions and names to one overload. With `collect`, all positions from the first list
/// argument of integers or tensors on form that list.
Fit TryFit(lua_State* L, const c10::FunctionSchema& schema, const CallArguments& arguments,
           bool collect) {
  Fit fit;
  size_t used = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    const CallArguments::Named* named = FindNamed(arguments, argument.name());
    const bool by_position = used < arguments.positional.size() && !argument.kwarg_only();
    if (by_position && named) {
      fit.trouble = Str("was given ", argument.name(), " twice");
      return fit;
    }
    if (by_position && collect && IsCollectable(argument)) {
      auto list = Collect(L, arguments.positional[used], arguments.positional.back(), argument);
      used = arguments.positional.size();
      if (list) {
        fit.Add(std::move(*list), 0);
        continue;
      }
      fit.trouble = "takes another kind there";
      return fit;
    }
    if (by_position || named) {
      const int index = by_position ? arguments.positional[used++] : named->index;
      auto value = ToArgument(L, index, argument);
      // A nil among the positions leaves its argument at the default.
      const bool left_out = !value && lua_isnil(L, index) && argument.default_value();
      if (left_out) value = *argument.default_value();
      if (!value) {
        const bool is_tensor = argument.real_type()->str().starts_with("Tensor");
        fit.trouble = Str("expects ", ArgumentText(argument), ", got ", Got(L, index),
                          is_tensor ? BooleanHint(L, index) : "");
        return fit;
      }
      fit.Add(std::move(*value), left_out ? 0 : index);
      continue;
    }
    // In a table of names nil cannot be given. So with names, an optional argument that is not
    // named is nil.
    const bool is_optional = argument.real_type()->kind() == c10::TypeKind::OptionalType;
    const bool is_nil = is_optional && !arguments.named.empty();
    if (!argument.default_value() && !is_nil) {
      fit.trouble = Str("needs ", ArgumentText(argument));
      return fit;
    }
    fit.Add(argument.default_value().value_or(IValue()), 0);
    ++fit.unused;
  }
  if (used < arguments.positional.size()) {
    fit.trouble = Str("takes ", Plural(static_cast<int64_t>(used), "argument"), ", got ",
                      arguments.positional.size());
    return fit;
  }
  fit.trouble = CheckNames(schema.arguments(), arguments);
  return fit;
}

[[noreturn]] void ThrowNoFit(const c10::FunctionSchema& schema, std::string_view name,
                             std::string_view shown, const std::string& trouble) {
  throw ConfigError(Str(shown, " ", trouble, "; it is ", Signature(name, schema)));
}

bool HasTensor(lua_State* L, const CallArguments& arguments) {
  const auto is_tensor = [&](int index) { return TensorAt(L, index) != nullptr; };
  return std::ranges::any_of(arguments.positional, is_tensor) ||
         std::ranges::any_of(arguments.named, is_tensor, &CallArguments::Named::index);
}

[[noreturn]] void ThrowNoFit(lua_State* L, const Operator& op, const CallArguments& arguments,
                             std::string_view shown, const std::string& first_trouble) {
  if (op.overloads.size() == 1) {
    ThrowNoFit(op.overloads[0].schema(), op.name, shown, first_trouble);
  }
  std::vector<std::string> given;
  for (const int index : arguments.positional) given.push_back(Got(L, index));
  for (const auto& named : arguments.named) {
    given.push_back(Str(named.name, "=", Got(L, named.index)));
  }
  constexpr size_t kShown = 6;
  std::string text = Str(shown, " does not take (", Join(given, ", "), "); it has");
  for (size_t i = 0; i < op.overloads.size() && i < kShown; ++i) {
    text += Str("\n  ", Signature(op.name, op.overloads[i].schema()));
  }
  if (op.overloads.size() > kShown) text += Str("\n  and ", op.overloads.size() - kShown, " more");
  if (!HasTensor(L, arguments)) {
    text +=
        Str("\n(a method is called with a colon: x:", op.name, given.empty() ? "())" : "(...))");
  }
  const auto boolean = std::ranges::find_if(arguments.positional,
                                            [&](int index) { return lua_isboolean(L, index); });
  if (boolean != arguments.positional.end()) text += Str("\n", Trim(BooleanHint(L, *boolean)));
  throw ConfigError(text);
}

struct Choice {
  const c10::OperatorHandle* overload = nullptr;
  torch::jit::Stack stack;
};

Choice Choose(lua_State* L, const Operator& op, const CallArguments& arguments,
              std::string_view shown) {
  std::string first_trouble;
  for (const bool collect : {false, true}) {
    Choice choice;
    size_t fewest = 0;
    for (const c10::OperatorHandle& overload : op.overloads) {
      Fit fit = TryFit(L, overload.schema(), arguments, collect);
      if (first_trouble.empty()) first_trouble = fit.trouble;
      if (!fit.trouble.empty() || (choice.overload && fit.unused >= fewest)) continue;
      choice = {&overload, std::move(fit.stack)};
      fewest = fit.unused;
    }
    if (choice.overload) return choice;
  }
  ThrowNoFit(L, op, arguments, shown, first_trouble);
}

thread_local c10::Device factory_device = c10::kCPU;

/// Sets the device of an operator that creates a tensor without taking one, unless the script names
/// a device.
void SetFactoryDevice(Choice& choice) {
  if (factory_device.is_cpu()) return;
  const auto is_tensor = [](const IValue& value) {
    return value.isTensor() || value.isTensorList();
  };
  if (std::ranges::any_of(choice.stack, is_tensor)) return;
  const std::optional<int> place = choice.overload->schema().argumentIndexWithName("device");
  if (place && choice.stack[*place].isNone()) choice.stack[*place] = factory_device;
}

/// True for the products that autocast computes in half precision.
bool IsProduct(std::string_view name) {
  constexpr auto kProducts = std::to_array<std::string_view>({"addbmm",
                                                              "addmm",
                                                              "addmv",
                                                              "addr",
                                                              "baddbmm",
                                                              "bmm",
                                                              "chain_matmul",
                                                              "conv1d",
                                                              "conv2d",
                                                              "conv3d",
                                                              "conv_transpose1d",
                                                              "conv_transpose2d",
                                                              "conv_transpose3d",
                                                              "einsum",
                                                              "linalg_multi_dot",
                                                              "linear",
                                                              "matmul",
                                                              "mm",
                                                              "mv",
                                                              "prelu",
                                                              "scaled_dot_product_attention"});
  static_assert(std::ranges::is_sorted(kProducts));
  return std::ranges::binary_search(kProducts, name);
}

/// The number of leading arguments that a loss compares element by element; 0 for other operators.
size_t ComparedArguments(std::string_view name) {
  constexpr auto kLosses =
      std::to_array<std::pair<std::string_view, size_t>>({{"binary_cross_entropy", 2},
                                                          {"binary_cross_entropy_with_logits", 2},
                                                          {"cosine_embedding_loss", 2},
                                                          {"hinge_embedding_loss", 2},
                                                          {"huber_loss", 2},
                                                          {"kl_div", 2},
                                                          {"l1_loss", 2},
                                                          {"margin_ranking_loss", 3},
                                                          {"mse_loss", 2},
                                                          {"poisson_nll_loss", 2},
                                                          {"smooth_l1_loss", 2},
                                                          {"soft_margin_loss", 2},
                                                          {"triplet_margin_loss", 3}});
  const auto found = std::ranges::find(kLosses, name, &decltype(kLosses)::value_type::first);
  return found == kLosses.end() ? 0 : found->second;
}

void RefuseAllPairs(const Operator& op, const Choice& choice, std::string_view shown) {
  const size_t count = ComparedArguments(op.name);
  if (count == 0) return;
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = choice.overload->schema().arguments()[i].name();
    tensors.push_back({name == "self" ? "input" : name, choice.stack[i].toTensor()});
  }
  RefuseAllPairs(shown, tensors);
}

std::string ShapeText(at::IntArrayRef shape) { return Str("{", Join(shape, ", "), "}"); }

/// Replaces each tensor in the stack, including those in lists, by the result of `visit`.
template <typename Visit>
void ForEachTensor(torch::jit::Stack& stack, const Visit& visit) {
  for (IValue& value : stack) {
    if (value.isTensor()) value = visit(value.toTensor());
    if (!value.isTensorList()) continue;
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(visit(tensor));
    value = std::move(tensors);
  }
}

/// Converts the factors of a product of float32 and half precision to the latter, as autocast does.
void ConvertFactors(const Operator& op, torch::jit::Stack& stack) {
  if (!IsProduct(op.name)) return;
  std::optional<at::ScalarType> half;
  ForEachTensor(stack, [&](const at::Tensor& t) {
    if (t.defined() && at::isReducedFloatingType(t.scalar_type())) half = t.scalar_type();
    return t;
  });
  if (!half) return;
  ForEachTensor(stack, [&](const at::Tensor& t) {
    return t.defined() && t.scalar_type() == at::kFloat ? t.to(*half) : t;
  });
}

/// scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, ...), within
/// the documents of packed rows.
void CallWithinDocuments(const c10::OperatorHandle& attention, torch::jit::Stack& stack) {
  std::optional<at::Tensor> mask;
  if (!stack[3].isNone()) mask = stack[3].toTensor();
  const at::Tensor mixed = WithinDocuments(
      stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor(), mask, stack[5].toBool(),
      [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
          const std::optional<at::Tensor>& seen, bool causal) {
        torch::jit::Stack own = stack;
        own[0] = query;
        own[1] = key;
        own[2] = value;
        own[3] = seen ? IValue(*seen) : IValue();
        own[5] = causal;
        attention.callBoxed(&own);
        return own[0].toTensor();
      });
  stack = {mixed};
}

/// The names in the table at `index`; empty if it has none. Sets `positions`.
std::vector<std::string> NamesOf(lua_State* L, int index, int& positions) {
  const TableShape shape = ShapeOf(L, index);
  positions = shape.positions;
  return shape.names;
}

void AddNamed(lua_State* L, int table, const std::vector<std::string>& names,
              CallArguments& arguments) {
  for (const std::string& name : names) {
    lua_getfield(L, table, name.c_str());
    arguments.named.push_back({name, lua_gettop(L)});
  }
}

}  // namespace

FactoryDevice::FactoryDevice(c10::Device device) : before_(std::exchange(factory_device, device)) {}
FactoryDevice::~FactoryDevice() { factory_device = before_; }
c10::Device FactoryDevice::Now() { return factory_device; }

std::string Signature(std::string_view name, const c10::FunctionSchema& schema) {
  std::vector<std::string> arguments;
  bool by_name = false;
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.kwarg_only() && !std::exchange(by_name, true)) arguments.emplace_back("*");
    arguments.push_back(ArgumentText(argument));
  }
  return Str(name, "(", Join(arguments, ", "), ")");
}

CallArguments ReadArguments(lua_State* L) {
  CallArguments arguments;
  const int top = lua_gettop(L);
  luaL_checkstack(L, 64, "too many arguments");
  for (int index = 1; index <= top; ++index) {
    int positions = 0;
    std::vector<std::string> names;
    if (index == top && IsPlainTable(L, index)) names = NamesOf(L, index, positions);
    if (names.empty()) {
      arguments.positional.push_back(index);
      continue;
    }
    for (int i = 1; i <= positions; ++i) {
      lua_rawgeti(L, index, i);
      arguments.positional.push_back(lua_gettop(L));
    }
    AddNamed(L, index, names, arguments);
  }
  return arguments;
}

void RefuseAllPairs(std::string_view shown, std::span<const NamedTensor> tensors) {
  std::vector<int64_t> shape;
  int64_t largest = 0;
  std::string given;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    try {
      shape = at::infer_size(shape, tensor.sizes());
    } catch (const c10::Error&) {
      return;  // the operator itself refuses these shapes
    }
    largest = std::max(largest, tensor.numel());
    given += Str(i == 0                    ? ""
                 : i + 1 == tensors.size() ? " and "
                                           : ", ",
                 name, " ", ShapeText(tensor.sizes()));
  }
  if (c10::multiply_integers(shape) <= largest) return;
  throw ConfigError(Str(shown, ": ", given, " would be compared as ", ShapeText(shape)));
}

int CallOperator(lua_State* L, const Operator& op, const CallArguments& arguments,
                 std::string_view shown) {
  Choice choice = Choose(L, op, arguments, shown);
  RefuseAllPairs(op, choice, shown);
  SetFactoryDevice(choice);
  try {
    const OutsideScript outside(L);
    ConvertFactors(op, choice.stack);
    if (CurrentDocuments() && op.name == "scaled_dot_product_attention") {
      CallWithinDocuments(*choice.overload, choice.stack);
    } else {
      choice.overload->callBoxed(&choice.stack);
    }
  } catch (const c10::Error& error) {
    throw ConfigError(Str(shown, ": ", ErrorText(error)));
  }
  int pushed = 0;
  luaL_checkstack(L, static_cast<int>(choice.stack.size()) + 8, "too many results");
  for (const IValue& value : choice.stack) pushed += PushResult(L, value);
  return pushed;
}

int PushFitted(lua_State* L, const c10::FunctionSchema& schema, std::string_view shown,
               const CallArguments& arguments) {
  Fit fit = TryFit(L, schema, arguments, false);
  if (!fit.trouble.empty()) {
    Fit collected = TryFit(L, schema, arguments, true);
    if (!collected.trouble.empty()) ThrowNoFit(schema, shown, shown, fit.trouble);
    fit = std::move(collected);
  }
  luaL_checkstack(L, static_cast<int>(fit.stack.size()) + 8, "too many arguments");
  for (size_t i = 0; i < fit.stack.size(); ++i) {
    if (fit.indices[i] != 0 && !fit.stack[i].isList()) {
      lua_pushvalue(L, fit.indices[i]);
    } else {
      PushResult(L, fit.stack[i]);
    }
  }
  return static_cast<int>(fit.stack.size());
}

}  // namespace strata::lua
