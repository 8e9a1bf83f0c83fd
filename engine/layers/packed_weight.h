// PackedWeight: a frozen weight matrix in few bits (packing.h). The linear operator asks for the
// dense matrix for each product (linear.cc) and drops it behind it, so that at most one matrix of a
// rank is dense at a time. Each element is computed by itself, so its bits depend on its code and
// scale only: not on rows, threads, or the way in which the values came.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "engine/layers/layer.h"
#include "engine/layers/packing.h"

namespace strata {

class PackedWeight {
 public:
  /// A matrix (rows, columns) of zeros on the CPU.
  PackedWeight(Packing packing, int64_t rows, int64_t columns);

  /// Replaces all values. `values`: (rows, columns) of a floating-point type, on the CPU. They are
  /// packed as they are in float32, so the same numbers in a narrower type give the same codes.
  /// REQUIRES: this is not a part (Rows()).
  void Pack(const at::Tensor& values);
  /// The matrix in new memory, on the device of the codes: code times scale in float32, rounded to
  /// `type`.
  at::Tensor Dense(at::ScalarType type) const;
  /// The elements from `begin` on, row by row. REQUIRES: they are on the CPU.
  void Read(int64_t begin, std::span<float> to) const;
  /// The rows begin..begin+size-1, which share the memory.
  std::shared_ptr<PackedWeight> Rows(int64_t begin, int64_t size) const;
  void To(at::Device device);

  Packing packing() const { return packing_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  /// Of the whole matrix: nf4 has two codes a byte, that of the first element in the upper half.
  const at::Tensor& codes() const { return codes_; }
  const at::Tensor& scales() const { return scales_; }  ///< largest absolute values, float32

 private:
  Packing packing_;
  int64_t rows_, columns_;
  int64_t first_ = 0;  ///< the element of the whole matrix that this part begins with
  at::Tensor codes_, scales_;
};

/// A tensor of this shape without elements, on the meta device: the value of a parameter whose
/// elements are packed.
at::Tensor PackedValue(at::IntArrayRef sizes, at::ScalarType type);

/// Gives `to` the values of `from`, a parameter of an equal layer, packed or not.
void CopyValue(const Parameter& from, const Parameter& to);

/// Packs the parameters of `layer` that spec.packed names. REQUIRES: they are frozen matrices.
void PackWeights(const LayerSpec& spec, Layer& layer);

}  // namespace strata
