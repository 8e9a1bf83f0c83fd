#include "engine/runtime/weight_news.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <set>

#include "engine/runtime/row.h"

namespace strata {

WeightNews::WeightNews(Links& links, int rank, const Plan& plan, const std::vector<int>& pipe_ranks,
                       c10::Device device, Progress& progress)
    : links_(links), device_(device), progress_(progress) {
  std::set<int> told = {pipe_ranks.at(plan.stages.back().rank)};
  for (size_t s = plan.stages.size() - 1; s > 0; --s) {
    const int from = pipe_ranks.at(plan.stages[s].rank);
    const int to = pipe_ranks.at(plan.stages[s - 1].rank);
    if (!told.insert(to).second) continue;
    if (to == rank) from_ = from;
    if (from == rank) to_.push_back(to);
  }
}

void WeightNews::Share(std::vector<double>& weights) {
  const auto count = static_cast<int64_t>(weights.size());
  if (from_ >= 0) {
    progress_.WaitFor(from_);
    RecvLink& link = links_.recv_link(from_, kGradients);
    link.Post({{{count}, DType::kFloat64}});
    const at::Tensor received = link.Wait().at(0).cpu();
    const double* first = received.const_data_ptr<double>();
    weights.assign(first, first + count);
  }
  for (const int peer : to_) {
    links_.send_link(peer, kGradients).Send({at::tensor(weights, at::kDouble).to(device_)});
  }
}

}  // namespace strata
