// A queue of items, one per micro-batch, in the order in which they will be used. Fill() keeps
// `depth` items in it that were not asked for yet; worker threads read the first that nobody reads.
// Take() returns a half of an item; if no worker has begun to read it, the reader reads it itself,
// else it waits. An item leaves the queue when all wanted halves were taken. If a half was not read
// with the item (because it was not known to be wanted), Take() reads it separately.
#include "engine/runtime/read_ahead.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/layers/losses.h"

namespace strata {
namespace {

Tensors Empty(const TensorSpecs& specs, bool pinned) {
  Tensors tensors;
  for (const TensorSpec& spec : specs) {
    const auto type = at::dtype(ToScalarType(spec.dtype));
    tensors.push_back(at::empty(spec.shape, type.pinned_memory(pinned)));
  }
  return tensors;
}

/// Converts samples, each with all its tensors, to one tensor for each of these over all samples.
Tensors Stack(const std::vector<std::byte>& samples, const TensorSpecs& of_one, size_t rows,
              bool pinned) {
  Tensors tensors = Empty(WithRows(of_one, rows), pinned);
  const size_t stride = rows == 0 ? 0 : samples.size() / rows;
  size_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = static_cast<size_t>(of_one[i].bytes());
    auto* place = static_cast<std::byte*>(tensors[i].mutable_data_ptr());
    for (size_t row = 0; row < rows && bytes > 0; ++row, place += bytes) {
      std::memcpy(place, samples.data() + row * stride + offset, bytes);
    }
    offset += bytes;
  }
  return tensors;
}

/// The buffer for one half (inputs or targets) of a micro-batch. A single tensor is read in place;
/// several are read sample by sample and stacked.
class Half {
 public:
  Half(TensorSpecs of_one, size_t rows, bool wanted, bool pinned)
      : of_one_(std::move(of_one)), rows_(rows), pinned_(pinned) {
    if (!wanted || of_one_.empty()) return;
    if (of_one_.size() == 1) {
      tensors_ = Empty(WithRows(of_one_, rows), pinned);
      place_ = static_cast<std::byte*>(tensors_[0].mutable_data_ptr());
    } else {
      samples_.resize(rows * static_cast<size_t>(BytesOf(of_one_)));
      place_ = samples_.data();
    }
  }
  std::byte* place() const { return place_; }
  Tensors Take() {
    return samples_.empty() ? std::move(tensors_) : Stack(samples_, of_one_, rows_, pinned_);
  }

 private:
  const TensorSpecs of_one_;
  const size_t rows_;
  const bool pinned_;
  Tensors tensors_;
  std::vector<std::byte> samples_;
  std::byte* place_ = nullptr;
};

}  // namespace

MicroBatch ReadMicroBatch(const Dataset& dataset, const Order& order, bool input, bool target,
                          bool pinned) {
  const size_t rows = order.indices.size();
  Half inputs(dataset.inputs(), rows, input, pinned);
  Half targets(dataset.targets(), rows, target, pinned);
  dataset.ReadBatch(order.indices, order.epoch, inputs.place(), targets.place());
  return {inputs.Take(), targets.Take()};
}

namespace {

/// Stacks samples, each padded with `fill` along dim 0 to `longest`.
at::Tensor Padded(const std::vector<PlainSample>& samples, PlainTensors PlainSample::*half,
                  int64_t longest, double fill) {
  TensorSpec spec = (samples[0].*half).specs[0];
  spec.shape[0] = longest;
  at::Tensor tensor = EmptyTensors(WithRows({spec}, samples.size()), at::kCPU)[0].fill_(fill);
  auto* place = static_cast<char*>(tensor.mutable_data_ptr());
  for (const PlainSample& sample : samples) {
    const std::string& bytes = (sample.*half).bytes;
    if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
    place += spec.bytes();
  }
  return tensor;
}

int64_t LengthOf(const PlainTensors& half) { return half.specs[0].shape.at(0); }

at::Tensor MaskOf(const std::vector<PlainSample>& samples, int64_t longest) {
  at::Tensor mask = at::zeros({static_cast<int64_t>(samples.size()), longest}, at::kBool);
  for (size_t i = 0; i < samples.size(); ++i) {
    mask[static_cast<int64_t>(i)].narrow(0, 0, LengthOf(samples[i].input)).fill_(true);
  }
  return mask;
}

MicroBatch Pinned(MicroBatch batch) {
  for (Tensors* half : {&batch.input, &batch.target}) {
    for (at::Tensor& tensor : *half) tensor = tensor.pin_memory();
  }
  return batch;
}

/// Stacks targets padded with -100. Unsigned labels cannot represent it and become int64.
at::Tensor PaddedTarget(const std::vector<PlainSample>& samples, int64_t longest,
                        const at::Tensor& mask) {
  at::Tensor target = Padded(samples, &PlainSample::target, longest, 0);
  if (target.scalar_type() == at::kByte) target = target.to(at::kLong);
  const int64_t others = target.dim() - mask.dim();
  std::vector<int64_t> shape = mask.sizes().vec();
  shape.insert(shape.end(), static_cast<size_t>(others), 1);
  return target.masked_fill_(mask.view(shape).logical_not(), kNoLabel);
}

}  // namespace

MicroBatch ReadPadded(const Dataset& dataset, const Order& order, const PaddedLoss& loss) {
  std::vector<PlainSample> samples;
  int64_t longest = 0, shortest = std::numeric_limits<int64_t>::max();
  bool is_long_target = true, is_alike = true;
  for (const int64_t index : order.indices) {
    const PlainSample& sample = samples.emplace_back(dataset.ReadPlain({index, order.epoch}));
    const TensorSpecs& target = sample.target.specs;
    longest = std::max(longest, LengthOf(sample.input));
    shortest = std::min(shortest, LengthOf(sample.input));
    is_alike = is_alike && target == samples[0].target.specs;
    is_long_target = is_long_target && target.size() == 1 && !target[0].shape.empty() &&
                     target[0].shape[0] == LengthOf(sample.input);
  }
  MicroBatch batch = {{Padded(samples, &PlainSample::input, longest, 0), MaskOf(samples, longest)},
                      {}};
  const PlainTensors& first = samples[0].target;
  if (is_long_target) {
    batch.target = {PaddedTarget(samples, longest, batch.input[1])};
    if (shortest < longest && loss.Counts(batch.target[0])) {
      throw ConfigError(Str("collate = \"pad\" fills targets up, which the loss ", loss.type,
                            " would count; a function of the script can leave them out"));
    }
    return batch;
  }
  if (!is_alike) {
    throw ConfigError(
        Str("collate = \"pad\": targets must be as long as their inputs, or all alike; ",
            dataset.description()));
  }
  std::vector<std::byte> bytes;
  for (const PlainSample& sample : samples) {
    const auto* begin = reinterpret_cast<const std::byte*>(sample.target.bytes.data());
    bytes.insert(bytes.end(), begin, begin + sample.target.bytes.size());
  }
  if (!first.specs.empty()) {
    batch.target = Stack(bytes, first.specs, samples.size(), /*pinned=*/false);
  }
  return batch;
}

MicroBatch ReadAhead::ReadNow(const Order& order, bool input, bool target, bool pinned) const {
  if (!pads_) return ReadMicroBatch(dataset_, order, input, target, pinned);
  MicroBatch batch = ReadPadded(dataset_, order, loss_);
  return pinned ? Pinned(std::move(batch)) : batch;
}

ReadAhead::ReadAhead(const Dataset& dataset, std::function<std::vector<Order>(int64_t run)> orders,
                     const ReadAheadOptions& options)
    : dataset_(dataset),
      orders_(std::move(orders)),
      depth_(options.workers > 0 ? options.depth : 0),
      pads_(options.pads),
      pins_(options.pins),
      loss_(options.loss),
      wants_input_(options.wants_both),
      wants_target_(options.wants_both) {
  for (int i = 0; i < options.workers; ++i) {
    workers_.emplace_back([this, account = options.memory_account] {
      SetMemoryAccount(account);
      Work();
    });
  }
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ReadAhead::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ItemPointer item;
    changed_.wait(lock, [&] {
      const auto found = std::ranges::find_if(
          items_, [](const ItemPointer& each) { return each->state == State::kWaits; });
      if (found != items_.end()) item = *found;
      return ends_ || item;
    });
    if (ends_) return;
    Read(*item, lock);
  }
}

/// Reads an item whose state is kWaits, without holding the lock.
void ReadAhead::Read(Item& item, std::unique_lock<std::mutex>& lock) {
  item.state = State::kRuns;
  lock.unlock();
  try {
    item.batch = ReadNow(item.order, item.input, item.target, pins_);
  } catch (...) {
    item.error = std::current_exception();
  }
  lock.lock();
  item.state = State::kDone;
  changed_.notify_all();
}

const std::vector<Order>& ReadAhead::Begin(int64_t run) {
  const std::lock_guard lock(mutex_);
  std::erase_if(items_, [run](const ItemPointer& item) { return item->run < run; });
  const bool goes_on =
      !items_.empty() && items_[0]->run == run && items_[0]->m == 0 && !items_[0]->asked;
  run_ = run;
  run_orders_ = orders_(run);
  if (!goes_on) {
    items_.clear();
    next_run_ = run;
    next_m_ = 0;
    next_orders_ = run_orders_;
  }
  Fill();
  return run_orders_;
}

/// Appends the item of the next micro-batch. A replica may have none in the last run of a pass; if
/// it has none in two runs in a row, it never has any, and the result is false.
bool ReadAhead::Append() {
  for (int tries = 0; next_m_ == static_cast<int>(next_orders_.size()); ++tries) {
    if (tries == 2) return false;
    next_orders_ = orders_(++next_run_);
    next_m_ = 0;
  }
  Order& order = next_orders_[static_cast<size_t>(next_m_)];
  items_.push_back(std::make_shared<Item>(
      Item{next_run_, next_m_, std::move(order), wants_input_ || pads_, wants_target_ || pads_}));
  ++next_m_;
  return true;
}

/// Appends items until `depth_` of them wait to be asked for. Does nothing before the first Take(),
/// which shows the halves that are wanted.
void ReadAhead::Fill() {
  if (!wants_input_ && !wants_target_) return;
  auto ahead = std::ranges::count_if(items_, [](const ItemPointer& item) { return !item->asked; });
  while (ahead < depth_ && Append()) ++ahead;
  changed_.notify_all();
}

/// Returns the item of micro-batch m, or null if it was dropped because all halves known to be
/// wanted were taken.
ReadAhead::ItemPointer ReadAhead::Find(int m) {
  for (;;) {
    for (const ItemPointer& item : items_) {
      if (item->run == run_ && item->m == m) return item;
    }
    if (next_run_ > run_ || next_m_ > m || !Append()) return nullptr;
  }
}

Tensors ReadAhead::ReadHalf(const Order& order, bool input, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  MicroBatch batch = ReadNow(order, input, !input, /*pinned=*/false);
  lock.lock();
  return std::move(input ? batch.input : batch.target);
}

Tensors ReadAhead::TakeOf(const ItemPointer& item, bool input, std::unique_lock<std::mutex>& lock) {
  item->asked = true;
  if (item->state == State::kWaits) {
    item->input = item->input || wants_input_;
    item->target = item->target || wants_target_;
    Fill();
    Read(*item, lock);
  } else {
    Fill();
    changed_.wait(lock, [&] { return item->state == State::kDone; });
  }
  if (item->error) std::rethrow_exception(item->error);
  bool& took = input ? item->took_input : item->took_target;
  STRATA_CHECK(!took) << "micro-batch " << item->m << " is read twice";
  took = true;
  Tensors half = (input ? item->input : item->target)
                     ? std::move(input ? item->batch.input : item->batch.target)
                     : ReadHalf(item->order, input, lock);
  const bool is_over = (item->took_input || !wants_input_) && (item->took_target || !wants_target_);
  if (is_over) std::erase(items_, item);
  return half;
}

Tensors ReadAhead::Take(int m, bool input) {
  std::unique_lock lock(mutex_);
  (input ? wants_input_ : wants_target_) = true;
  const ItemPointer item = Find(m);
  if (item) return TakeOf(item, input, lock);
  return ReadHalf(run_orders_.at(static_cast<size_t>(m)), input, lock);
}

}  // namespace strata
