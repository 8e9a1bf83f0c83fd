// TensorPacket: tensors and a header as one row of bytes, as one rank sends them to another. The
// tensors arrive with the bits and the strides that they had, because bits of kernels depend on
// strides.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/value.h"
#include "engine/layers/layer.h"

namespace strata {

struct TensorPacket {
  Value header;
  Tensors tensors;
};

/// One dim, uint8: the text of the header, then the memory of the tensors.
at::Tensor ToBytes(const TensorPacket& packet);
/// The tensors are views of `bytes`. REQUIRES: ToBytes() made them.
TensorPacket FromBytes(const at::Tensor& bytes);

/// A copy with the same strides, in memory of its own.
at::Tensor ExactCopy(const at::Tensor& tensor);
Tensors ExactCopies(const Tensors& tensors);

/// The digest of dtype, shape and elements; equal bits give equal digests whatever the strides.
std::string BitsOf(const at::Tensor& tensor);

/// Digests by what they are of, in the order in which they were made: "the output".
using Digests = std::vector<std::pair<std::string, std::string>>;
/// What the first different digest is of; "" if all are equal.
std::string FirstDifference(const Digests& one, const Digests& other);
/// One digest of all.
std::string BitsOf(const Digests& digests);
Value ToValue(const Digests& digests);
Digests DigestsOf(const Value& value);

}  // namespace strata
