// DocumentProbe: tests whether the layers of a stage treat a document of a packed row as they treat
// the document alone.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "engine/layers/documents.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// Runs each layer once more on one row that has several documents, and on the second of them
/// alone, in evaluation and without gradients, and compares the two. So no claim about a layer is
/// needed: the probe finds convolutions, recurrent layers and functions of the script that mix
/// documents, and positions that count from the beginning of the row. The dim of the tokens may be
/// any; it follows it from layer to layer. It cannot see a layer whose tensors have no such dim (as
/// after a flatten), or whose effect is within rounding. It costs about two forwards of a row,
/// once.
class DocumentProbe {
 public:
  /// `tolerance`: the largest accepted norm of the difference, as a share of the output's norm.
  explicit DocumentProbe(double tolerance) : tolerance_(tolerance) {}
  /// Throws ConfigError that names the layer. Does nothing for a layer that was seen already, or if
  /// no row has a second document. `input` is a copy that the layer may change. `seed`: of the
  /// random numbers that the layer may draw.
  void See(const StageLayer& layer, const Tensors& input, const Documents& documents,
           uint64_t seed);

 private:
  const double tolerance_;
  std::set<int> seen_;  // indices of layers
  /// The dim of the tokens of input i of a layer, {its index, i}, as the layer before it told; -1
  /// if that has none.
  std::map<std::pair<int, size_t>, int> token_dims_;
};

}  // namespace strata
