// Feed: the micro-batches of one run on one rank.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/layers/layer.h"

namespace strata {

/// Where data comes from, for reports.
struct DataOrigin {
  std::string name;   ///< "digits"; of a function of the script its line
  std::string where;  ///< the line of the script that says so; "" = the caller gives the data
};

/// All ranks of a replica know how many micro-batches there are, and what enters the first stage
/// with each. Only the first and the last stage ask for tensors, each for its half, when the
/// program comes to the micro-batch.
class Feed {
 public:
  virtual ~Feed() = default;

  /// Lives as long as the engine, since a watchdog may read it at any time.
  const DataOrigin& origin() const { return origin_; }
  /// The input of every micro-batch. Empty while they are not known: a user's function may give any
  /// shapes, so that only who reads the data can tell. Then the rank of the first stage calls
  /// ReadInputs(), and every rank of its pipeline set_inputs() with the result (InputNews).
  const std::vector<TensorSpecs>& inputs() const { return inputs_; }
  void set_inputs(std::vector<TensorSpecs> inputs) { inputs_ = std::move(inputs); }
  /// Reads the inputs of the whole run, and keeps them until Input() asks for them.
  virtual std::vector<TensorSpecs> ReadInputs() { return inputs_; }
  /// How many micro-batches the replica with the most has. In the last run of a pass, the last
  /// replicas may have fewer, or none.
  int most() const { return most_; }
  /// The samples of micro-batch m, at least one: dim 0 of its first tensor. REQUIRES: inputs() are
  /// known.
  int64_t rows(int m) const { return inputs_[m].at(0).shape.at(0); }

  virtual Tensors Input(int m) = 0;
  virtual Tensors Target(int m) = 0;

 protected:
  Feed(const DataOrigin& origin, int64_t most, std::vector<TensorSpecs> inputs = {})
      : origin_(origin), most_(static_cast<int>(most)), inputs_(std::move(inputs)) {}

 private:
  const DataOrigin& origin_;
  const int most_;
  std::vector<TensorSpecs> inputs_;
};

}  // namespace strata
