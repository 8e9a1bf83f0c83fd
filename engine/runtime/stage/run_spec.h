// RunSpec: the parameters of one run of a program; the same on all ranks of a replica.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/layers/layer.h"

namespace strata {

class Examiner;
class Feed;
class StepRecord;
class KeptTokens;
struct StageLayer;

/// The specs of the tensors between stages for micro-batches of one size. Element s enters stage s;
/// the last element leaves the last stage.
using Boundaries = std::vector<TensorSpecs>;

/// Reads the outputs of the last stage, as metrics do.
class OutputReader {
 public:
  virtual ~OutputReader() = default;
  /// Called for micro-batch m. The output is whole (not divided over the model axis) and in
  /// float32.
  virtual void Read(int m, const Tensors& output, const Tensors& target) = 0;
};

/// Observes the inputs and outputs of layers while they compute.
class LayerWatch {
 public:
  virtual ~LayerWatch() = default;
  /// `output` is what the layer returned for `input`; `input` is a copy that the watch may change.
  virtual void See(const StageLayer& layer, const Tensors& input, const Tensors& output,
                   const Pass& pass) = 0;
};

struct RunSpec {
  bool training = true;
  /// The source of inputs and targets for the first and the last stage; null if stages run without
  /// an executor.
  Feed* feed = nullptr;
  /// The global number of micro-batch 0 of this run. It seeds the random layers.
  int64_t first_micro_batch = 0;
  std::vector<const Boundaries*> boundaries;  ///< of every micro-batch
  bool keep_outputs = false;                  ///< keep the last stage's outputs
  bool count_hits = false;                    ///< count correct labels in the last stage
  OutputReader* reader = nullptr;             ///< null if nobody reads outputs and targets
  bool has_targets = true;                    ///< if false, the last stage computes no loss
  /// The gradient of the loss itself, with which the backward begins; above 1 if gradients in half
  /// precision would underflow.
  double loss_scale = 1;
  /// The kept keys and values of each micro-batch on this rank; empty if whole texts are computed.
  std::vector<KeptTokens*> kept_tokens;
  LayerWatch* watch = nullptr;  ///< may be null
  /// Data are read one micro-batch ahead, so that their copy to an accelerator overlaps with its
  /// work.
  bool reads_ahead = false;
  /// Stages report how far a backward has come (Stage::Passed).
  bool reports_passing = false;
  /// Set for a step that is run once more to be examined; statistics are not updated again then.
  /// Null in all other runs.
  Examiner* examiner = nullptr;
  /// Records what another rank will repeat, in a checked step (check/step_record.h). Null in all
  /// other runs.
  StepRecord* record = nullptr;

  int micro_batches() const { return static_cast<int>(boundaries.size()); }
};

}  // namespace strata
