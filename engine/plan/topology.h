// Topology: the arrangement of the ranks of a world on a grid with named axes.
//
// The ranks fill the grid in row-major order: the first axis varies slowest, the last one fastest.
// On the axes pipe, data, model of sizes 2, 2, 2 (as in DeepSpeed's PipeModelDataParallelTopology):
//
//   rank = (pipe * 2 + data) * 2 + model
//
//              pipe 0                  pipe 1
//              model 0  model 1        model 0  model 1
//     data 0      0        1              4        5
//     data 1      2        3              6        7
//
// Grid (grid.h) gives the axes their meaning. A topology knows only names and numbers, and accepts
// any axes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// An index for each of some axes: {{"pipe", 1}, {"data", 0}}.
using Coordinates = std::map<std::string, int64_t, std::less<>>;

/// A list of ranks in a fixed order.
using RankList = std::vector<int>;

/// The axes that have a meaning for the engine, in the order in which it lays them out.
inline constexpr std::string_view kPipeAxis = "pipe";
inline constexpr std::string_view kDataAxis = "data";
inline constexpr std::string_view kModelAxis = "model";

/// Options of Topology::Repr(), which names a rank.
struct ReprOptions {
  /// The axes to leave out. Axes that the engine knows may be named even if the topology does not
  /// have them.
  std::vector<std::string> omit = {"data", "pipe"};
  std::string inner = "_";  ///< separates an axis from its index
  std::string outer = "-";  ///< separates axes
};

/// An immutable value; every Topology is valid. Building one takes no time per rank, and a query
/// takes time only for its answer. Ranks and coordinates from outside are int64_t, so that no
/// number of a script is truncated before it is checked.
class Topology {
 public:
  /// The largest world that is accepted, 2^20 ranks.
  static constexpr int64_t kMaxWorldSize = int64_t{1} << 20;

  /// One rank on the axes pipe and data, as FromWorldSize(1).
  Topology();

  /// Makes the grid with these axes (slowest first) and sizes. Throws ConfigError for
  ///  1. no axis, or not one size for each axis;
  ///  2. an empty axis name, or the same name twice;
  ///  3. a size below 1, or a world above kMaxWorldSize.
  static Topology Make(std::vector<std::string> axes, std::vector<int64_t> dims);

  /// Makes the grid with the axes among pipe, data and model that are given, in this order:
  /// {{"pipe", 2}, {"data", 4}}. Throws ConfigError as Make() does, and for any other axis, since a
  /// map has no order to lay it out.
  static Topology FromSizes(const Coordinates& sizes);

  /// DeepSpeed's default for a world without a declared grid: its prime factors, ascending, are
  /// dealt alternately to pipe and data, pipe first: 12 = 2*2*3 gives pipe 6, data 2. Throws
  /// ConfigError unless 1 <= world_size <= kMaxWorldSize.
  static Topology FromWorldSize(int64_t world_size);

  const std::vector<std::string>& axes() const { return axes_; }
  /// The size of each axis, in the order of axes().
  const std::vector<int64_t>& dims() const { return dims_; }
  int world_size() const { return world_size_; }

  /// Returns `rank` as int. Throws ConfigError unless 0 <= rank < world_size().
  int CheckedRank(int64_t rank) const;

  bool Has(std::string_view axis) const { return Find(axis).has_value(); }
  /// The size of an axis; 0 if the topology has no such axis.
  int Size(std::string_view axis) const;

  /// The rank at these coordinates. Throws ConfigError unless they name every axis and no other
  /// (the nearest name is shown) and each index lies within its axis.
  int Rank(const Coordinates& coordinates) const;

  /// The coordinates of a rank on all axes. Throws ConfigError unless 0 <= rank < world_size().
  Coordinates Coord(int64_t rank) const;
  /// The coordinate of a rank on one axis. Also throws ConfigError for an unknown axis.
  int Index(int64_t rank, std::string_view axis) const;

  /// The ranks whose coordinates agree with all the given ones, ascending; {} gives all ranks.
  /// Throws ConfigError for an unknown axis or an index outside its axis.
  RankList Filter(const Coordinates& coordinates) const;

  /// The ranks at `index` of one axis, ascending: Filter({{axis, index}}).
  RankList AxisList(std::string_view axis, int64_t index) const;

  /// The groups of ranks that differ only on this axis. The ranks of each group are in the order of
  /// the axis, the groups in ascending order of their first rank. Every rank is in exactly one
  /// group. {} for an unknown axis.
  std::vector<RankList> CommLists(std::string_view axis) const;

  /// The group of CommLists(axis) that contains `rank`. Throws ConfigError for a bad rank or axis.
  RankList CommList(std::string_view axis, int64_t rank) const;

  /// DeepSpeed's get_rank_repr: axes with their index in at least two digits, "pipe_00-model_01".
  /// The default options leave out pipe and data: "model_01", or "". Throws ConfigError for a bad
  /// rank or an unknown axis in `omit`.
  std::string Repr(int64_t rank, const ReprOptions& options = {}) const;

  /// The sizes as text: "pipe=2 data=2 model=2 (8 ranks)".
  std::string ToString() const;

  bool operator==(const Topology&) const = default;

 private:
  Topology(std::vector<std::string> axes, std::vector<int64_t> dims);

  /// The position of an axis in axes(). For an unknown axis Find() returns nothing and AxisAt()
  /// throws ConfigError.
  std::optional<size_t> Find(std::string_view axis) const;
  size_t AxisAt(std::string_view axis) const;
  int IndexAt(int rank, size_t axis) const;
  /// Returns `index` as int. Throws ConfigError unless it lies within the axis.
  int CheckedIndex(size_t axis, int64_t index) const;

  std::vector<std::string> axes_;
  std::vector<int64_t> dims_;
  std::vector<int> strides_;  ///< the distance in ranks between neighbours on each axis
  int world_size_ = 1;
};

/// The prime factors of n, ascending, each as often as it divides n: 12 -> {2, 2, 3}; 1 -> {}.
/// Throws ConfigError for n < 1.
std::vector<int64_t> PrimeFactors(int64_t n);

}  // namespace strata
