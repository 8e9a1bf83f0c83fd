#include "engine/base/tensors/copy_on_write.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_lazy_clone.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>

#include "engine/base/tensors/layout.h"

namespace strata {
namespace {

/// True if the tensor must be copied at once: a later write to a lazy clone would copy far more
/// memory than the tensor has, or the memory was given by somebody else with a deleter of its own.
bool CopiesNow(const at::Tensor& tensor) {
  const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  namespace cow = c10::impl::cow;
  if (!cow::is_cow_data_ptr(storage.data_ptr()) && !cow::has_simple_data_ptr(storage)) return true;
  const auto used = static_cast<size_t>(ElementsSpanned(tensor)) * tensor.element_size();
  return storage.nbytes() > 2 * used;
}

at::Tensor Clone(const at::Tensor& tensor) {
  // A lazy clone also changes the original's storage, which several threads may share.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const at::NoGradGuard no_grad;
  return CopiesNow(tensor) ? CloneAsItLies(tensor) : at::_lazy_clone(tensor);
}

}  // namespace

at::Tensor CopyOnWrite(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return tensor;
  at::Tensor clone = Clone(tensor);
  if (!tensor.requires_grad()) return clone;
  namespace autograd = torch::autograd::impl;
  autograd::set_gradient_edge(clone, autograd::gradient_edge(tensor));
  return clone;
}

std::vector<at::Tensor> CopyOnWrite(std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) tensor = CopyOnWrite(tensor);
  return tensors;
}

}  // namespace strata
