// Tensors as Lua objects: their methods, arithmetic, elements and help.
#include "lua/tensors/tensor_object.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"
#include "lua/core/bind.h"
#include "lua/core/convert.h"
#include "lua/tensors/call.h"
#include "lua/tensors/functional.h"
#include "lua/tensors/index.h"
#include "lua/tensors/print.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

constexpr char kFunctions[] = "strata.operators";  // registry: name -> function already made

constexpr char kHandedOut[] = "strata.tensor_bytes";

/// The number of bytes of tensors after which garbage is collected. Lua's collector does not see
/// the memory of tensors. A collection takes time in proportion to Lua's heap, and filling tensors
/// takes time in proportion to their size; with this factor the collections are a small part.
int64_t CollectAfter(lua_State* L) {
  constexpr int64_t kLeast = 1 << 20, kFactor = 16;
  const int64_t heap = int64_t{1024} * lua_gc(L, LUA_GCCOUNT, 0);
  return std::clamp(kFactor * heap, kLeast, kMostBetweenCollections);
}

const Operator& OperatorOf(lua_State* L) {
  return *static_cast<const Operator*>(lua_touserdata(L, lua_upvalueindex(1)));
}

int CallAsOperator(lua_State* L) {
  const Operator& op = OperatorOf(L);
  return CallOperator(L, op, ReadArguments(L), op.name);
}

std::vector<int64_t> Sizes(const at::Tensor& tensor) { return tensor.sizes().vec(); }

/// __index of x.shape: explains x.shape[0] and x.shape[-1], which PyTorch users write. x.shape[3]
/// of two dims is nil, since ipairs needs that.
int ReadBelowShape(lua_State* L) {
  if (lua_type(L, 2) != LUA_TNUMBER || lua_tonumber(L, 2) >= 1) return 0;
  const std::string index = Describe(L, 2);
  throw ConfigError(Str("x.shape is a list of Lua, which counts from 1: x.shape[1] is dim 0; got ",
                        index, "; x:size(dim) counts as PyTorch does, from 0 and from the end"));
}

Pushed Shape(lua_State* L, const at::Tensor& tensor) {
  Push(L, Sizes(tensor));
  WatchData(L, "strata.shape", Bound<ReadBelowShape>);
  return {};
}

/// __index of a list of tensors, such as the result of x:split(...): q:view(...) and q.shape are
/// errors.
int ReadOfTensors(lua_State* L) {
  if (lua_type(L, 2) != LUA_TSTRING) return 0;
  const std::string name(TextAt(L, 2));
  GivenType<at::Tensor>(L);
  const int type = lua_gettop(L);
  const bool is_member = PushTypeMethod(L, type, name) || PushTypeProperty(L, type, name) ||
                         FindOperator(name) != nullptr;
  if (!is_member) return 0;
  throw ConfigError(Str("a list of ", Plural(static_cast<int64_t>(lua_objlen(L, 1)), "tensor"),
                        " has no \"", name, "\"; local a, b = unpack(list) gives its tensors"));
}

/// x:size() and x:size(dim).
Value Size(const at::Tensor& tensor, std::optional<int64_t> dim) {
  if (!dim) return Value::IntList(Sizes(tensor));
  if (*dim >= -tensor.dim() && *dim < tensor.dim()) return tensor.size(*dim);
  throw ConfigError(Str("size: ", DescribeTensor(tensor), " has no dim ", *dim));
}

int64_t Dims(const at::Tensor& tensor) { return tensor.dim(); }

int64_t NumElements(const at::Tensor& tensor) { return tensor.numel(); }

template <at::ScalarType kType>
at::Tensor Cast(const at::Tensor& tensor) {
  return tensor.to(kType);
}

at::Tensor ToHost(const at::Tensor& tensor) { return tensor.cpu(); }

int Transposed(lua_State* L) { return CallOperator(L, *FindOperator("numpy_T"), {{1}, {}}, "T"); }
int TransposedMatrices(lua_State* L) {
  return CallOperator(L, *FindOperator("mT"), {{1}, {}}, "mT");
}

std::string TypeName(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return at::isComplexType(type) ? c10::toString(type) : DTypeName(FromScalarType(type));
}

std::string Device(const at::Tensor& tensor) { return tensor.device().str(); }

std::optional<at::Tensor> Gradient(const at::Tensor& tensor) {
  return tensor.grad().defined() ? std::optional(tensor.grad()) : std::nullopt;
}

bool RequiresGrad(const at::Tensor& tensor) { return tensor.requires_grad(); }

void PushElement(lua_State* L, const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBool) {
    lua_pushboolean(L, tensor.item<bool>());
  } else {
    lua_pushnumber(L, tensor.item().toDouble());
  }
}

Pushed Item(lua_State* L, const at::Tensor& tensor) {
  if (tensor.numel() != 1) {
    throw ConfigError(Str("item: expected a tensor of one element, got ", DescribeTensor(tensor)));
  }
  PushElement(L, tensor);
  return {};
}

void PushNested(lua_State* L, const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    PushElement(L, tensor);
    return;
  }
  luaL_checkstack(L, 4, "too many dims");
  lua_createtable(L, static_cast<int>(tensor.size(0)), 0);
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    PushNested(L, tensor.select(0, i));
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

Pushed ToList(lua_State* L, const at::Tensor& tensor) {
  PushNested(L, tensor.detach().cpu());
  return {};
}

/// x:to("float32"), x:to("cuda"), x:to(other), and all other forms that the operator takes.
int To(lua_State* L) {
  CallArguments arguments = ReadArguments(L);
  const bool one_word = arguments.positional.size() == 2 && lua_type(L, 2) == LUA_TSTRING;
  if (one_word) {
    const std::string_view word = TextAt(L, 2);
    const bool is_device = word.starts_with("cpu") || word.starts_with("cuda");
    if (!is_device) ParseDType(word);  // its error names the nearest dtype
    arguments.positional.pop_back();
    arguments.named.push_back({is_device ? "device" : "dtype", 2});
  }
  // The overload with a device also needs a dtype.
  const auto is_named = [&](std::string_view name) {
    return std::ranges::find(arguments.named, name, &CallArguments::Named::name) !=
           arguments.named.end();
  };
  const at::Tensor* const tensor = TensorAt(L, 1);
  if (tensor != nullptr && arguments.positional.size() == 1 && is_named("device") &&
      !is_named("dtype")) {
    PushText(L, TypeName(*tensor));
    arguments.named.push_back({"dtype", lua_gettop(L)});
  }
  return CallOperator(L, *FindOperator("to"), arguments, "to");
}

void Backward(lua_State* L, const at::Tensor& tensor) {
  const at::Tensor* gradient = lua_isnoneornil(L, 2) ? nullptr : &TensorArgument(L, 2, "a tensor");
  try {
    tensor.backward(gradient ? *gradient : at::Tensor());
  } catch (const c10::Error& error) {
    throw ConfigError(Str("backward: ", ErrorText(error)));
  }
}

int64_t Length(const at::Tensor& tensor) {
  if (tensor.dim() == 0) throw ConfigError("a tensor without dims has no length");
  return tensor.size(0);
}

bool Equal(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.device() == b.device() && at::equal(a, b);
}

/// A tensor with the number `value` and a dtype that suits `other`, for expressions such as 2 / x.
at::Tensor Filled(double value, const at::Tensor& other) {
  const bool whole = std::floor(value) == value && at::isIntegralType(other.scalar_type(), false);
  return at::empty({}, other.options().dtype(
                           whole || other.is_floating_point() ? other.scalar_type() : at::kFloat))
      .fill_(value);
}

/// Throws ConfigError if an operand is a boolean: x * (t ~= 0) would be x * true.
void RefuseBooleans(lua_State* L, const char* name) {
  for (const int side : {1, 2}) {
    if (!lua_isboolean(L, side)) continue;
    throw ConfigError(
        Str(name, " expects tensors and numbers, got ", Describe(L, side), BooleanHint(L, side)));
  }
}

/// An arithmetic operator; either operand may be a number.
template <Words kName>
int Arithmetic(lua_State* L) {
  const char* name = kName.text;
  RefuseBooleans(L, name);
  if (!TensorAt(L, 1) && lua_type(L, 1) == LUA_TNUMBER) {
    PushTensor(L, Filled(lua_tonumber(L, 1), TensorArgument(L, 2, "a tensor")));
    lua_replace(L, 1);
  }
  return CallOperator(L, *FindOperator(name), {{1, 2}, {}}, name);
}

int Negate(lua_State* L) { return CallOperator(L, *FindOperator("neg"), {{1}, {}}, "neg"); }

/// __index for names that are not methods: operators by name, otherwise elements.
int Lookup(lua_State* L) {
  if (lua_type(L, 2) != LUA_TSTRING) {
    PushTensor(L, GetElements(L, TensorArgument(L, 1, "a tensor"), 2));
    return 1;
  }
  const std::string name(TextAt(L, 2));
  if (PushOperatorFunction(L, name, true)) return 1;
  const Functional* functional = FindFunctional(name, false);
  if (functional && functional->no_function.empty()) {
    throw ConfigError(
        Str("a tensor has no \"", name, "\"; it is F.", Signature(name, *functional->schema)));
  }
  throw ConfigError(Str("a tensor has no \"", name, "\": ", WhyNoOperator(name)));
}

/// __newindex: x[...] = v.
void Assign(lua_State* L, const at::Tensor& tensor) {
  if (lua_type(L, 2) == LUA_TSTRING) {
    throw ConfigError(
        Str("a tensor's ", TextAt(L, 2), " cannot be set; x[{0, 1}] = v sets elements"));
  }
  SetElements(L, tensor, 2, 3);
}

// ---- Help

/// The operator behind the function at `index`; null for other values.
const Operator* OperatorAt(lua_State* L, int index) {
  if (lua_tocfunction(L, index) != Bound<CallAsOperator>) return nullptr;
  lua_getupvalue(L, index, 1);
  const auto* op = static_cast<const Operator*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return op;
}

/// The results of an operator: "Tensor", "(Tensor values, Tensor indices)".
std::string ResultsText(const c10::FunctionSchema& schema) {
  std::vector<std::string> results;
  for (const c10::Argument& result : schema.returns()) {
    const std::string& name = result.name();
    results.push_back(Str(result.type()->str(), name.empty() ? "" : " ", name));
  }
  if (results == std::vector<std::string>{"Tensor[]"}) return "Tensor[], a list: unpack(...)";
  return results.size() == 1 ? results[0] : "(" + Join(results, ", ") + ")";
}

std::string OperatorText(const Operator& op) {
  constexpr size_t kShown = 12;
  std::string text = Str("F.", op.name, ": an operator of LibTorch, also as tensor:", op.name);
  for (size_t i = 0; i < op.overloads.size() && i < kShown; ++i) {
    const c10::FunctionSchema& schema = op.overloads[i].schema();
    text += Str("\n  ", Signature(op.name, schema), " -> ", ResultsText(schema));
  }
  if (op.overloads.size() > kShown) text += Str("\n  and ", op.overloads.size() - kShown, " more");
  return text;
}

std::string FunctionalHelp(const Functional& functional) {
  const bool of_init = functional.name.starts_with(kInitPrefix);
  return Str(of_init ? "" : "F.", functional.name, ": ",
             of_init               ? "torch.nn.init"
             : functional.of_torch ? "torch"
                                   : "torch.nn.functional",
             "'s\n  ", Signature(functional.name, *functional.schema));
}

/// Pushes a new function for F.name or tensor:name. False, and nothing is pushed, if there is none.
bool MakeOperatorFunction(lua_State* L, std::string_view name, bool method) {
  const Functional* functional = FindFunctional(name, method);
  if (functional && functional->schema && PushFunctional(L, *functional)) return true;
  const Operator* op = FindOperator(name);
  if (op == nullptr) return false;
  lua_pushlightuserdata(L, const_cast<Operator*>(op));
  lua_pushcclosure(L, Bound<CallAsOperator>, 1);
  return true;
}

}  // namespace

int ListOperators(lua_State* L) {
  Value::List names;
  for (const std::string& name : OperatorNames()) {
    if (!name.starts_with("_")) names.push_back(name);
  }
  PushValue(L, names);
  return 1;
}

int DescribeOperator(lua_State* L) {
  const Functional* functional = FunctionalAt(L, 1);
  const Operator* op = OperatorAt(L, 1);
  if (lua_type(L, 1) == LUA_TSTRING) {
    const std::string_view name = TextAt(L, 1);
    functional = FindFunctional(name, false);
    op = FindOperator(name);
  }
  if (functional && functional->schema) {
    PushText(L, FunctionalHelp(*functional));
  } else if (op) {
    PushText(L, OperatorText(*op));
  } else {
    return 0;
  }
  return 1;
}

int ResultOfOperator(lua_State* L) {
  if (FunctionalAt(L, 1)) return GivenType<at::Tensor>(L);
  const Operator* op = OperatorAt(L, 1);
  if (op == nullptr) return 0;
  const bool is_tensor = std::ranges::all_of(op->overloads, [](const auto& overload) {
    const auto& returns = overload.schema().returns();
    return returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::TensorType;
  });
  return is_tensor ? GivenType<at::Tensor>(L) : 0;
}

const ObjectType& TypeOf<at::Tensor>::Get() {
  static const ObjectType type = {
      .name = "tensor",
      .methods = {{"item", Function<Item>, "tensor:item(): its only element as a number"},
                  {"tolist", Function<ToList>, "tensor:tolist(): its elements as nested lists"},
                  {"to", Bound<To>,
                   "tensor:to(\"float32\" | \"cuda\" | other): converted, or elsewhere"},
                  {"backward", Function<Backward>,
                   "tensor:backward([gradient]): gradients of what it was computed from"},
                  {"size", Function<Size, "a dim">,
                   "tensor:size([dim]): sizes of its dims, or of one"},
                  {"dim", Function<Dims>, "tensor:dim(): how many dims it has"},
                  {"numel", Function<NumElements>, "tensor:numel(): how many elements it has"},
                  {"cpu", Function<ToHost>, "tensor:cpu(): on the host"},
                  {"float", Function<Cast<at::kFloat>>, "tensor:float(): as float32"},
                  {"double", Function<Cast<at::kDouble>>, "tensor:double(): as float64"},
                  {"half", Function<Cast<at::kHalf>>, "tensor:half(): as float16"},
                  {"bfloat16", Function<Cast<at::kBFloat16>>, "tensor:bfloat16(): as bfloat16"},
                  {"int", Function<Cast<at::kInt>>, "tensor:int(): as int32"},
                  {"long", Function<Cast<at::kLong>>, "tensor:long(): as int64"},
                  {"bool", Function<Cast<at::kBool>>, "tensor:bool(): whether elements are not 0"}},
      .properties = {{"shape", Function<Shape>,
                      "tensor.shape: sizes of its dims; tensor.shape[1] is that of dim 0"},
                     {"ndim", Function<Dims>, "tensor.ndim: how many dims it has"},
                     {"T", Bound<Transposed>, "tensor.T: its dims in the other order"},
                     {"mT", Bound<TransposedMatrices>, "tensor.mT: its last two dims exchanged"},
                     {"dtype", Function<TypeName>, "tensor.dtype: \"float32\""},
                     {"device", Function<Device>, "tensor.device: \"cpu\""},
                     {"grad", Function<Gradient>, "tensor.grad: what backward left, or nil"},
                     {"requires_grad", Function<RequiresGrad>,
                      "tensor.requires_grad: true or false"}},
      .metamethods = {{"__add", Bound<Arithmetic<"add">>},
                      {"__sub", Bound<Arithmetic<"sub">>},
                      {"__mul", Bound<Arithmetic<"mul">>},
                      {"__div", Bound<Arithmetic<"div">>},
                      {"__pow", Bound<Arithmetic<"pow">>},
                      {"__mod", Bound<Arithmetic<"remainder">>},
                      {"__unm", Bound<Negate>},
                      {"__eq", Function<Equal>},
                      {"__len", Function<Length>},
                      {"__newindex", Function<Assign>},
                      {"__tostring", Function<PrintTensor>}},
      .lookup = Bound<Lookup>,
      .list_names = Bound<ListOperators>,
      .help =
          "a tensor: every operator of LibTorch is a method, help(F.softmax) shows what it takes\n"
          "  x + y, -x, x == y (all equal), #x: arithmetic\n"
          "  x[i], x[{0, {2, 5}}] (x[0, 2:5] in Python), x[mask], x[{...}] = v: elements, from 0",
      .lists_methods = true,
  };
  return type;
}

bool PushOperatorFunction(lua_State* L, std::string_view name, bool method) {
  // Functions are made once per name. Methods and functions differ only for torch.nn.functional's
  // names.
  luaL_newmetatable(L, kFunctions);  // a table in the registry
  const std::string key = Str(method ? ":" : ".", name);
  lua_getfield(L, -1, key.c_str());
  const bool is_made = !lua_isnil(L, -1);
  if (!is_made) lua_pop(L, 1);
  if (is_made || MakeOperatorFunction(L, name, method)) {
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, key.c_str());
    lua_remove(L, -2);
    return true;
  }
  lua_pop(L, 1);
  return false;
}

void CollectIfDue(lua_State* L, int64_t more) {
  lua_getfield(L, LUA_REGISTRYINDEX, kHandedOut);
  auto bytes = static_cast<int64_t>(lua_tonumber(L, -1));
  lua_pop(L, 1);
  if (bytes + more > CollectAfter(L)) {
    lua_gc(L, LUA_GCCOLLECT, 0);
    bytes = 0;
  }
  lua_pushnumber(L, static_cast<double>(bytes + more));
  lua_setfield(L, LUA_REGISTRYINDEX, kHandedOut);
}

void PushTensor(lua_State* L, at::Tensor tensor) {
  CollectIfDue(L, tensor.numel() * tensor.itemsize());
  PushObject(L, std::make_shared<at::Tensor>(std::move(tensor)));
}

template <>
void Push(lua_State* L, const at::Tensor& tensor) {
  PushTensor(L, tensor);
}

void PushTensors(lua_State* L, const std::vector<at::Tensor>& tensors) {
  tensors.size() == 1 ? PushTensor(L, tensors[0]) : Push(L, tensors);
}

const at::Tensor* TensorAt(lua_State* L, int index) {
  if (!IsObject(L, index, TypeOf<at::Tensor>::Get())) return nullptr;
  return static_cast<std::shared_ptr<at::Tensor>*>(lua_touserdata(L, index))->get();
}

const at::Tensor& TensorArgument(lua_State* L, int index, std::string_view what) {
  const at::Tensor* tensor = TensorAt(L, index);
  if (tensor == nullptr) ThrowNoTensor(L, index, what);
  return *tensor;
}

void ThrowNoTensor(lua_State* L, int index, std::string_view what) {
  throw ConfigError(Str("expected ", what, ", got ", Describe(L, index), BooleanHint(L, index)));
}

std::string BooleanHint(lua_State* L, int index) {
  if (!lua_isboolean(L, index)) return "";
  return " (x == y and x ~= y are one boolean; x:eq(y) and x:ne(y) compare the elements)";
}

void WatchTensors(lua_State* L) { WatchData(L, "strata.list_of_tensors", Bound<ReadOfTensors>); }

std::vector<at::Tensor> TensorsArgument(lua_State* L, int index, std::string_view what) {
  if (const at::Tensor* tensor = TensorAt(L, index)) return {*tensor};
  if (!IsPlainTable(L, index)) ThrowNoTensor(L, index, what);
  std::vector<at::Tensor> tensors;
  for (size_t i = 1; i <= lua_objlen(L, index); ++i) {
    lua_rawgeti(L, index, static_cast<int>(i));
    const at::Tensor* tensor = TensorAt(L, lua_gettop(L));
    if (tensor == nullptr) {
      throw ConfigError(Str("expected ", what, ", got a list whose entry ", i, " is ",
                            Describe(L, -1), BooleanHint(L, -1)));
    }
    tensors.push_back(*tensor);
    lua_pop(L, 1);
  }
  if (tensors.empty()) ThrowExpected(L, index, what);
  return tensors;
}

std::string DescribeTensor(const at::Tensor& tensor) {
  return Str(TypeName(tensor), " ", FormatShape(tensor.sizes()));
}

std::string ErrorText(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return ForeignText(c10_error ? c10_error->what_without_backtrace() : error.what());
}

}  // namespace strata::lua
