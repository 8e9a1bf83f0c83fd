// MappedWeights: tensors of a job, read from published weights or a save through a map.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/weights/pieces.h"
#include "engine/checkpoint/weights/weight_map.h"

namespace strata {

/// A tensor that is asked for.
struct WantedTensor {
  std::string name;
  TensorSpec spec;
  bool may_miss = false;  ///< its initial value will do
};

class MappedWeights {
 public:
  /// `prefix`: what all names in the source begin with, and the map does not know ("model.");
  /// tensors without it are left out. The checkpoint must outlive it.
  MappedWeights(const Checkpoint& source, WeightMap map, const std::string& prefix = "");

  /// What the source has for a tensor of the job.
  struct Lookup {
    enum class Kind { kFound, kMissing, kUnfit } kind;
    MappedTensor tensor;              ///< kFound
    std::string trouble;              ///< else, for people: "h.0.ln.weight (theirs ...)"
    std::vector<std::string> theirs;  ///< the names in the source that it is made of, if there
  };
  Lookup Find(const WantedTensor& wanted) const;
  /// The names in the source that nobody uses, and that the map does not ignore.
  std::vector<std::string> Unused(const std::set<std::string>& used) const;
  /// Throws ConfigError where the map says that a tensor of the source is the same as one that
  /// these are made of, and it is not. Reads both.
  void CheckCopies(const std::vector<MappedTensor>& tensors) const;
  /// Reads a box of the tensor, in its own dtype, row-major. Takes the memory of one tensor beside.
  /// Throws as Checkpoint::Read().
  void Read(const MappedTensor& tensor, const Slice& box, void* to) const;

  /// The source's tensors, but moments, by name without the prefix.
  using Tensors = std::map<std::string, const SavedTensor*, std::less<>>;
  const Tensors& tensors() const { return tensors_; }
  const Checkpoint& source() const { return source_; }
  const WeightMap& map() const { return map_; }

 private:
  std::string TheirsMissing(const std::string& name) const;
  const SavedTensor* Source(const std::vector<std::string>& names) const;
  /// What names one that nobody can read; null = none.
  const std::string* Foreign(const std::vector<std::string>& names) const;
  std::vector<char> Whole(const MappedTensor& tensor) const;

  const Checkpoint& source_;
  const WeightMap map_;
  const std::string prefix_;
  Tensors tensors_;
  std::map<std::string, const ForeignTensor*, std::less<>> foreign_;  // likewise
};

/// "3 tensors of the job are not there: a, b, c": at most ten of them by name. "" for none.
std::string Listed(const std::string& what, const std::vector<std::string>& names);

}  // namespace strata
