// Topology: how the ranks of a world lie on a grid with named axes.
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
// What a rank does on each axis is the business of Grid (grid.h); a topology knows only names and
// numbers, and any axes will do.
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

/// Ranks in a fixed order.
using RankList = std::vector<int>;

/// The axes that the engine gives a meaning to, in the order that it lays them out.
inline constexpr std::string_view kPipeAxis = "pipe";
inline constexpr std::string_view kDataAxis = "data";
inline constexpr std::string_view kModelAxis = "model";

/// How Topology::Repr() writes a rank.
struct ReprOptions {
  /// Axes left out. Those that the engine knows may be named even where the topology lacks them.
  std::vector<std::string> omit = {"data", "pipe"};
  std::string inner = "_";  ///< between an axis and its index
  std::string outer = "-";  ///< between axes
};

/// An immutable value; every Topology is valid. Building one costs nothing per rank, and each query
/// costs only its answer. Ranks and coordinates from outside are taken as int64_t, so that no
/// number of a script is cut off before it is checked.
class Topology {
 public:
  /// The largest world that is accepted, 2^20 ranks.
  static constexpr int64_t kMaxWorldSize = int64_t{1} << 20;

  /// One rank on the axes pipe and data; FromWorldSize(1).
  Topology();

  /// The grid of these axes (slowest first) and sizes. Throws ConfigError:
  ///  1. no axis, or not one size for each axis;
  ///  2. an empty axis name, or the same name twice;
  ///  3. a size below 1, or a world above kMaxWorldSize.
  static Topology Make(std::vector<std::string> axes, std::vector<int64_t> dims);

  /// The axes among pipe, data and model that are given, in this order: {{"pipe", 2}, {"data", 4}}.
  /// Throws ConfigError as Make() does, and for any other axis (a map has no order to lay it out).
  static Topology FromSizes(const Coordinates& sizes);

  /// DeepSpeed's default for a world without a declared grid: its prime factors, ascending, are
  /// dealt alternately to pipe and data, pipe first: 12 = 2*2*3 gives pipe 6, data 2. Throws
  /// ConfigError unless 1 <= world_size <= kMaxWorldSize.
  static Topology FromWorldSize(int64_t world_size);

  const std::vector<std::string>& axes() const { return axes_; }
  /// The size of each axis, in the order of axes().
  const std::vector<int64_t>& dims() const { return dims_; }
  int world_size() const { return world_size_; }

  /// `rank` as int. Throws ConfigError unless 0 <= rank < world_size().
  int CheckedRank(int64_t rank) const;

  bool Has(std::string_view axis) const { return Find(axis).has_value(); }
  /// The size of an axis; 0 if the topology has no such axis.
  int Size(std::string_view axis) const;

  /// The rank at these coordinates. Throws ConfigError unless they name every axis and no other
  /// (the nearest name is shown), each index within its axis.
  int Rank(const Coordinates& coordinates) const;

  /// The coordinates of a rank, all axes. Throws ConfigError unless 0 <= rank < world_size().
  Coordinates Coord(int64_t rank) const;
  /// One of them. Throws ConfigError also for an unknown axis.
  int Index(int64_t rank, std::string_view axis) const;

  /// The ranks whose coordinates agree with all the given ones, ascending; {} gives all ranks.
  /// Throws ConfigError for an unknown axis or an index outside its axis.
  RankList Filter(const Coordinates& coordinates) const;

  /// The ranks at `index` of one axis, ascending; Filter({{axis, index}}).
  RankList AxisList(std::string_view axis, int64_t index) const;

  /// The groups of ranks that differ on this axis only, each in the order of the axis, the groups
  /// in ascending order of their first rank. Every rank is in exactly one. {} for an unknown axis.
  std::vector<RankList> CommLists(std::string_view axis) const;

  /// The one of CommLists(axis) that `rank` is in. Throws ConfigError for a bad rank or axis.
  RankList CommList(std::string_view axis, int64_t rank) const;

  /// DeepSpeed's get_rank_repr: axes with their index in at least two digits, "pipe_00-model_01".
  /// With the default options only what neither pipe nor data tells: "model_01", or "". Throws
  /// ConfigError for a bad rank or an unknown axis in `omit`.
  std::string Repr(int64_t rank, const ReprOptions& options = {}) const;

  /// "pipe=2 data=2 model=2 (8 ranks)".
  std::string ToString() const;

  bool operator==(const Topology&) const = default;

 private:
  Topology(std::vector<std::string> axes, std::vector<int64_t> dims);

  /// The place of an axis among axes(). Find() gives nothing, AxisAt() throws, for an unknown one.
  std::optional<size_t> Find(std::string_view axis) const;
  size_t AxisAt(std::string_view axis) const;
  int IndexAt(int rank, size_t axis) const;
  /// `index` as int. Throws ConfigError unless the axis has it.
  int CheckedIndex(size_t axis, int64_t index) const;

  std::vector<std::string> axes_;
  std::vector<int64_t> dims_;
  std::vector<int> strides_;  ///< how far apart neighbours on an axis are, in ranks
  int world_size_ = 1;
};

/// The prime factors of n, ascending, each as often as it divides n: 12 -> {2, 2, 3}; 1 -> {}.
/// Throws ConfigError for n < 1.
std::vector<int64_t> PrimeFactors(int64_t n);

}  // namespace strata
