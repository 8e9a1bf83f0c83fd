#include "engine/runtime/weight_news.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include "engine/runtime/row.h"

namespace strata {

WeightNews::WeightNews(Links& links, int rank, const Plan& plan, const std::vector<int>& pipe_ranks,
                       c10::Device device, Progress& progress)
    : links_(links),
      device_(device),
      progress_(progress),
      route_(RouteOf(rank, plan, pipe_ranks, NewsFrom::kLastStage)) {}

void WeightNews::Share(std::vector<double>& weights) {
  const auto count = static_cast<int64_t>(weights.size());
  if (route_.from >= 0) {
    progress_.WaitFor(route_.from);
    RecvLink& link = links_.recv_link(route_.from, kGradients);
    link.Post({{{count}, DType::kFloat64}});
    const at::Tensor received = link.Wait().at(0).cpu();
    const double* first = received.const_data_ptr<double>();
    weights.assign(first, first + count);
  }
  for (const int peer : route_.to) {
    links_.send_link(peer, kGradients).Send({at::tensor(weights, at::kDouble).to(device_)});
  }
}

}  // namespace strata
