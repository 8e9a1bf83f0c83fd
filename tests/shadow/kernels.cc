#include "tests/shadow/kernels.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <torch/library.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "tests/shadow/device.h"
#include "tests/shadow/machine.h"

namespace strata::shadow {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using Stack = torch::jit::Stack;

c10::Allocator* device_allocator = nullptr;

/// Their output's size, or a branch of theirs, depends on numbers: on CUDA the host waits for
/// these.
const std::set<std::string>& Synchronising() {
  static const std::set<std::string> names = {"aten::nonzero",           "aten::masked_select",
                                              "aten::_unique2",          "aten::_unique",
                                              "aten::unique_dim",        "aten::unique_consecutive",
                                              "aten::bincount",          "aten::equal",
                                              "aten::repeat_interleave", "aten::histc",
                                              "aten::embedding_renorm_"};
  return names;
}

bool IsShadow(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

std::string Describe(const at::Tensor& tensor) {
  return Str(c10::toString(tensor.scalar_type()), " ", FormatShape(tensor.sizes()));
}

/// The bytes from the tensor's first element to its last.
Use UseOf(const at::Tensor& tensor, bool writes) {
  if (!IsShadow(tensor) || tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto* memory = static_cast<const std::byte*>(tensor.storage().data());
  const auto size = static_cast<int64_t>(tensor.element_size());
  return {memory + tensor.storage_offset() * size, static_cast<size_t>((last + 1) * size), writes,
          Describe(tensor)};
}

/// A CPU tensor with the same memory.
at::Tensor AsCpu(const at::Tensor& tensor) {
  if (!IsShadow(tensor)) return tensor;
  void* memory = const_cast<void*>(tensor.storage().data());
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                       c10::DataPtr(memory, c10::Device(c10::kCPU)), c10::GetAllocator(c10::kCPU),
                       /*resizable=*/true);
  auto alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), DispatchKeySet(DispatchKey::CPU), tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                     tensor.storage_offset());
  if (tensor.is_conj()) alias._set_conj(true);
  return alias;
}

/// Memory of a CPU tensor as memory of the device.
c10::DataPtr Adopt(const at::Tensor& tensor, c10::Device device) {
  void* memory = const_cast<void*>(tensor.storage().data());
  if (memory == nullptr) return {nullptr, device};
  struct Owner {
    at::Tensor tensor;
    void* memory;
  };
  Machine::Get().Allocated(memory, tensor.storage().nbytes(), CurrentStream(device.index()));
  return {memory, new Owner{tensor, memory},
          [](void* context) {
            auto* owner = static_cast<Owner*>(context);
            Machine::Get().Freed(owner->memory, [owner] { delete owner; });
          },
          device};
}

at::Tensor WithStorage(c10::Storage storage, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), DispatchKeySet(DispatchKey::PrivateUse1), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                      like.storage_offset());
  return tensor;
}

at::Tensor ToShadow(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined()) return tensor;
  return WithStorage(c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                                  Adopt(tensor, device), device_allocator, true),
                     tensor);
}

/// One call of an operator on its way to the CPU's kernel and back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), schema_(op.schema()), stack_(*stack) {
    const size_t count = schema_.arguments().size();
    given_.assign(stack->end() - static_cast<int64_t>(count), stack->end());
    stack->erase(stack->end() - static_cast<int64_t>(count), stack->end());
    for (const c10::Argument& result : schema_.returns()) {
      is_view_ |= result.alias_info() && !result.alias_info()->isWrite();
    }
  }

  void Run() {
    Stack cpu;
    for (size_t i = 0; i < given_.size(); ++i) {
      const auto* alias = schema_.arguments()[i].alias_info();
      cpu.push_back(Convert(given_[i], alias && alias->isWrite()));
    }
    RequireOneDevice();
    const int index = device_ ? device_->index() : 0;
    if (device_ && !device_->has_index()) device_ = Device(index);
    if (!is_view_) Machine::Get().Launch(CurrentStream(index), name(), uses_);
    op_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &cpu);
    for (const auto& [tensor, alias] : written_) TakeOver(tensor, alias);
    for (size_t i = 0; i < cpu.size(); ++i) stack_.push_back(Result(cpu[i], schema_.returns()[i]));
    Machine::Get().AlsoUses(CurrentStream(index), name(), results_);
    if (Synchronising().count(schema_.name()) > 0) {
      Machine::Get().Synchronise(CurrentStream(index), name());
    }
  }

 private:
  std::string name() const { return schema_.name().substr(schema_.name().find("::") + 2); }

  at::Tensor Convert(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined()) return tensor;
    if (!IsShadow(tensor)) {
      if (tensor.dim() > 0) other_ = Str(Describe(tensor), " on ", tensor.device());
      return tensor;
    }
    if (device_ && device_->has_index() && *device_ != tensor.device()) {
      other_ = Str(Describe(tensor), " on ", tensor.device());
    }
    device_ = tensor.device();
    at::Tensor alias = AsCpu(tensor);
    if (!is_view_) uses_.push_back(UseOf(tensor, writes));
    if (writes) written_.push_back({tensor, alias});
    return alias;
  }

  IValue Convert(const IValue& value, bool writes) {
    if (value.isTensor()) return Convert(value.toTensor(), writes);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(Convert(tensor, writes));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional<at::Tensor>(Convert(*tensor, writes)) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == kType) {
      if (!device_) device_ = value.toDevice();
      return c10::Device(c10::kCPU);
    }
    if (value.isGenerator()) {
      const auto* own =
          dynamic_cast<ShadowGenerator*>(value.toGenerator().unsafeGetGeneratorImpl());
      if (own) return own->cpu;
    }
    return value;
  }

  /// As CUDA does, which takes a CPU tensor without dims for a number.
  void RequireOneDevice() const {
    TORCH_CHECK(!device_ || other_.empty(), name(), ": expected all tensors on ", *device_,
                ", got ", other_);
  }

  /// An output that the kernel gave another size, and perhaps other memory.
  void TakeOver(const at::Tensor& tensor, const at::Tensor& alias) {
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    if (alias.storage().data() != storage->data()) {
      storage->set_data_ptr_noswap(Adopt(alias, tensor.device()));
      storage->set_nbytes(alias.storage().nbytes());
      results_.push_back(UseOf(tensor, true));
    }
    if (alias.sizes() != tensor.sizes() || alias.strides() != tensor.strides()) {
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(),
                                                          alias.storage_offset());
    }
  }

  at::Tensor Result(const at::Tensor& tensor, const c10::Argument& declared) {
    if (!tensor.defined()) return tensor;
    if (declared.alias_info()) {
      for (const IValue& argument : given_) {
        if (!argument.isTensor() || !IsShadow(argument.toTensor())) continue;
        const at::Tensor& source = argument.toTensor();
        if (source.storage().data() != tensor.storage().data()) continue;
        if (declared.alias_info()->isWrite()) return source;
        return WithStorage(c10::Storage(source.storage()), tensor);
      }
    }
    const at::Tensor result = ToShadow(tensor, device_.value());
    results_.push_back(UseOf(result, true));
    return result;
  }

  IValue Result(const IValue& value, const c10::Argument& declared) {
    if (!device_) return value;
    if (value.isTensor()) return Result(value.toTensor(), declared);
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector())
      list.push_back(Result(tensor, declared));
    return list;
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  std::vector<IValue> given_;
  bool is_view_ = false;
  std::optional<c10::Device> device_;
  std::string other_;  // an argument elsewhere
  std::vector<Use> uses_, results_;
  std::vector<std::pair<at::Tensor, at::Tensor>> written_;  // with what the kernel wrote to
};

void RunOnCpu(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack) {
  Call(op, stack).Run();
}

// What has no kernel of the CPU's, or is more than a kernel

c10::Device DeviceOf(std::optional<c10::Device> device) {
  if (device && device->has_index()) return *device;
  return c10::impl::getDeviceGuardImpl(kType)->getDevice();
}

at::Tensor Empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(DeviceOf(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), device_allocator,
                                   DispatchKeySet(DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(c10::SymIntArrayRef size, c10::SymIntArrayRef strides,
                        std::optional<at::ScalarType> type, std::optional<at::Layout>,
                        std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(DeviceOf(device));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(strides), device_allocator,
      DispatchKeySet(DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

/// To another stream and back, as a copy between devices is ordered on CUDA.
void After(int stream, int other) { Machine::Get().Wait(stream, Machine::Get().Record(other)); }

void CopyBetweenDevices(const at::Tensor& from, const at::Tensor& to) {
  const int source = CurrentStream(from.device().index()),
            target = CurrentStream(to.device().index());
  if (source != target) After(source, target);
  Machine::Get().Launch(source, "copy", {UseOf(from, false), UseOf(to, true)});
  AsCpu(to).copy_(AsCpu(from));
  if (source != target) After(target, source);
}

void CopyFromHost(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const int stream = CurrentStream(to.device().index());
  Machine::Get().Launch(stream, "copy", {UseOf(to, true)});
  Machine::Get().CountTransfer();
  AsCpu(to).copy_(from);
  if (!non_blocking || !from.is_pinned()) {
    Machine::Get().Synchronise(stream, "copy from the host");
  }
}

void CopyToHost(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const int stream = CurrentStream(from.device().index());
  Machine::Get().Launch(stream, "copy", {UseOf(from, false)});
  Machine::Get().CountTransfer();
  if (non_blocking && to.is_pinned()) {
    Machine::Get().CopyLater(stream, [to, now = AsCpu(from).clone()] { to.copy_(now); });
  } else {
    to.copy_(AsCpu(from));
    Machine::Get().Synchronise(stream, "copy to the host");
  }
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  if (!IsShadow(from)) {
    CopyFromHost(from, to, non_blocking);
  } else if (!IsShadow(to)) {
    CopyToHost(from, to, non_blocking);
  } else {
    CopyBetweenDevices(from, to);
  }
  return to;
}

at::Tensor CopyAndResize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

at::Scalar ReadNumber(const at::Tensor& tensor) {
  const int stream = CurrentStream(tensor.device().index());
  Machine::Get().Launch(stream, "item", {UseOf(tensor, false)});
  Machine::Get().Synchronise(stream, "item");
  Machine::Get().CountTransfer();
  return AsCpu(tensor).item();
}

/// One kernel with a function of the CPU in it.
template <class Compute>
auto Kernel(const char* name, const std::vector<at::Tensor>& inputs, const Compute& compute) {
  const c10::Device device = inputs[0].device();
  std::vector<Use> uses;
  std::vector<at::Tensor> cpu;
  for (const at::Tensor& input : inputs) {
    TORCH_CHECK(!input.defined() || input.device() == device, name, ": expected all tensors on ",
                device, ", got one on ", input.device());
    uses.push_back(UseOf(input, false));
    cpu.push_back(AsCpu(input));
  }
  Machine::Get().Launch(CurrentStream(device.index()), name, uses);
  std::vector<at::Tensor> results = compute(cpu);
  uses.clear();
  for (at::Tensor& result : results) {
    result = ToShadow(result, device);
    uses.push_back(UseOf(result, true));
  }
  Machine::Get().AlsoUses(CurrentStream(device.index()), name, uses);
  return results;
}

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                       bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  return Kernel("convolution", {x, weight, bias.value_or(at::Tensor())}, [&](const auto& cpu) {
    return std::vector<at::Tensor>{
        at::convolution(cpu[0], cpu[1], cpu[2].defined() ? MaybeTensor(cpu[2]) : std::nullopt,
                        stride, padding, dilation, transposed, output_padding, groups)};
  })[0];
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  const auto results = Kernel("convolution_backward", {dy, x, weight}, [&](const auto& cpu) {
    const auto [dx, dweight, dbias] = at::convolution_backward(
        cpu[0], cpu[1], cpu[2], at::OptionalIntArrayRef({channels}), stride, padding, dilation,
        transposed, output_padding, groups, mask);
    return std::vector<at::Tensor>{dx, dweight, dbias};
  });
  return {results[0], results[1], results[2]};
}

at::Tensor& SetStorage(at::Tensor& self, c10::Storage storage, c10::SymInt offset,
                       c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  const auto size = C10_AS_INTARRAYREF_SLOW(sizes);
  if (strides.empty()) {
    self.unsafeGetTensorImpl()->set_storage_offset(offset.expect_int());
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  } else {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(size, C10_AS_INTARRAYREF_SLOW(strides),
                                                      offset.expect_int());
  }
  return self;
}

at::Tensor& SetTensor(at::Tensor& self, const at::Tensor& source) {
  return SetStorage(self, source.storage(), source.storage_offset(), source.sym_sizes(),
                    source.sym_strides());
}

/// CUDA's, with the numbers that at::dropout draws on the CPU.
std::tuple<at::Tensor, at::Tensor> FusedDropout(const at::Tensor& x, double kept,
                                                std::optional<at::Generator> generator) {
  const auto* own =
      generator ? dynamic_cast<ShadowGenerator*>(generator->unsafeGetGeneratorImpl()) : nullptr;
  TORCH_CHECK(own, "_fused_dropout without the scope's generator");
  const auto results = Kernel("_fused_dropout", {x}, [&](const auto& cpu) {
    const at::Tensor drawn = at::empty_like(cpu[0]).bernoulli_(kept, own->cpu);
    return std::vector<at::Tensor>{cpu[0] * drawn.div(kept), drawn.to(at::kByte)};
  });
  return {results[0], results[1]};
}

at::Tensor MaskedScale(const at::Tensor& x, const at::Tensor& mask, double scale) {
  return Kernel("_masked_scale", {x, mask}, [&](const auto& cpu) {
    return std::vector<at::Tensor>{cpu[0] * cpu[1].to(cpu[0].scalar_type()).div(1 / scale)};
  })[0];
}

void RecordStream(at::Tensor& self, c10::Stream stream) {
  Machine::Get().RecordStream(self.storage().data(), Machine::Get().NumberOf(stream));
}

/// Attention without dropout takes the CPU's fused kernel too. The table of these choices is not an
/// operator's.
void RegisterAttention() {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(
      &at::native::_fused_sdp_choice_cpp);
}

/// What has a function of its own here although the CPU has a kernel.
const std::set<std::string>& Own() {
  static const std::set<std::string> names = {"aten::empty.memory_format",
                                              "aten::empty_strided",
                                              "aten::_copy_from",
                                              "aten::_copy_from_and_resize",
                                              "aten::_local_scalar_dense",
                                              "aten::set_.source_Storage_storage_offset",
                                              "aten::set_.source_Tensor",
                                              "aten::convolution_overrideable",
                                              "aten::convolution_backward_overrideable"};
  return names;
}

}  // namespace

void RegisterKernels(c10::Allocator& allocator) {
  device_allocator = &allocator;
  RegisterAttention();
  using torch::Library;
  static auto* library =
      new Library(Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->impl("empty.memory_format", Empty);
  library->impl("empty_strided", EmptyStrided);
  library->impl("_copy_from", CopyFrom);
  library->impl("_copy_from_and_resize", CopyAndResize);
  library->impl("_local_scalar_dense", ReadNumber);
  library->impl("set_.source_Storage_storage_offset", SetStorage);
  library->impl("set_.source_Tensor", SetTensor);
  library->impl("convolution_overrideable", Convolution);
  library->impl("convolution_backward_overrideable", ConvolutionBackward);
  library->impl("_fused_dropout", FusedDropout);
  library->impl("_masked_scale", MaskedScale);
  library->impl("record_stream", RecordStream);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (!op || Own().count(full) > 0 || !op->hasKernelForDispatchKey(DispatchKey::CPU)) continue;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&RunOnCpu>());
  }
}

}  // namespace strata::shadow
