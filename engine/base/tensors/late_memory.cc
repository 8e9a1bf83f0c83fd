// A storage without data has a DataPtr of the address null whose context is the LateMemory and
// whose deleter is Absent(). So a view finds its owner, and nothing has to list the storages. The
// storage keeps its size, because views of it are made while it has no data.
#include "engine/base/tensors/late_memory.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace strata {
namespace {

void Absent(void*) {}

LateMemory* OwnerOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return tensor.storage().data_ptr().cast_context<LateMemory>(&Absent);
}

c10::StorageImpl& StorageOf(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

LateMemory::LateMemory(int64_t elements, at::TensorOptions options, std::function<void()> fill)
    : tensor_(at::empty({0}, options)), fill_(std::move(fill)) {
  StorageOf(tensor_).set_nbytes(static_cast<size_t>(elements) * tensor_.element_size());
  tensor_.unsafeGetTensorImpl()->set_sizes_contiguous({elements});
  Drop();
}

LateMemory::~LateMemory() {
  if (OwnerOf(tensor_)) {
    StorageOf(tensor_).set_data_ptr_noswap({nullptr, tensor_.device()});
  }
}

void LateMemory::Allocate() {
  if (!OwnerOf(tensor_)) return;
  c10::StorageImpl& storage = StorageOf(tensor_);
  storage.set_data_ptr_noswap(storage.allocator()->allocate(storage.nbytes()));
}

void LateMemory::Need() {
  if (!OwnerOf(tensor_)) return;
  Allocate();
  if (fill_) fill_();
}

void LateMemory::Drop() {
  StorageOf(tensor_).set_data_ptr_noswap({nullptr, this, &Absent, tensor_.device()});
}

void NeedMemory(const at::Tensor& tensor) {
  if (LateMemory* owner = OwnerOf(tensor)) owner->Need();
}

void NeedZeros(const at::Tensor& tensor) {
  LateMemory* const owner = OwnerOf(tensor);
  if (!owner) return;
  owner->Allocate();
  owner->tensor().zero_();
}

bool HasMemory(const at::Tensor& tensor) { return !OwnerOf(tensor); }

}  // namespace strata
