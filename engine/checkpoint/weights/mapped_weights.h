// MappedWeights: reads tensors of a job from published weights or a save, through a map.
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

/// A tensor of the job that is looked up in the source.
struct WantedTensor {
  std::string name;
  TensorSpec spec;
  bool may_miss = false;  ///< true if its initial value can be used instead
};

class MappedWeights {
 public:
  /// `prefix` is the beginning of all names in the source that the map does not know ("model.");
  /// tensors without it are ignored. The checkpoint must outlive this object.
  MappedWeights(const Checkpoint& source, WeightMap map, const std::string& prefix = "");

  /// The result of looking up a tensor of the job.
  struct Lookup {
    enum class Kind { kFound, kMissing, kUnfit } kind;
    MappedTensor tensor;  ///< if kFound
    /// Otherwise a text for people: "h.0.ln.weight (theirs ...)".
    std::string trouble;
    /// The names of those of its sources that exist.
    std::vector<std::string> theirs;
  };
  Lookup Find(const WantedTensor& wanted) const;
  /// The names in the source that are not in `used` and that the map does not ignore.
  std::vector<std::string> Unused(const std::set<std::string>& used) const;
  /// Throws ConfigError if the map says that a tensor of the source equals another one, from which
  /// one of `tensors` is made, and the two differ. Reads both.
  void CheckCopies(const std::vector<MappedTensor>& tensors) const;
  /// Reads a box of the tensor, in its own dtype, row-major. Needs memory for one whole tensor in
  /// addition, unless the tensor equals its source. Throws as Checkpoint::Read() does. REQUIRES: of
  /// a tensor with a `change` the box is the whole.
  void Read(const MappedTensor& tensor, const Slice& box, void* to) const;

  /// The source's tensors except moments, by name without the prefix.
  using Tensors = std::map<std::string, const SavedTensor*, std::less<>>;
  const Tensors& tensors() const { return tensors_; }
  const Checkpoint& source() const { return source_; }
  const WeightMap& map() const { return map_; }

 private:
  std::string TheirsMissing(const std::string& name) const;
  const SavedTensor* Source(const std::vector<std::string>& names) const;
  /// The name among these of a tensor with an unknown dtype; null if there is none.
  const std::string* Foreign(const std::vector<std::string>& names) const;
  const Checkpoint& SourceOf(const MappedTensor& tensor) const {
    return tensor.from ? *tensor.from : source_;
  }
  std::vector<char> Whole(const MappedTensor& tensor) const;
  void ReadChanged(MappedTensor tensor, void* to) const;

  const Checkpoint& source_;
  const WeightMap map_;
  const std::string prefix_;
  Tensors tensors_;
  std::map<std::string, const ForeignTensor*, std::less<>> foreign_;  // by name without the prefix
};

/// A message with names: "3 tensors of the job are not there: a, b, c". Lists at most ten names. ""
/// if there are none.
std::string Listed(const std::string& what, const std::vector<std::string>& names);

}  // namespace strata
