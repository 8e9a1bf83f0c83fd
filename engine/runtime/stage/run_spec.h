// RunSpec: what one run of a program is about; the same on all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/layers/layer.h"

namespace strata {

class Examiner;
class Feed;
class KeptTokens;
struct StageLayer;

/// The tensors between stages for micro-batches of one size: element s enters stage s, the last
/// one leaves the last stage.
using Boundaries = std::vector<TensorSpecs>;

/// Reads what the last stage gives, as metrics do.
class OutputReader {
 public:
  virtual ~OutputReader() = default;
  /// Of micro-batch m; the output is whole, and in float32.
  virtual void Read(int m, const Tensors& output, const Tensors& target) = 0;
};

/// Looks at what layers compute, as they compute it.
class LayerWatch {
 public:
  virtual ~LayerWatch() = default;
  /// `output` is what the layer gave for `input`, which is nobody else's.
  virtual void See(const StageLayer& layer, const Tensors& input, const Tensors& output,
                   const Pass& pass) = 0;
};

struct RunSpec {
  bool training = true;
  /// Where the first and the last stage get their tensors; null for stages without an executor.
  Feed* feed = nullptr;
  /// The global number of micro-batch 0 of this run: seeds the random layers.
  int64_t first_micro_batch = 0;
  std::vector<const Boundaries*> boundaries;  ///< of every micro-batch
  bool keep_outputs = false;                  ///< the last stage keeps its outputs
  bool count_hits = false;                    ///< the last stage counts right labels
  OutputReader* reader = nullptr;             ///< null: nobody reads outputs and targets
  bool has_targets = true;                    ///< else the last stage computes no loss
  /// The gradient of the loss: above 1 where gradients in half precision would become 0.
  double loss_scale = 1;
  /// What was kept of each micro-batch's earlier tokens, on this rank; empty: whole texts come in.
  std::vector<KeptTokens*> kept_tokens;
  LayerWatch* watch = nullptr;  ///< null: nobody looks
  /// Data are read one micro-batch ahead, so that an accelerator gets them while it computes.
  bool reads_ahead = false;
  /// Stages tell where a backward has come to.
  bool reports_passing = false;
  /// For a step that runs once more to be examined; statistics are then not counted again. Else
  /// null.
  Examiner* examiner = nullptr;

  int micro_batches() const { return static_cast<int>(boundaries.size()); }
};

}  // namespace strata
