// Feeds from three kinds of sources: datasets (DatasetFeed), functions of the script (FunctionFeed)
// and given tensors (GivenFeed). Each source gives, for run r, a feed of this replica's
// micro-batches of the run. A Sampler divides a dataset among runs, replicas and micro-batches, and
// a ReadAhead reads them; micro-batch m of a function is call number (r * replicas + replica) *
// micro_batches + m; given micro-batches are divided into contiguous blocks, one per replica.
#include "engine/runtime/batch_source.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/tensors/copy_on_write.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/data/open_dataset.h"
#include "engine/data/sampler.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/targets.h"
#include "engine/runtime/read_ahead.h"

namespace strata {
namespace {

/// Reads inputs when they are asked for, or all at once in ReadInputs() to know their shapes.
class ReadFeed : public Feed {
 public:
  std::vector<TensorSpecs> ReadInputs() override {
    std::vector<TensorSpecs> specs;
    for (int m = 0; m < own_; ++m) {
      read_.push_back(ReadInput(m));
      specs.push_back(SpecsOf(read_.back()));
    }
    return specs;
  }
  Tensors Input(int m) override {
    return read_.empty() ? ReadInput(m) : std::move(read_.at(static_cast<size_t>(m)));
  }

 protected:
  /// `own`: the number of micro-batches of this replica.
  ReadFeed(const DataOrigin& origin, int64_t most, int64_t own,
           std::vector<TensorSpecs> inputs = {})
      : Feed(origin, most, std::move(inputs)), own_(static_cast<int>(own)) {}
  virtual Tensors ReadInput(int m) = 0;

 private:
  const int own_;
  std::vector<Tensors> read_;
};

// ---- Datasets ----

/// The specs of the inputs of a run's micro-batches.
std::vector<TensorSpecs> InputsOf(const Dataset& dataset, const std::vector<Order>& orders) {
  std::vector<TensorSpecs> inputs;
  for (const Order& order : orders) {
    inputs.push_back(WithRows(dataset.inputs(), std::ssize(order.indices)));
  }
  return inputs;
}

class DatasetFeed : public ReadFeed {
 public:
  DatasetFeed(const DataOrigin& origin, int64_t most, int64_t own, std::vector<TensorSpecs> inputs,
              const Dataset& dataset, ReadAhead& reader)
      : ReadFeed(origin, most, own, std::move(inputs)), dataset_(dataset), reader_(reader) {}
  Tensors Target(int m) override {
    if (dataset_.has_targets()) return reader_.Take(m, false);
    throw ConfigError(Str(dataset_.description(), ": there are no targets, so nothing can be ",
                          "trained or evaluated with it, only predicted"));
  }

 private:
  Tensors ReadInput(int m) override { return reader_.Take(m, true); }

  const Dataset& dataset_;
  ReadAhead& reader_;
};

/// The option `shuffle`, or its default: samples for training are shuffled, others are not.
bool IsShuffled(const Value& options, bool is_training) {
  const Value& shuffle = FindOption(options, "shuffle");
  if (!shuffle.is_null()) return shuffle.as_bool();
  const Value& split = FindOption(options, "split");
  return is_training && split != Value("test");
}

/// The option `window`; 0 = all samples.
int64_t WindowOf(const Value& options) {
  const Value& window = FindOption(options, "window");
  return window.is_null() ? 0 : window.as_int();
}

/// How the loss treats padding: losses of classes ignore padded labels, and functions of the script
/// may.
PaddedLoss OfPadded(const LayerSpec& loss) {
  return {loss.scripted ? "" : loss.type, IsOfClasses(loss)};
}

class DatasetSource : public BatchSource {
 public:
  DatasetSource(std::unique_ptr<Dataset> dataset, const DataSpec& spec, const BatchOptions& options,
                bool shuffle, const Job& job)
      : BatchSource({spec.kind, spec.where}),
        dataset_(std::move(dataset)),
        pads_(spec.options["collate"] == Value("pad")),
        replica_(options.replica),
        sampler_({.samples = dataset_->size(),
                  .micro_batch_size = options.batch.micro_batch_size,
                  .micro_batches = options.batch.micro_batches,
                  .replicas = options.replicas,
                  .shuffle = shuffle,
                  .seed = job.seed,
                  .window = WindowOf(spec.options)}),
        reader_(*dataset_, [this](int64_t run) { return OrdersOf(run); },
                {.workers = WorkersFor(spec, options.spare_cores),
                 .depth = PrefetchFor(spec, WorkersFor(spec, options.spare_cores)),
                 .memory_account = options.memory_account,
                 .pads = pads_,
                 .wants_both = options.wants_both,
                 .loss = OfPadded(job.loss),
                 .pins = options.accelerated}) {}

  int64_t runs_per_pass() const override { return sampler_.steps_per_epoch(); }

  std::unique_ptr<Feed> Next(int64_t run) override {
    const std::vector<Order>& orders = reader_.Begin(run);
    const int64_t most = sampler_.micro_batches(run);
    // If samples are padded, the shapes are known only once the samples are read.
    std::vector<TensorSpecs> inputs;
    if (!pads_) inputs = InputsOf(*dataset_, orders);
    auto feed = std::make_unique<DatasetFeed>(origin_, most, std::ssize(orders), std::move(inputs),
                                              *dataset_, reader_);
    feed->set_even(sampler_.fills_all(run));
    return feed;
  }

 private:
  /// The micro-batches of this replica in run `run`, without empty ones.
  std::vector<Order> OrdersOf(int64_t run) {
    std::vector<Order> orders;
    for (int64_t m = 0; m < sampler_.micro_batches(run); ++m) {
      std::vector<int64_t> indices = sampler_.Indices(run, replica_, m);
      if (indices.empty()) continue;
      orders.push_back({std::move(indices), run / sampler_.steps_per_epoch()});
    }
    return orders;
  }

  const std::unique_ptr<Dataset> dataset_;
  const bool pads_;
  const int replica_;
  Sampler sampler_;
  ReadAhead reader_;  // the last member, so that its threads end first
};

// ---- Functions of the script ----

/// Calls the function once per micro-batch. If both halves are wanted, the second one is kept.
class FunctionFeed : public ReadFeed {
 public:
  FunctionFeed(const DataOrigin& origin, const FunctionRef& function, int64_t first,
               const BatchOptions& options, int64_t seed, EngineScript& script)
      : ReadFeed(origin, options.batch.micro_batches, options.batch.micro_batches),
        function_(function),
        first_(first),
        wants_both_(options.wants_both),
        seed_(seed),
        script_(script) {}

  Tensors Target(int m) override { return Half(m, &MicroBatch::target, &MicroBatch::input); }

 private:
  using Member = Tensors MicroBatch::*;

  Tensors ReadInput(int m) override { return Half(m, &MicroBatch::input, &MicroBatch::target); }

  /// Returns the wanted half of micro-batch m. The other half is kept until it is asked for, if it
  /// will be.
  Tensors Half(int m, Member wanted, Member other) {
    const auto waiting = halves_.find(m);
    if (waiting != halves_.end() && waiting->second.first == wanted) {
      Tensors half = std::move(waiting->second.second);
      halves_.erase(waiting);
      return half;
    }
    MicroBatch micro_batch = Call(m);
    if (wants_both_) halves_[m] = {other, std::move(micro_batch.*other)};
    return std::move(micro_batch.*wanted);
  }

  MicroBatch Call(int m) {
    MicroBatch micro_batch = script_.CallData(function_, first_ + m, seed_);
    if (micro_batch.rows() > 0) return micro_batch;
    throw ConfigError(Str(Place(function_.where), "the data function gave micro-batch ", first_ + m,
                          " without rows: ", ToString(SpecsOf(micro_batch.input))));
  }

  const FunctionRef& function_;
  const int64_t first_;
  const bool wants_both_;
  const int64_t seed_;
  EngineScript& script_;
  std::map<int, std::pair<Member, Tensors>> halves_;
};

class FunctionSource : public BatchSource {
 public:
  FunctionSource(const DataSpec& spec, const BatchOptions& options, int64_t seed,
                 EngineScript& script)
      : BatchSource({spec.where, spec.where}),
        function_(spec.function),
        options_(options),
        seed_(seed),
        script_(script) {}

  int64_t runs_per_pass() const override { return 0; }

  std::unique_ptr<Feed> Next(int64_t run) override {
    const int64_t first =
        (run * options_.replicas + options_.replica) * options_.batch.micro_batches;
    return std::make_unique<FunctionFeed>(origin_, function_, first, options_, seed_, script_);
  }

 private:
  const FunctionRef& function_;
  const BatchOptions options_;
  const int64_t seed_;
  EngineScript& script_;
};

// ---- Given by the caller ----

const DataOrigin kGiven = {"the given micro-batches", ""};

std::vector<TensorSpecs> InputsOf(const MicroBatches& batches) {
  std::vector<TensorSpecs> inputs;
  for (const MicroBatch& micro_batch : batches.list) {
    if (micro_batch.rows() == 0) {
      throw ConfigError(Str("micro-batch ", inputs.size(), " of the given ones has no rows"));
    }
    inputs.push_back(SpecsOf(micro_batch.input));
  }
  if (inputs.empty()) throw ConfigError("expected at least one micro-batch, got none");
  return inputs;
}

class GivenFeed : public Feed {
 public:
  /// `inputs`: the specs of all micro-batches of all replicas.
  GivenFeed(const MicroBatches& batches, const std::vector<TensorSpecs>& inputs, int replica,
            int64_t share)
      : Feed(kGiven, share, Own(inputs, replica * share, share)),
        batches_(batches),
        first_(replica * share) {}
  // Ranks that are threads of one process may be given the same tensors, so nobody may write to
  // them.
  Tensors Input(int m) override { return CopyOnWrite(batches_.list[first_ + m].input); }
  Tensors Target(int m) override { return CopyOnWrite(batches_.list[first_ + m].target); }

 private:
  static std::vector<TensorSpecs> Own(const std::vector<TensorSpecs>& inputs, int64_t first,
                                      int64_t share) {
    const auto size = static_cast<int64_t>(inputs.size());
    return {inputs.begin() + std::min(first, size), inputs.begin() + std::min(first + share, size)};
  }

  const MicroBatches& batches_;
  const int64_t first_;
};

}  // namespace

int WorkersFor(const DataSpec& spec, int spare_cores) {
  const Value& workers = spec.options["workers"];
  const bool is_scripted = AnySource(  // reading a sample calls a function of the script
      spec, [](std::string_view kind) { return kind == "dataset" || kind == "map"; });
  if (workers.is_null()) {
    constexpr int kMost = 8;
    const bool in_files = spec.options.Has("facts");
    return is_scripted ? 0 : std::max<int>(in_files, std::min(kMost, spare_cores));
  }
  if (is_scripted && workers.as_int() > 0) {
    throw ConfigError(Str(Place(spec.where), "data.workers: functions of the script run in the ",
                          "rank's own thread, got ", workers.as_int(), " workers for them"));
  }
  return static_cast<int>(workers.as_int());
}

int PrefetchFor(const DataSpec& spec, int workers) {
  constexpr int kFewest = 2;
  const Value& prefetch = spec.options["prefetch"];
  return prefetch.is_null() ? std::max(kFewest, workers + 1) : static_cast<int>(prefetch.as_int());
}

std::unique_ptr<BatchSource> OpenSource(const Job& job, const DataSpec& spec,
                                        const BatchOptions& options, EngineScript& script) {
  if (spec.kind == "function") {
    return std::make_unique<FunctionSource>(spec, options, job.seed, script);
  }
  const DatasetContext context = {std::filesystem::path(job.script).parent_path().string(),
                                  job.input, job.seed, &script};
  return std::make_unique<DatasetSource>(OpenDataset(spec, context), spec, options,
                                         IsShuffled(spec.options, &spec == &job.train_data), job);
}

std::unique_ptr<BatchSource> OpenRankSource(const RankContext& rank, const DataSpec& spec,
                                            const Batch& batch) {
  if (spec.kind.empty()) return nullptr;
  const bool has_first = rank.plan.stages.front().rank == rank.pipe_rank;
  const bool has_last = rank.plan.stages.back().rank == rank.pipe_rank;
  return OpenSource(rank.job, spec,
                    {.batch = batch,
                     .replica = rank.replica,
                     .replicas = rank.replicas,
                     .wants_both = has_first && has_last,
                     .memory_account = rank.memory_account(),
                     .spare_cores = rank.device.is_cpu() ? 0 : at::get_num_threads() - 1,
                     .accelerated = !rank.device.is_cpu()},
                    rank.script);
}

std::unique_ptr<Feed> FeedOf(const MicroBatches& batches, int replica, int replicas) {
  const std::vector<TensorSpecs> inputs = InputsOf(batches);
  const int64_t share = (static_cast<int64_t>(inputs.size()) + replicas - 1) / replicas;
  auto feed = std::make_unique<GivenFeed>(batches, inputs, replica, share);
  feed->set_even(std::ssize(inputs) == share * replicas);
  return feed;
}

}  // namespace strata
