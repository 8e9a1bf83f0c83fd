// Feed: the micro-batches of one run on one rank.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/layers/layer.h"

namespace strata {

/// The source of the data, for reports.
struct DataOrigin {
  std::string name;   ///< "digits"; for a function of the script, its line
  std::string where;  ///< the line of the script; "" if the caller gives the data
};

/// All ranks of a replica know the number of micro-batches and the shapes of their inputs. Only the
/// ranks of the first and the last stage ask for tensors, for inputs and targets respectively, when
/// the program comes to the micro-batch.
class Feed {
 public:
  virtual ~Feed() = default;

  /// Must live as long as the engine, because a watchdog may read it at any time.
  const DataOrigin& origin() const { return origin_; }
  /// The specs of every micro-batch's input. Empty while they are unknown: a user's function may
  /// return any shapes, so they are known only after reading. Then the rank of the first stage
  /// calls ReadInputs(), and every rank of its pipeline calls set_inputs() with the result
  /// (InputNews).
  const std::vector<TensorSpecs>& inputs() const { return inputs_; }
  void set_inputs(std::vector<TensorSpecs> inputs) { inputs_ = std::move(inputs); }
  /// Reads the inputs of the whole run and keeps them for Input(). Returns their specs.
  virtual std::vector<TensorSpecs> ReadInputs() { return inputs_; }
  /// The number of micro-batches of the replica that has most. In the last run of a pass, the last
  /// replicas may have fewer, or none.
  int most() const { return most_; }
  /// False if some replicas may have fewer micro-batches than others; the same on all of them.
  bool is_even() const { return is_even_; }
  void set_even(bool even) { is_even_ = even; }
  /// The number of samples of micro-batch m, at least one: dim 0 of its first tensor. REQUIRES:
  /// inputs() is not empty.
  int64_t rows(int m) const { return inputs_[m].at(0).shape.at(0); }

  virtual Tensors Input(int m) = 0;
  virtual Tensors Target(int m) = 0;

 protected:
  Feed(const DataOrigin& origin, int64_t most, std::vector<TensorSpecs> inputs = {})
      : origin_(origin), most_(static_cast<int>(most)), inputs_(std::move(inputs)) {}

 private:
  const DataOrigin& origin_;
  const int most_;
  bool is_even_ = true;
  std::vector<TensorSpecs> inputs_;
};

}  // namespace strata
