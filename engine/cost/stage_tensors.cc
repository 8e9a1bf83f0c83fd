#include "engine/cost/stage_tensors.h"

#include <algorithm>

#include "engine/base/check.h"

// Walk() goes through the layers once. It gives a number to each memory that arrives or that a
// layer makes, and carries the numbers on where a layer passes its input on. A part of a layer
// (layers/parts.h) carries some of its input along: the outputs are then a memory of its own and
// the carried one, in this order.

namespace strata {
namespace {

Memories One(int memory) { return {memory, kNoMemory, kNoMemory, kNoMemory}; }

/// Both together. A place with more than four memories does not occur: a layer that passes so many
/// on would take the values of four joins. The rest is left out.
Memories Both(Memories one, const Memories& other) {
  for (const int memory : other) {
    if (memory == kNoMemory || std::ranges::find(one, memory) != one.end()) continue;
    const auto free = std::ranges::find(one, kNoMemory);
    if (free != one.end()) *free = memory;
  }
  return one;
}

}  // namespace

StageTensors::StageTensors(const ModelCosts& costs, int begin, int end) : begin_(begin), end_(end) {
  const auto layers = static_cast<size_t>(end - begin);
  bytes_.reserve(layers + 2);
  chain_.reserve(layers + 1);
  first_.reserve(layers + 2);
  passing_.resize(layers);
  skip_of_.resize(layers, -1);
  Walk(costs);
  for (const ConnectionCost& connection : costs.connections) AddPassingGradients(costs, connection);
}

int64_t StageTensors::MessageBytes(int i) const {
  int64_t sum = 0;
  ForEachAt(i, [&](int memory) { sum += bytes(memory); });
  return sum;
}

int64_t StageTensors::HeldBytes(int i) const {
  std::vector<int> memories;
  ForEachAt(i, [&](int memory) {
    if (std::ranges::find(memories, memory) == memories.end()) memories.push_back(memory);
  });
  int64_t sum = 0;
  for (const int memory : memories) sum += bytes(memory);
  return sum;
}

int StageTensors::New(int64_t bytes) {
  bytes_.push_back(bytes);
  return count() - 1;
}

/// What arrives: the values of connections, which are open from now on, and the chain's tensor.
Memories StageTensors::Arrived(const ModelCosts& costs) {
  const auto& layers = costs.layers;
  int64_t chain = layers[begin_].input_bytes;
  for (const ConnectionCost& connection : costs.connections) {
    if (connection.from >= begin_ || connection.to < begin_) continue;
    const int64_t value = layers[connection.from].input_bytes;
    if (connection.to == begin_) chain -= value;  // a join's inputs are the chain's and the value
    open_.push_back({connection, One(New(value))});
  }
  return One(New(chain));
}

/// The outputs of a layer; `inputs` include the value for a join.
Memories StageTensors::OutputsOf(const LayerCost& cost, int64_t output_bytes,
                                 const Memories& inputs) {
  if (cost.passes_input) return inputs;
  Memories outputs = One(New(output_bytes - cost.carried_output));
  if (cost.carried_output == 0) return outputs;
  // Where the part before is on another stage, both arrive as one memory.
  const bool is_apart = cost.carried_input > 0 && inputs[1] != kNoMemory;
  outputs[1] = inputs[is_apart ? 1 : 0];
  return outputs;
}

void StageTensors::Walk(const ModelCosts& costs) {
  chain_.push_back(Arrived(costs));
  auto next = std::ranges::lower_bound(costs.connections, begin_, {}, &ConnectionCost::from);
  for (int i = begin_;; ++i) {
    first_.push_back(crossing_.size());
    for (const Open& open : open_) {
      for (const int memory : open.value) {
        if (memory != kNoMemory) crossing_.push_back(memory);
      }
    }
    if (i == end_) break;
    const LayerCost& cost = costs.layers[i];
    Memories inputs = chain_.back();
    const auto joined =
        std::ranges::find_if(open_, [i](const Open& open) { return open.connection.to == i; });
    if (joined != open_.end()) {
      if (!cost.passes_input) skip_of_[i - begin_] = joined->connection.from;
      inputs = Both(inputs, joined->value);
      open_.erase(joined);
    }
    if (next != costs.connections.end() && next->from == i) {
      open_.push_back({*next, inputs});
      ++next;
    }
    const bool is_head = costs.chunk_rows > 0 && i + 1 == std::ssize(costs.layers);
    chain_.push_back(OutputsOf(cost, is_head ? 0 : cost.output_bytes, inputs));
  }
  first_.push_back(crossing_.size());
}

/// The gradient of a value exists from the backward of its join, or from the arrival of the stage's
/// output gradient, to that of its skip. A join that adds gives both inputs one gradient. One that
/// concatenates gives them views of its output's gradient, which lives as long as the longer.
void StageTensors::AddPassingGradients(const ModelCosts& costs, const ConnectionCost& connection) {
  const auto& [from, to] = connection;
  const int64_t value = costs.layers[from].input_bytes;
  const bool is_here = to < end_ && !costs.layers[to].passes_input;
  for (int i = std::max(from, begin_); i < std::min(to, end_); ++i) {
    const int64_t joined = is_here ? costs.layers[to].output_bytes : value;
    const bool is_next = i + 1 == to;  // its output's gradient is counted by itself
    passing_[i - begin_] += is_here && is_next ? joined - costs.layers[i].output_bytes : joined;
  }
}

}  // namespace strata
