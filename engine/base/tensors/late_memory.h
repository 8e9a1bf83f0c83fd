// LateMemory: a tensor whose memory comes when it is first needed and may be dropped in between,
// while all its views stay valid.
//
// Gradients that are shared over replicas (zero = 2) are such tensors: layers and optimizers hold
// views of them from the start, but they are in memory for a part of a step only. A dropped tensor
// keeps its storage object and loses only the storage's data. Its address is then null.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace strata {

class LateMemory {
 public:
  /// A flat tensor without memory. `fill` is called by NeedMemory() when the tensor got memory,
  /// which has any content.
  LateMemory(int64_t elements, at::TensorOptions options, std::function<void()> fill = nullptr);
  /// The views must not be used any more.
  ~LateMemory();
  LateMemory(const LateMemory&) = delete;
  LateMemory& operator=(const LateMemory&) = delete;

  const at::Tensor& tensor() const { return tensor_; }
  /// Gives the tensor memory if it has none. Does not fill it.
  void Allocate();
  /// Gives it memory and fills that, if it has none.
  void Need();
  /// Frees the memory. REQUIRES: nothing reads or writes it any more, on no stream.
  void Drop();

 private:
  at::Tensor tensor_;
  const std::function<void()> fill_;
};

/// If `tensor` is a view of a LateMemory, calls its Need(). Does nothing for other tensors.
void NeedMemory(const at::Tensor& tensor);
/// The same, but the memory that it gives is zero and not filled otherwise.
void NeedZeros(const at::Tensor& tensor);
/// False for a view of a LateMemory that has no memory now.
bool HasMemory(const at::Tensor& tensor);

}  // namespace strata
