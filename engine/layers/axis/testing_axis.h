// A model axis whose ranks are threads, for tests of layers.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <barrier>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/layers/random/random.h"

namespace strata::testing {

/// The memory that the ranks of one axis share: the tensors that each rank brings to a collective.
/// Collectives use two sets of tensors alternately. Two are enough, because no rank begins a third
/// collective before all ranks have finished the first.
struct AxisMeeting {
  explicit AxisMeeting(int size) : brought{Tensors(size), Tensors(size)}, barrier(size) {}
  Tensors brought[2];
  std::barrier<> barrier;
};

class ThreadAxis : public AxisComm {
 public:
  ThreadAxis(std::shared_ptr<AxisMeeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(meeting_->brought[0].size()); }
  at::Tensor AllReduceSum(const at::Tensor& x) override {
    return Meet(x, [](const Tensors& all) {
      at::Tensor sum = all[0].clone();
      for (size_t i = 1; i < all.size(); ++i) sum.add_(all[i]);
      return sum;
    });
  }
  at::Tensor AllGather(const at::Tensor& x, int64_t dim) override {
    return Meet(x, [=](const Tensors& all) { return at::cat(all, dim); });
  }
  at::Tensor ReduceScatterSum(const at::Tensor& x, int64_t dim) override {
    return AllReduceSum(x).chunk(size(), dim)[rank_].clone();
  }

 private:
  template <class Work>
  at::Tensor Meet(const at::Tensor& x, const Work& work) {
    const at::NoGradGuard no_grad;
    Tensors& brought = meeting_->brought[meetings_++ % 2];
    brought[rank_] = x.clone();  // the caller may change x while others still read
    meeting_->barrier.arrive_and_wait();
    return work(brought);
  }

  const std::shared_ptr<AxisMeeting> meeting_;
  const int rank_;
  int meetings_ = 0;
};

/// Runs `work` for every rank of an axis, each on its own thread. Rethrows the exception of rank 0;
/// exceptions of other ranks are dropped.
inline void OnAxis(int size, const std::function<void(std::shared_ptr<AxisComm>)>& work) {
  const RandomScope registers_its_kernels(0);
  const auto meeting = std::make_shared<AxisMeeting>(size);
  std::vector<std::exception_ptr> errors(size);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        at::set_num_threads(1);
        try {
          work(std::make_shared<ThreadAxis>(meeting, rank));
        } catch (...) {
          errors[rank] = std::current_exception();
          meeting->barrier.arrive_and_drop();
        }
      });
    }
  }
  if (errors[0]) std::rethrow_exception(errors[0]);
}

}  // namespace strata::testing
