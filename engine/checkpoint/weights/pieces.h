// Pieces: a tensor made of ranges of others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"

namespace strata {

/// A tensor made of others: pieces, each a range of a transposed or plain source along `dim`, side
/// by side along `dim`.
struct MappedTensor {
  struct Piece {
    const SavedTensor* source = nullptr;
    int64_t begin = 0;
    int64_t size = 0;
  };
  std::string name;
  TensorSpec spec;  ///< its dtype may be another than the sources', which then are converted
  std::vector<Piece> pieces;
  int dim = 0;
  bool transpose = false;
};

/// The `part`-th of `parts` equal ranges of the source along the tensor's dim; none where it cannot
/// be cut so.
std::optional<MappedTensor::Piece> PartOf(const SavedTensor& source, const MappedTensor& tensor,
                                          int part, int parts);

/// The shape that the pieces make up; or why they make none, "" where they do.
std::string TroubleWithPieces(const MappedTensor& tensor, std::vector<int64_t>& made);

/// Elements of `bytes` bytes each: (rows, columns) becomes (columns, rows).
std::vector<char> Transposed(const std::vector<char>& matrix, int64_t rows, int64_t columns,
                             int64_t bytes);

}  // namespace strata
