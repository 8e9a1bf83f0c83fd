// ReadAhead: reads the micro-batches of a dataset before they are needed, on threads of its own.
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

/// The samples of one micro-batch.
struct Order {
  std::vector<int64_t> indices;
  int64_t epoch = 0;
};

/// Reads a micro-batch, both halves or one of them. `pinned`: into memory that an accelerator can
/// copy from; there must be one.
MicroBatch ReadMicroBatch(const Dataset& dataset, const Order& order, bool input, bool target,
                          bool pinned);

/// What a job's loss makes of targets that were filled up.
struct PaddedLoss {
  std::string type = {};        ///< "" = a function of the script, which may leave them out
  bool ignores_labels = false;  ///< numbers it counts all the same

  bool Counts(const at::Tensor& target) const {
    return !type.empty() && !(ignores_labels && !target.is_floating_point());
  }
};

/// The same of samples whose dim 0 differs: they are filled up to the longest one. The input is
/// followed by a mask, bool (rows, longest), true where a sample has values. Targets as long as the
/// input are filled up with -100, which losses of labels ignore; inputs with 0. Other targets must
/// be alike. Throws ConfigError where they are not, and where targets have to be filled up for a
/// loss that counts them.
MicroBatch ReadPadded(const Dataset& dataset, const Order& order, const PaddedLoss& loss);

struct ReadAheadOptions {
  int workers = 0;         ///< 0: nothing is read ahead
  int depth = 2;           ///< micro-batches that are read, or about to be, and not asked for yet
  int memory_account = 0;  ///< of the tensors (engine/base/tensors/allocator.h)
  bool pads = false;       ///< ReadPadded()
  bool wants_both = true;  ///< both halves will be asked for; else which one shows when it is
  PaddedLoss loss = {};    ///< of ReadPadded()
  bool pins = false;       ///< what is read ahead lies in memory that an accelerator can copy from
};

/// One reader takes the halves; the threads read ahead in the order of the runs. A rank of the last
/// stage alone decodes no image. Which thread reads a micro-batch changes nothing in it.
class ReadAhead {
 public:
  /// `orders` gives the micro-batches of a run, and is called by the reader's thread only.
  ReadAhead(const Dataset& dataset, std::function<std::vector<Order>(int64_t run)> orders,
            const ReadAheadOptions& options);
  /// Waits until its threads have ended what they read.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The reader goes on with this run. What was read for others is dropped. Returns the run's
  /// micro-batches, until the next call.
  const std::vector<Order>& Begin(int64_t run);
  /// A half of micro-batch m of the run; each once. Throws what reading it threw.
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
  std::deque<ItemPointer> items_;  // in their order
  bool wants_input_, wants_target_;

  // Of the reader's thread alone.
  int64_t run_ = -1;  // that is read now
  std::vector<Order> run_orders_;
  int64_t next_run_ = 0;  // of the next item
  int next_m_ = 0;
  std::vector<Order> next_orders_;

  std::vector<std::thread> workers_;
};

}  // namespace strata
