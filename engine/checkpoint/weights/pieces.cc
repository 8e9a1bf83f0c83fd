// Shapes are compared in the layout of the pieces: transposed if the rule says so.
#include "engine/checkpoint/weights/pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/text.h"

namespace strata {
namespace {

using Shape = std::vector<int64_t>;

/// The shape in the layout of the pieces; none if it must be transposed and does not have two dims.
std::optional<Shape> Turned(Shape shape, bool transpose) {
  if (!transpose) return shape;
  if (shape.size() != 2) return std::nullopt;
  std::swap(shape[0], shape[1]);
  return shape;
}

}  // namespace

std::vector<char> Transposed(const std::vector<char>& matrix, int64_t rows, int64_t columns,
                             int64_t bytes) {
  std::vector<char> result(matrix.size());
  // Small enough for rows of both matrices to stay in the cache.
  constexpr int64_t kBlock = 32;
  for (int64_t row0 = 0; row0 < rows; row0 += kBlock) {
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t row = row0; row < std::min(rows, row0 + kBlock); ++row) {
        std::memcpy(result.data() + (column * rows + row) * bytes,
                    matrix.data() + (row * columns + column) * bytes, static_cast<size_t>(bytes));
      }
    }
  }
  return result;
}

std::string TroubleWithPieces(const MappedTensor& tensor, Shape& made) {
  made.clear();
  const size_t dim = static_cast<size_t>(tensor.dim);
  for (const MappedTensor::Piece& piece : tensor.pieces) {
    const auto shape = Turned(piece.source->spec.shape, tensor.transpose);
    if (!shape) return "only a tensor of two dims is transposed";
    if (dim >= shape->size() && tensor.pieces.size() > 1) return Str("there is no dim ", dim);
    Shape part = *shape;
    if (dim < part.size()) part[dim] = piece.size;
    if (piece.source->spec.dtype != tensor.pieces[0].source->spec.dtype) return "several dtypes";
    if (made.empty() && &piece == tensor.pieces.data()) {
      made = part;
      continue;
    }
    Shape rest = made;
    rest[dim] = part[dim];
    if (rest != part) return Str("shapes that do not join: ", FormatShape(part));
    made[dim] += part[dim];
  }
  return "";
}

/// Returns the `part`-th of `parts` equal ranges of the source along the rule's dim; none if the
/// size is not divisible.
std::optional<MappedTensor::Piece> PartOf(const SavedTensor& source, const MappedTensor& tensor,
                                          int part, int parts) {
  const auto shape = Turned(source.spec.shape, tensor.transpose);
  const auto dim = static_cast<size_t>(tensor.dim);
  if (!shape) return MappedTensor::Piece{&source, 0, 0};  // TroubleWithPieces() reports the error
  if (dim >= shape->size()) {
    return parts == 1 ? std::optional(MappedTensor::Piece{&source, 0, 1}) : std::nullopt;
  }
  const int64_t size = (*shape)[dim] / parts;
  if (size * parts != (*shape)[dim]) return std::nullopt;
  return MappedTensor::Piece{&source, part * size, size};
}

}  // namespace strata
