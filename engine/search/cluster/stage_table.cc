#include "engine/search/cluster/stage_table.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "engine/plan/cut/partition.h"

namespace strata::search {
namespace {

/// The numbers of a layer's cost that SumLayers() uses, without connections.
std::vector<double> NumbersOf(const LayerCost& cost) {
  std::vector<double> numbers;
  for (const Work* work : {&cost.forward, &cost.input_grad, &cost.weight_grad}) {
    numbers.insert(numbers.end(), {work->flops, work->bytes, work->axis_bytes, work->seconds});
  }
  for (const int64_t count :
       {cost.parameters, cost.weight_bytes, cost.copy_bytes, cost.gradient_bytes, cost.buffer_bytes,
        cost.extra_state_bytes, cost.input_bytes, cost.output_bytes, cost.carried_input,
        cost.carried_output, cost.kept_bytes, cost.deferred_bytes, cost.forward_scratch,
        cost.backward_scratch, cost.input_grad_scratch}) {
    numbers.push_back(static_cast<double>(count));
  }
  for (const bool flag : {cost.keeps_input, cost.keeps_output, cost.passes_input, cost.defers_input,
                          cost.runs_once}) {
    numbers.push_back(flag);
  }
  return numbers;
}

/// Per layer: how far ahead the join of a skip is, and how far back the skip of a join; else 0.
/// With the bytes at both ends, this is all that connections add to the cost of a run.
std::vector<int> ConnectionMarks(const ModelCosts& costs) {
  std::vector<int> marks(costs.layers.size(), 0);
  for (const auto& [from, to] : costs.connections) {
    marks[static_cast<size_t>(from)] = to - from;
    marks[static_cast<size_t>(to)] = from - to;
  }
  return marks;
}

}  // namespace

std::vector<int> KindsOf(const ModelCosts& costs, const std::vector<int>& marks) {
  const std::vector<int64_t> crossing = MessageBytes(costs);
  const std::vector<int> connected = ConnectionMarks(costs);
  const int first_learning = FirstLearning(costs);
  std::map<std::vector<double>, int> numbers;
  std::vector<int> kinds;
  for (size_t i = 0; i < costs.layers.size(); ++i) {
    std::vector<double> kind = NumbersOf(costs.layers[i]);
    for (const size_t place : {i, i + 1}) kind.push_back(static_cast<double>(crossing[place]));
    kind.push_back(connected[i]);
    kind.push_back(static_cast<int>(i) <= first_learning ? 1 : 0);
    if (!marks.empty()) kind.push_back(marks[i]);
    const int next = static_cast<int>(numbers.size());
    kinds.push_back(numbers.emplace(std::move(kind), next).first->second);
  }
  return kinds;
}

StageTable::StageTable(int layers, Cost cost, const std::vector<int>& kinds)
    : layers_(layers), cost_(std::move(cost)) {
  STRATA_CHECK(layers >= 1 && layers <= partition::kMaxItems) << layers;
  STRATA_CHECK(kinds.empty() || static_cast<int>(kinds.size()) == layers) << kinds.size();
  if (kinds.empty()) return;
  classes_.emplace_back(kinds.begin(), kinds.end());
  for (size_t half = 1; 2 * half <= kinds.size(); half *= 2) {
    const std::vector<uint32_t>& halves = classes_.back();
    std::unordered_map<uint64_t, uint32_t> numbers;
    std::vector<uint32_t> windows;
    for (size_t begin = 0; begin + 2 * half <= kinds.size(); ++begin) {
      const uint64_t pair = uint64_t{halves[begin]} << 32 | halves[begin + half];
      const auto next = static_cast<uint32_t>(numbers.size());
      windows.push_back(numbers.emplace(pair, next).first->second);
    }
    classes_.push_back(std::move(windows));
  }
}

/// A number that is equal for runs that cost the same. Classes, places and lengths are at most
/// kMaxItems = 2^20.
uint64_t StageTable::KeyOf(int begin, int end) const {
  const auto length = static_cast<uint64_t>(end - begin);
  if (classes_.empty()) return length << 21 | static_cast<uint64_t>(begin);
  const int level = std::bit_width(length) - 1;
  const std::vector<uint32_t>& windows = classes_[static_cast<size_t>(level)];
  const uint64_t first = windows[static_cast<size_t>(begin)];
  const uint64_t last = windows[static_cast<size_t>(end - (1 << level))];
  const uint64_t ends = (begin == 0 ? 2 : 0) + (end == layers_ ? 1 : 0);
  return ((length << 20 | first) << 20 | last) << 2 | ends;
}

const StageCost& StageTable::Of(int begin, int end) const {
  const auto [known, is_new] = known_.try_emplace(KeyOf(begin, end));
  if (is_new) known->second = cost_(begin, end);
  return known->second;
}

int64_t StageTable::LeastOutput() const {
  if (least_output_ >= 0) return least_output_;
  least_output_ = Of(0, 1).output_bytes;
  for (int i = 1; i + 1 < layers_; ++i) {
    least_output_ = std::min(least_output_, Of(i, i + 1).output_bytes);
  }
  return least_output_;
}

double StageTable::LeastHeadShare(bool splits) const {
  double& least = least_head_share_[splits ? 1 : 0];
  if (least >= 0) return least;
  least = 1;
  for (int i = 0; i < layers_; ++i) {
    const StageCost& stage = Of(i, i + 1);
    const double head = stage.forward.seconds + (splits ? 0 : stage.backward_seconds());
    if (stage.seconds() > 0) least = std::min(least, head / stage.seconds());
  }
  return least;
}

}  // namespace strata::search
