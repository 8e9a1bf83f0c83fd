// A fallback kernel for all operators at DispatchKey::Fake, a key that LibTorch leaves to others.
// It is reached below autograd, so graphs are recorded as usual, and above the kernels of the CPU.
// The fallback sorts operators by their schema:
//
// - Views, factories (no tensor among the arguments) and operators composed of others run as usual.
//   What they are composed of comes here again.
// - An operator with a kernel of its own for the CPU runs on copies of its arguments on the meta
//   device, which have shapes and strides only. Each new result is then allocated on the CPU.
//   Results that are arguments (in-place operators, out=) are returned as they are.
// - An in-place operator without a kernel for the meta device returns its argument, unchecked.
// - An operator that gives numbers to the host (item()), or has no kernel for the meta device and
// is
//   not in place, needs values: the fallback notes its name as the obstacle, and throws.
#include "engine/base/tensors/dry_run.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/tensors/kernel_scratch.h"

namespace strata {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

/// How many DryRuns of each kind live on this thread, and whether one is paused.
struct OfThread {
  int everything = 0, products = 0;
  bool paused = false;
  std::string obstacle;
};
thread_local OfThread of_thread;

/// Operators without a kernel of their own for the CPU that compute nevertheless.
constexpr std::array<std::string_view, 3> kComputing = {"aten::copy_", "aten::convolution",
                                                        "aten::convolution_backward"};
/// Operators with a kernel of their own for the CPU that change a tensor's memory or shape and
/// compute nothing.
constexpr std::array<std::string_view, 4> kChangingShapes = {
    "aten::resize_", "aten::set_", "aten::_resize_output_", "aten::as_strided_"};
constexpr std::array<std::string_view, 4> kProducts = {"aten::mm", "aten::addmm", "aten::bmm",
                                                       "aten::baddbmm"};

template <size_t n>
bool Contains(const std::array<std::string_view, n>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

using ScratchTable = std::unordered_map<std::string, KernelScratch>;
ScratchTable& Scratches() {
  static auto* const table = new ScratchTable;
  return *table;
}

/// What the fallback does with an operator.
struct Treatment {
  enum class Kind { kRun, kShapes, kInPlace, kNeedsValues };
  Kind kind = Kind::kRun;
  bool is_product = false;
  std::vector<int> written;      ///< arguments that it writes to
  std::vector<int> result_from;  ///< for each result the argument that it is, or -1
  KernelScratch scratch = nullptr;
};

bool IsView(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

/// The argument that result `result` is: the one with the same name of an alias set, (a!).
int ArgumentOf(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (!result.alias_info()) return -1;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (alias && alias->beforeSets() == result.alias_info()->beforeSets())
      return static_cast<int>(i);
  }
  return -1;
}

bool GivesTensorsOnly(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const c10::TypeKind kind = result.type()->kind();
    const bool is_list = kind == c10::TypeKind::ListType;
    if (kind != c10::TypeKind::TensorType && !is_list) return false;
  }
  return true;
}

Treatment TreatmentOf(const c10::OperatorHandle& op) {
  using Kind = Treatment::Kind;
  const c10::FunctionSchema& schema = op.schema();
  Treatment treatment;
  bool writes_out = false;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (!argument.alias_info() || !argument.alias_info()->isWrite()) continue;
    treatment.written.push_back(static_cast<int>(i));
    writes_out |= argument.kwarg_only();
  }
  for (const c10::Argument& result : schema.returns()) {
    treatment.result_from.push_back(ArgumentOf(schema, result));
  }
  const std::string& name = schema.name();
  const auto scratch = Scratches().find(name);
  if (scratch != Scratches().end()) treatment.scratch = scratch->second;
  treatment.is_product = Contains(kProducts, name) && schema.overload_name().empty();
  const bool computes =
      op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || Contains(kComputing, name);
  if (IsView(schema) || !computes || Contains(kChangingShapes, name)) {
    treatment.kind = Kind::kRun;
  } else if (!GivesTensorsOnly(schema)) {
    treatment.kind = Kind::kNeedsValues;
  } else if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
             op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
    treatment.kind = Kind::kShapes;
  } else if (!treatment.written.empty() && !writes_out) {
    treatment.kind = Kind::kInPlace;
  } else {
    treatment.kind = Kind::kNeedsValues;
  }
  return treatment;
}

const Treatment& FindTreatment(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, Treatment> known;
  const auto [place, is_new] = known.try_emplace(&op.schema());
  if (is_new) place->second = TreatmentOf(op);
  return place->second;
}

bool IsOnCpu(const at::Tensor& tensor) {
  return !tensor.defined() || (tensor.is_cpu() && tensor.layout() == at::kStrided);
}

/// True for tensors that LibTorch makes of numbers, as of the 2 in x:pow(2). They have their value
/// also in a dry run.
bool AreNumbers(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    if (!argument.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) return false;
  }
  return true;
}

/// Calls f(tensor) for every tensor among the values, also in lists, and stores what it returns.
template <class F>
void ReplaceTensors(c10::ArrayRef<c10::IValue> values, torch::jit::Stack& to, const F& f) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      to.emplace_back(f(value.toTensor()));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(f(tensor));
      to.emplace_back(std::move(list));
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional(f(*tensor)) : std::nullopt);
      }
      to.emplace_back(std::move(list));
    } else {
      to.push_back(value);
    }
  }
}

at::Tensor MetaOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor meta =
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  // A number that became a tensor does not decide the type of the result.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return meta;
}

/// The tensor on the CPU in the shape, strides and type of a result on the meta device.
at::Tensor Allocated(const at::Tensor& meta) {
  if (!meta.defined()) return meta;
  return at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(at::kCPU));
}

at::Tensor ZerosLike(const at::Tensor& meta) {
  return at::zeros(meta.sizes(), meta.options().device(at::kCPU));
}

/// Gives the tensor memory of its own as a write would, if it is a lazy copy.
void Own(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage() && tensor.numel() > 0) tensor.mutable_data_ptr();
}

void OwnWritten(const Treatment& treatment, c10::ArrayRef<c10::IValue> arguments) {
  for (const int i : treatment.written) {
    if (arguments[i].isTensor()) Own(arguments[i].toTensor());
  }
}

[[noreturn]] void NeedsValues(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  if (of_thread.obstacle.empty()) of_thread.obstacle = name;
  TORCH_CHECK(false, name, " needs the values of its arguments");
}

/// Runs the operator on the meta device and puts its results in place of the arguments.
void RunOnMeta(const c10::OperatorHandle& op, const Treatment& treatment,
               torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count).vec();
  torch::jit::Stack results;
  ReplaceTensors(arguments, results, MetaOf);
  {
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    op.callBoxed(&results);
  }
  OwnWritten(treatment, arguments);
  at::Tensor scratch;  // until the results are there
  if (treatment.scratch) scratch = at::empty({treatment.scratch(arguments, results)}, at::kByte);
  torch::jit::drop(*stack, count);
  const bool zeros = !DryRun::IsOn();
  for (size_t i = 0; i < results.size(); ++i) {
    const int from = treatment.result_from[i];
    if (from < 0) {
      ReplaceTensors(c10::ArrayRef<c10::IValue>(results[i]), *stack, zeros ? ZerosLike : Allocated);
      continue;
    }
    const at::Tensor out = arguments[from].toTensor();
    const at::Tensor shaped = results[i].toTensor();
    if (out.sizes() != shaped.sizes()) {
      out.resize_(shaped.sizes());
      out.as_strided_(shaped.sizes(), shaped.strides());
    }
    stack->push_back(out);
  }
}

/// The boxed kernel of all operators.
void Intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Treatment& treatment = FindTreatment(op);
  const size_t count = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  bool has_tensors = false, on_cpu = true;
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      has_tensors |= argument.toTensor().defined();
      on_cpu &= IsOnCpu(argument.toTensor());
    } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
      has_tensors = true;
    }
  }
  const bool skips = DryRun::IsOn() || (DryRun::SkipsProducts() && treatment.is_product);
  const bool runs = !skips || !has_tensors || !on_cpu || treatment.kind == Treatment::Kind::kRun;
  if (runs || (treatment.kind == Treatment::Kind::kNeedsValues && AreNumbers(arguments))) {
    return op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey),
                              stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  if (treatment.kind == Treatment::Kind::kNeedsValues) NeedsValues(op);
  if (treatment.kind == Treatment::Kind::kShapes) return RunOnMeta(op, treatment, stack);
  OwnWritten(treatment, arguments);
  torch::jit::Stack results;
  for (const int from : treatment.result_from) results.push_back(arguments[from]);
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
}

void RegisterOnce() {
  static const torch::Library* const library = [] {
    RegisterMetaKernels();
    auto* fallback = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&Intercept>());
    return fallback;
  }();
  static_cast<void>(library);
}

}  // namespace

DryRun::DryRun(Skips skips)
    : count_(skips == Skips::kEverything ? of_thread.everything : of_thread.products) {
  RegisterOnce();
  if (of_thread.everything + of_thread.products == 0) of_thread.obstacle.clear();
  ++count_;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

DryRun::~DryRun() {
  --count_;
  if (of_thread.everything + of_thread.products == 0) {
    c10::impl::tls_set_dispatch_key_included(kKey, false);
  }
}

void SetKernelScratch(const std::string& op, KernelScratch scratch) { Scratches()[op] = scratch; }

const std::string& DryRun::obstacle() { return of_thread.obstacle; }
bool DryRun::IsOn() { return of_thread.everything > 0 && !of_thread.paused; }
bool DryRun::SkipsProducts() {
  return of_thread.everything + of_thread.products > 0 && !of_thread.paused;
}

DryRun::Paused::Paused() : before_(std::exchange(of_thread.paused, true)) {}
DryRun::Paused::~Paused() { of_thread.paused = before_; }

}  // namespace strata
