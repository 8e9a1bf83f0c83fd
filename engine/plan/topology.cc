#include "engine/plan/topology.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

const std::vector<std::string>& KnownAxes() {
  static const std::vector<std::string> axes = {std::string(kPipeAxis), std::string(kDataAxis),
                                                std::string(kModelAxis)};
  return axes;
}

bool IsKnownAxis(std::string_view axis) {
  return std::find(KnownAxes().begin(), KnownAxes().end(), axis) != KnownAxes().end();
}

void CheckNames(const std::vector<std::string>& axes) {
  if (axes.empty()) throw ConfigError("a topology needs at least one axis");
  for (auto axis = axes.begin(); axis != axes.end(); ++axis) {
    if (axis->empty()) throw ConfigError("an axis of a topology needs a name, got \"\"");
    if (std::find(axes.begin(), axis, *axis) != axis) {
      throw ConfigError(Str("a topology has each axis once, got \"", *axis, "\" twice"));
    }
  }
}

void CheckDims(const std::vector<std::string>& axes, const std::vector<int64_t>& dims) {
  if (dims.size() != axes.size()) {
    throw ConfigError(Str("a topology needs one size for each axis, got ",
                          Plural(static_cast<int64_t>(axes.size()), "axis name"), " and ",
                          Plural(static_cast<int64_t>(dims.size()), "size")));
  }
  int64_t world = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 1) {
      throw ConfigError(
          Str("the size of axis \"", axes[i], "\" must be at least 1, got ", dims[i]));
    }
    if (dims[i] > Topology::kMaxWorldSize / world) {
      throw ConfigError(Str("a topology may have at most ", FormatCount(Topology::kMaxWorldSize),
                            " ranks, got sizes ", Join(dims, " x ")));
    }
    world *= dims[i];
  }
}

/// The index with at least two digits, as DeepSpeed writes it.
std::string TwoDigits(int index) { return Printf("%02d", index); }

}  // namespace

Topology::Topology() : Topology({std::string(kPipeAxis), std::string(kDataAxis)}, {1, 1}) {}

Topology::Topology(std::vector<std::string> axes, std::vector<int64_t> dims)
    : axes_(std::move(axes)), dims_(std::move(dims)), strides_(dims_.size()) {
  for (size_t axis = dims_.size(); axis-- > 0;) {
    strides_[axis] = world_size_;
    world_size_ *= static_cast<int>(dims_[axis]);
  }
}

Topology Topology::Make(std::vector<std::string> axes, std::vector<int64_t> dims) {
  CheckNames(axes);
  CheckDims(axes, dims);
  return Topology(std::move(axes), std::move(dims));
}

Topology Topology::FromSizes(const Coordinates& sizes) {
  for (const auto& [axis, size] : sizes) {
    if (IsKnownAxis(axis)) continue;
    throw ConfigError(Str("sizes by name lay out the axes ", Join(KnownAxes(), ", "), ", got \"",
                          axis, "\"", DidYouMean(axis, KnownAxes(), 0),
                          "; give other axes as a list of names and a list of sizes"));
  }
  std::vector<std::string> axes;
  std::vector<int64_t> dims;
  for (const std::string& axis : KnownAxes()) {
    const auto size = sizes.find(axis);
    if (size == sizes.end()) continue;
    axes.push_back(axis);
    dims.push_back(size->second);
  }
  return Make(std::move(axes), std::move(dims));
}

Topology Topology::FromWorldSize(int64_t world_size) {
  if (world_size < 1 || world_size > kMaxWorldSize) {
    throw ConfigError(
        Str("a world has 1 to ", FormatCount(kMaxWorldSize), " ranks, got ", world_size));
  }
  std::vector<int64_t> dims = {1, 1};
  size_t next = 0;
  for (int64_t factor : PrimeFactors(world_size)) {
    dims[next] *= factor;
    next = 1 - next;
  }
  return Make({std::string(kPipeAxis), std::string(kDataAxis)}, std::move(dims));
}

std::optional<size_t> Topology::Find(std::string_view axis) const {
  const auto found = std::find(axes_.begin(), axes_.end(), axis);
  if (found == axes_.end()) return std::nullopt;
  return static_cast<size_t>(found - axes_.begin());
}

size_t Topology::AxisAt(std::string_view axis) const {
  if (const auto found = Find(axis)) return *found;
  throw ConfigError(Str("this topology has no axis \"", axis, "\"", DidYouMean(axis, axes_)));
}

int Topology::Size(std::string_view axis) const {
  const auto found = Find(axis);
  return found ? static_cast<int>(dims_[*found]) : 0;
}

int Topology::CheckedRank(int64_t rank) const {
  if (rank >= 0 && rank < world_size_) return static_cast<int>(rank);
  throw ConfigError(
      Str("rank ", rank, " is not in this topology: its ranks are 0 to ", world_size_ - 1));
}

int Topology::CheckedIndex(size_t axis, int64_t index) const {
  if (index >= 0 && index < dims_[axis]) return static_cast<int>(index);
  throw ConfigError(
      Str("axis \"", axes_[axis], "\" has indices 0 to ", dims_[axis] - 1, ", got ", index));
}

int Topology::Rank(const Coordinates& coordinates) const {
  int rank = 0;
  for (const auto& [axis, index] : coordinates) {
    const size_t at = AxisAt(axis);
    rank += CheckedIndex(at, index) * strides_[at];
  }
  for (const std::string& axis : axes_) {
    if (coordinates.contains(axis)) continue;
    throw ConfigError(Str("a rank needs an index on every axis (", Join(axes_, ", "),
                          "), none was given for \"", axis, "\""));
  }
  return rank;
}

int Topology::IndexAt(int rank, size_t axis) const {
  return rank / strides_[axis] % static_cast<int>(dims_[axis]);
}

Coordinates Topology::Coord(int64_t rank) const {
  const int checked = CheckedRank(rank);
  Coordinates coordinates;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    coordinates[axes_[axis]] = IndexAt(checked, axis);
  }
  return coordinates;
}

int Topology::Index(int64_t rank, std::string_view axis) const {
  return IndexAt(CheckedRank(rank), AxisAt(axis));
}

RankList Topology::Filter(const Coordinates& coordinates) const {
  std::vector<std::optional<int>> fixed(axes_.size());
  for (const auto& [axis, index] : coordinates) {
    const size_t at = AxisAt(axis);
    fixed[at] = CheckedIndex(at, index);
  }
  // Goes from the slowest axis to the fastest, so that the ranks stay in ascending order.
  RankList ranks = {0};
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    const int begin = fixed[axis].value_or(0);
    const int end = fixed[axis] ? begin + 1 : static_cast<int>(dims_[axis]);
    RankList extended;
    extended.reserve(ranks.size() * static_cast<size_t>(end - begin));
    for (int rank : ranks) {
      for (int index = begin; index < end; ++index)
        extended.push_back(rank + index * strides_[axis]);
    }
    ranks = std::move(extended);
  }
  return ranks;
}

RankList Topology::AxisList(std::string_view axis, int64_t index) const {
  return Filter({{std::string(axis), index}});
}

std::vector<RankList> Topology::CommLists(std::string_view axis) const {
  std::vector<RankList> lists;
  if (!Has(axis)) return lists;
  for (int first : AxisList(axis, 0)) lists.push_back(CommList(axis, first));
  return lists;
}

RankList Topology::CommList(std::string_view axis, int64_t rank) const {
  const size_t at = AxisAt(axis);
  const int checked = CheckedRank(rank);
  const int first = checked - IndexAt(checked, at) * strides_[at];
  RankList list(static_cast<size_t>(dims_[at]));
  for (size_t i = 0; i < list.size(); ++i) list[i] = first + static_cast<int>(i) * strides_[at];
  return list;
}

std::string Topology::Repr(int64_t rank, const ReprOptions& options) const {
  const int checked = CheckedRank(rank);
  for (const std::string& axis : options.omit) {
    if (!IsKnownAxis(axis)) AxisAt(axis);
  }
  std::vector<std::string> pieces;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    const auto omitted = std::find(options.omit.begin(), options.omit.end(), axes_[axis]);
    if (omitted != options.omit.end()) continue;
    pieces.push_back(Str(axes_[axis], options.inner, TwoDigits(IndexAt(checked, axis))));
  }
  return Join(pieces, options.outer);
}

std::string Topology::ToString() const {
  std::string text;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    text += Str(axes_[axis], "=", dims_[axis], " ");
  }
  return Str(text, "(", Plural(world_size_, "rank"), ")");
}

std::vector<int64_t> PrimeFactors(int64_t n) {
  if (n < 1) throw ConfigError(Str("prime factors exist for whole numbers from 1 on, got ", n));
  std::vector<int64_t> factors;
  for (int64_t factor = 2; factor <= n / factor; ++factor) {
    for (; n % factor == 0; n /= factor) factors.push_back(factor);
  }
  if (n > 1) factors.push_back(n);
  return factors;
}

}  // namespace strata
