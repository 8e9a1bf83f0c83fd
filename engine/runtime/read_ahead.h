// ReadAhead: reads the micro-batches of a dataset before they are needed, on its own threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/runtime/engine_script.h"

namespace strata {

/// The indices of the samples of one micro-batch.
struct Order {
  std::vector<int64_t> indices;
  int64_t epoch = 0;
};

/// Reads the input, the target or both of a micro-batch. `pinned`: into page-locked memory, from
/// which an accelerator can copy directly; this requires an accelerator.
MicroBatch ReadMicroBatch(const Dataset& dataset, const Order& order, bool input, bool target,
                          bool pinned);

/// Whether the job's loss counts padded elements of a target.
struct PaddedLoss {
  /// The type of the loss; "" for a function of the script, which may leave padding out.
  std::string type = {};
  bool ignores_labels = false;  ///< integer labels of padding; other targets count

  bool Counts(const at::Tensor& target) const {
    return !type.empty() && !(ignores_labels && !target.is_floating_point());
  }
};

/// Reads a micro-batch whose samples differ in dim 0 and pads them to the longest one. The input is
/// followed by a mask, bool (rows, longest), which is true where a sample has values. Inputs are
/// padded with 0. Targets as long as their inputs are padded with -100, which losses of labels
/// ignore; other targets must have equal shapes. Throws ConfigError if they have not, and if
/// targets would be padded for a loss that counts the padding.
MicroBatch ReadPadded(const Dataset& dataset, const Order& order, const PaddedLoss& loss);

struct ReadAheadOptions {
  int workers = 0;  ///< number of threads; 0 means that nothing is read ahead
  /// Number of micro-batches that are read, or will be next, and were not asked for yet.
  int depth = 2;
  int memory_account = 0;  ///< account of the tensors (engine/base/tensors/allocator.h)
  bool pads = false;       ///< use ReadPadded()
  /// Both halves will be asked for. If false, the first calls of Take() show which half is needed.
  bool wants_both = true;
  PaddedLoss loss = {};  ///< passed to ReadPadded()
  bool pins = false;     ///< what is read ahead is in pinned memory
};

/// One reader takes inputs and targets; the worker threads read ahead in the order of the runs. A
/// rank that has only the last stage asks for targets only, so it decodes no images. The result
/// does not depend on which thread reads a micro-batch.
class ReadAhead {
 public:
  /// `orders` returns the micro-batches of a run. It is called in the reader's thread only.
  ReadAhead(const Dataset& dataset, std::function<std::vector<Order>(int64_t run)> orders,
            const ReadAheadOptions& options);
  /// Waits until the threads have finished what they are reading.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Continues with run `run` and drops what was read for other runs. Returns the micro-batches of
  /// the run; the reference is valid until the next call.
  const std::vector<Order>& Begin(int64_t run);
  /// Returns the input or the target of micro-batch m of the run. Each may be taken once. Rethrows
  /// what reading it threw.
  Tensors Take(int m, bool input);

 private:
  enum class State { kWaits, kRuns, kDone };
  struct Item {
    int64_t run;
    int m;
    Order order;
    bool input, target;  // the halves that are read
    State state = State::kWaits;
    bool asked = false, took_input = false, took_target = false;
    MicroBatch batch = {};
    std::exception_ptr error = nullptr;
  };
  using ItemPointer = std::shared_ptr<Item>;

  void Work();
  void Read(Item& item, std::unique_lock<std::mutex>& lock);
  void Fill();
  bool Append();
  ItemPointer Find(int m);
  MicroBatch ReadNow(const Order& order, bool input, bool target, bool pinned) const;
  Tensors TakeOf(const ItemPointer& item, bool input, std::unique_lock<std::mutex>& lock);
  Tensors ReadHalf(const Order& order, bool input, std::unique_lock<std::mutex>& lock);

  const Dataset& dataset_;
  const std::function<std::vector<Order>(int64_t run)> orders_;
  const int depth_;
  const bool pads_, pins_;
  const PaddedLoss loss_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::deque<ItemPointer> items_;  // in the order in which they will be used
  bool wants_input_, wants_target_;

  // Used by the reader's thread only.
  int64_t run_ = -1;  // the current run
  std::vector<Order> run_orders_;
  int64_t next_run_ = 0;  // the run of the next item
  int next_m_ = 0;
  std::vector<Order> next_orders_;

  std::vector<std::thread> workers_;
};

}  // namespace strata
