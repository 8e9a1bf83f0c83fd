// Pieces: describes a tensor that is made from ranges of other tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"

namespace strata {

class Checkpoint;

/// A tensor made from pieces that are side by side along `dim`. Each piece is a range along `dim`
/// of a source, which is transposed first if `transpose` is set.
struct MappedTensor {
  struct Piece {
    const SavedTensor* source = nullptr;
    int64_t begin = 0;
    int64_t size = 0;
  };
  std::string name;
  /// Its dtype may differ from the sources', which are then converted.
  TensorSpec spec;
  std::vector<Piece> pieces;
  int dim = 0;
  bool transpose = false;
  const Checkpoint* from = nullptr;  ///< has the pieces; null: the source of the others does
  /// Changes the values of the whole tensor, row-major, before they are converted to the dtype of
  /// `spec`. Empty: they stay.
  std::function<void(double* values)> change = {};
};

/// Returns the `part`-th of `parts` equal ranges of the source along the tensor's dim; none if its
/// size is not divisible by `parts`.
std::optional<MappedTensor::Piece> PartOf(const SavedTensor& source, const MappedTensor& tensor,
                                          int part, int parts);

/// Sets `made` to the shape of the joined pieces and returns "", or returns the reason why they
/// cannot be joined.
std::string TroubleWithPieces(const MappedTensor& tensor, std::vector<int64_t>& made);

/// Transposes a matrix whose elements have `bytes` bytes each: (rows, columns) becomes (columns,
/// rows).
std::vector<char> Transposed(const std::vector<char>& matrix, int64_t rows, int64_t columns,
                             int64_t bytes);

}  // namespace strata
