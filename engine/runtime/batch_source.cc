// Feeds from datasets, from functions of the script and from given tensors.
#include "engine/runtime/batch_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/groups/specs.h"
#include "engine/data/dataset.h"
#include "engine/data/sampler.h"
#include "engine/spec/fields/fields.h"
#include "engine/spec/layers/layers.h"
#include "engine/tensors/copy_on_write.h"

namespace strata {
namespace {

// Datasets

/// Which samples make which micro-batch of one run.
using Samples = std::vector<std::vector<int64_t>>;

TensorSpecs WithRows(TensorSpec sample, size_t rows) {
  sample.shape.insert(sample.shape.begin(), static_cast<int64_t>(rows));
  return {std::move(sample)};
}

std::vector<TensorSpecs> InputsOf(const Dataset& dataset, const Samples& samples) {
  std::vector<TensorSpecs> inputs;
  for (const auto& micro_batch : samples) {
    inputs.push_back(WithRows(dataset.input(), micro_batch.size()));
  }
  return inputs;
}

class DatasetFeed : public Feed {
 public:
  DatasetFeed(const std::string& source, const Dataset& dataset, Samples samples, int64_t most)
      : Feed(source, most, InputsOf(dataset, samples)),
        dataset_(dataset),
        samples_(std::move(samples)) {}

  Tensors Input(int m) override {
    return Read(m, dataset_.input(), [this](int64_t sample, std::byte* place) {
      dataset_.Read(sample, place, nullptr);
    });
  }
  Tensors Target(int m) override {
    return Read(m, dataset_.target(), [this](int64_t sample, std::byte* place) {
      dataset_.Read(sample, nullptr, place);
    });
  }

 private:
  /// One tensor with the samples of micro-batch m behind each other.
  template <class ReadSample>
  Tensors Read(int m, const TensorSpec& sample_spec, const ReadSample& read) const {
    Tensors tensors = EmptyTensors(WithRows(sample_spec, samples_[m].size()), at::kCPU);
    auto* place = static_cast<std::byte*>(tensors[0].mutable_data_ptr());
    for (const int64_t sample : samples_[m]) {
      read(sample, place);
      place += sample_spec.bytes();
    }
    return tensors;
  }

  const Dataset& dataset_;
  const Samples samples_;
};

/// Left out, samples for training are shuffled, others are not.
bool IsShuffled(const Value& options) {
  const Value& shuffle = options["shuffle"];
  return shuffle.is_null() ? options["split"] == Value("train") : shuffle.as_bool();
}

class DatasetSource : public BatchSource {
 public:
  DatasetSource(const DataSpec& spec, std::unique_ptr<Dataset> dataset, const BatchOptions& options,
                int64_t seed)
      : BatchSource(spec.kind),
        dataset_(std::move(dataset)),
        replica_(options.replica),
        sampler_({.samples = dataset_->size(),
                  .micro_batch_size = options.batch.micro_batch_size,
                  .micro_batches = options.batch.micro_batches,
                  .replicas = options.replicas,
                  .shuffle = IsShuffled(spec.options),
                  .seed = seed}) {}

  int64_t runs_per_pass() const override { return sampler_.steps_per_epoch(); }

  std::unique_ptr<Feed> Next(int64_t run) override {
    Samples samples;
    const int64_t most = sampler_.micro_batches(run);
    for (int64_t m = 0; m < most; ++m) {
      auto micro_batch = sampler_.Indices(run, replica_, m);
      if (!micro_batch.empty()) samples.push_back(std::move(micro_batch));
    }
    return std::make_unique<DatasetFeed>(name_, *dataset_, std::move(samples), most);
  }

 private:
  const std::unique_ptr<Dataset> dataset_;
  const int replica_;
  Sampler sampler_;
};

// Lua functions

/// Calls the function for each micro-batch; once for both halves, where they are wanted.
class FunctionFeed : public Feed {
 public:
  FunctionFeed(const std::string& source, const FunctionRef& function, int64_t first,
               const BatchOptions& options, int64_t seed, EngineScript& script)
      : Feed(source, options.batch.micro_batches),
        function_(function),
        first_(first),
        micro_batches_(static_cast<int>(options.batch.micro_batches)),
        wants_both_(options.wants_both),
        seed_(seed),
        script_(script) {}

  std::vector<TensorSpecs> ReadInputs() override {
    std::vector<TensorSpecs> specs;
    for (int m = 0; m < micro_batches_; ++m) {
      read_.push_back(Half(m, &MicroBatch::input, &MicroBatch::target));
      specs.push_back(SpecsOf(read_.back()));
    }
    return specs;
  }
  Tensors Input(int m) override { return std::move(read_.at(m)); }
  Tensors Target(int m) override { return Half(m, &MicroBatch::target, &MicroBatch::input); }

 private:
  using Member = Tensors MicroBatch::*;

  /// The other half waits for its turn, if there is one.
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
  const int micro_batches_;
  const bool wants_both_;
  const int64_t seed_;
  EngineScript& script_;
  std::map<int, std::pair<Member, Tensors>> halves_;
  std::vector<Tensors> read_;
};

class FunctionSource : public BatchSource {
 public:
  FunctionSource(const DataSpec& spec, const BatchOptions& options, int64_t seed,
                 EngineScript& script)
      : BatchSource(spec.function.where),
        function_(spec.function),
        options_(options),
        seed_(seed),
        script_(script) {}

  int64_t runs_per_pass() const override { return 0; }

  std::unique_ptr<Feed> Next(int64_t run) override {
    const int64_t first =
        (run * options_.replicas + options_.replica) * options_.batch.micro_batches;
    return std::make_unique<FunctionFeed>(name_, function_, first, options_, seed_, script_);
  }

 private:
  const FunctionRef& function_;
  const BatchOptions options_;
  const int64_t seed_;
  EngineScript& script_;
};

// The caller's

const std::string kGiven = "the given micro-batches";

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
  /// `inputs`: of all of them.
  GivenFeed(const MicroBatches& batches, const std::vector<TensorSpecs>& inputs, int replica,
            int64_t share)
      : Feed(kGiven, share, Own(inputs, replica * share, share)),
        batches_(batches),
        first_(replica * share) {}
  // Ranks that are threads may be given the same tensors.
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

std::unique_ptr<BatchSource> OpenSource(const Job& job, const DataSpec& spec,
                                        const BatchOptions& options, EngineScript& script) {
  if (spec.kind == "function") {
    return std::make_unique<FunctionSource>(spec, options, job.seed, script);
  }
  const DatasetContext context = {std::filesystem::path(job.script).parent_path().string(),
                                  job.input};
  return std::make_unique<DatasetSource>(spec, OpenDataset(spec, context), options, job.seed);
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
                     .wants_both = has_first && has_last},
                    rank.script);
}

std::unique_ptr<Feed> FeedOf(const MicroBatches& batches, int replica, int replicas) {
  const std::vector<TensorSpecs> inputs = InputsOf(batches);
  const int64_t share = (static_cast<int64_t>(inputs.size()) + replicas - 1) / replicas;
  return std::make_unique<GivenFeed>(batches, inputs, replica, share);
}

}  // namespace strata
