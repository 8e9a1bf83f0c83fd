// Encodes shapes as a list of integers and forwards them from stage to stage.
#include "engine/runtime/step/input_news.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <set>
#include <span>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/text.h"
#include "engine/runtime/step/row.h"

namespace strata {
namespace {

/// Encodes: the number of micro-batches; for each its number of tensors; for each tensor dtype,
/// number of dims, sizes.
std::vector<int64_t> Encode(const std::vector<TensorSpecs>& inputs) {
  std::vector<int64_t> numbers = {static_cast<int64_t>(inputs.size())};
  for (const TensorSpecs& specs : inputs) {
    numbers.push_back(static_cast<int64_t>(specs.size()));
    for (const TensorSpec& spec : specs) {
      numbers.push_back(static_cast<int64_t>(spec.dtype));
      numbers.push_back(static_cast<int64_t>(spec.shape.size()));
      numbers.insert(numbers.end(), spec.shape.begin(), spec.shape.end());
    }
  }
  return numbers;
}

/// REQUIRES: `numbers` comes from Encode().
std::vector<TensorSpecs> Decode(std::span<const int64_t> numbers) {
  const int64_t* next = numbers.data();
  std::vector<TensorSpecs> inputs(*next++);
  for (TensorSpecs& specs : inputs) {
    specs.resize(*next++);
    for (TensorSpec& spec : specs) {
      spec.dtype = static_cast<DType>(*next++);
      const int64_t dims = *next++;
      spec.shape.assign(next, next + dims);
      next += dims;
    }
  }
  STRATA_CHECK(next == numbers.data() + numbers.size());
  return inputs;
}

TensorSpecs Numbers(int64_t count) { return {{{count}, DType::kInt64}}; }

}  // namespace

InputNews::InputNews(Transport& transport, Links& links, const Plan& plan,
                     const std::vector<int>& pipe_ranks, c10::Device device, Progress& progress)
    : transport_(transport),
      links_(links),
      root_(pipe_ranks.at(plan.stages.front().rank)),
      device_(device),
      progress_(progress) {
  const int rank = transport.rank();
  std::vector<int> hops;
  for (const StagePlan& stage : plan.stages) hops.push_back(pipe_ranks.at(stage.rank));
  std::set<int> told = {hops.front()};
  for (size_t i = 0; i + 1 < hops.size(); ++i) {
    const int from = hops[i], to = hops[i + 1];
    if (!told.insert(to).second) continue;
    if (to == rank) from_ = from;
    if (from == rank) to_.push_back(to);
  }
}

std::vector<TensorSpecs> InputNews::Share(const std::function<std::vector<TensorSpecs>()>& read) {
  if (is_for_all()) {
    ShareWithAll(read);
  } else if (from_ >= 0) {
    progress_.WaitFor(from_);
    Receive();
  } else {
    std::vector<TensorSpecs> inputs = read();
    const bool changed = inputs != last_;
    last_ = std::move(inputs);
    Send(changed);
  }
  return last_;
}

/// Shares the news with all ranks by Gather(). An empty text means that nothing has changed.
void InputNews::ShareWithAll(const std::function<std::vector<TensorSpecs>()>& read) {
  std::string own;
  if (transport_.rank() == root_) {
    std::vector<TensorSpecs> inputs = read();
    if (inputs != last_) own = Join(Encode(inputs), " ");
  }
  progress_.WaitForAll();
  const std::string news = transport_.Gather(own)[root_];
  progress_.Compute();
  if (news.empty()) return;
  std::vector<int64_t> numbers;
  for (const std::string& number : Split(news, ' ')) numbers.push_back(std::stoll(number));
  last_ = Decode(numbers);
}

/// Receives the news and forwards them.
void InputNews::Receive() {
  RecvLink& link = links_.recv_link(from_, kActivations);
  link.Post(Numbers(1));
  const int64_t count = link.Wait().at(0).item<int64_t>();
  if (count > 0) {
    link.Post(Numbers(count));
    const at::Tensor numbers = link.Wait().at(0);
    last_ = Decode({numbers.const_data_ptr<int64_t>(), static_cast<size_t>(count)});
  }
  Send(count > 0);
}

void InputNews::Send(bool changed) {
  if (to_.empty()) return;
  const std::vector<int64_t> numbers = Encode(last_);
  const auto count = static_cast<int64_t>(numbers.size());
  for (const int peer : to_) {
    SendLink& link = links_.send_link(peer, kActivations);
    link.Send({at::tensor({changed ? count : 0}, at::kLong)});
    if (changed) link.Send({at::tensor(numbers, at::kLong)});
  }
}

}  // namespace strata
