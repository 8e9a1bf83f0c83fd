// Where the micro-batches of a run come from: a dataset, a Lua function, or the caller.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/plan/plan.h"
#include "engine/runtime/interface/engine_script.h"
#include "engine/runtime/interface/engine_tensors.h"
#include "engine/spec/job/job.h"

namespace strata {

/// The micro-batches of one run on one rank. All ranks of a replica know how many there are and
/// what enters the first stage with each; only the first and the last stage ask for tensors, each
/// for its half, when the program comes to the micro-batch.
class Feed {
 public:
  virtual ~Feed() = default;

  /// The input of every micro-batch. None while only the one who reads the data can tell, since a
  /// user's function may give any shapes: then the rank of the first stage calls ReadInputs(), and
  /// all other ranks of its pipeline set_inputs() to what that gave (InputNews).
  const std::vector<TensorSpecs>& inputs() const { return inputs_; }
  void set_inputs(std::vector<TensorSpecs> inputs) { inputs_ = std::move(inputs); }
  /// Reads the inputs of the whole run, which are kept until Input() asks for them.
  virtual std::vector<TensorSpecs> ReadInputs() { return inputs_; }
  /// Micro-batches of the replica that has the most. The last replicas of the last run of a pass
  /// may have fewer, or none.
  int most() const { return most_; }
  /// Samples of micro-batch m, at least one: dim 0 of its first tensor. REQUIRES: inputs() are
  /// known.
  int64_t rows(int m) const { return inputs_[m].at(0).shape.at(0); }

  virtual Tensors Input(int m) = 0;
  virtual Tensors Target(int m) = 0;

 protected:
  explicit Feed(int64_t most) : most_(static_cast<int>(most)) {}
  Feed(std::vector<TensorSpecs> inputs, int64_t most) : Feed(most) { inputs_ = std::move(inputs); }

 private:
  const int most_;
  std::vector<TensorSpecs> inputs_;
};

/// A supply of runs: training steps, or the parts of an evaluation.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Runs of one pass over the data; 0 when it has no end.
  virtual int64_t runs_per_pass() const = 0;
  /// Run `run`, counted from 0 over all passes. The source must outlive it.
  virtual std::unique_ptr<Feed> Next(int64_t run) = 0;
};

/// How a source is cut into runs for one replica.
struct BatchOptions {
  Batch batch;      ///< micro_batches per run and micro_batch_size
  int replica = 0;  ///< of `replicas`
  int replicas = 1;
  bool wants_both = true;  ///< the rank will ask for inputs and for targets
};

/// Opens job data. REQUIRES: spec.kind is not "". Throws ConfigError and WorldError as
/// OpenDataset(). Everything must outlive the source.
std::unique_ptr<BatchSource> OpenSource(const Job& job, const DataSpec& spec,
                                        const BatchOptions& options, EngineScript& script);

/// The caller's micro-batches, which must outlive the feed, those of all replicas behind each
/// other: replica r has those from r * most() on. Throws ConfigError when there are none, or one is
/// empty.
std::unique_ptr<Feed> FeedOf(const MicroBatches& batches, int replica, int replicas);

}  // namespace strata
