// Steps that compute samples from samples: map, by a function of the script, and cache.
#include <cstring>
#include <mutex>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/data/step.h"
#include "engine/data/steps.h"
#include "engine/job/table_encoding.h"

namespace strata::data {

namespace {

void Copy(const std::string& bytes, std::byte* to) {
  if (to) std::memcpy(to, bytes.data(), bytes.size());
}

class Map : public Step {
 public:
  Map(const Value& options, std::shared_ptr<const Dataset> of, const DatasetContext& context)
      : Step(std::move(of), "map"),
        function_(options["f"].as_function()),
        seed_(static_cast<uint64_t>(context.seed)),
        purpose_(ScriptedPurpose(2, "map", options)),
        script_(context.script) {
    if (!script_) throw ConfigError("map needs its script");
    const PlainSample first = Call(0);
    inputs_ = first.input.specs;
    targets_ = first.target.specs;
    if (inputs_.empty()) Refuse(0, "must return a tensor, or a list of tensors");
  }
  TensorSpecs inputs() const override { return inputs_; }
  TensorSpecs targets() const override { return targets_; }
  // The function may return any labels, and other documents.
  DocumentLimits documents() const override { return {}; }
  int64_t classes() const override { return 0; }
  std::vector<std::string> class_names() const override { return {}; }
  /// The function may choose columns, and scale numbers that are not scaled, so these are no longer
  /// known.
  std::string encoding() const override {
    const std::string all = Step::encoding();
    if (all.empty()) return "";
    TableEncoding encoding = TableEncoding::FromText(all);
    encoding.names = "";
    if (encoding.scales == TableEncoding::kNone) encoding.scales = "";
    return encoding.ToText();
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const PlainSample made = Call(sample);
    if (made.input.specs != inputs_ || made.target.specs != targets_) {
      Refuse(sample.index, "returned other shapes or dtypes than for sample 0");
    }
    Copy(made.input.bytes, input);
    Copy(made.target.bytes, target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    PlainSample made = Call(sample);
    if (!AreAlikeButForDim0(made.input.specs, inputs_) ||
        !AreAlikeButForDim0(made.target.specs, targets_)) {
      Refuse(sample.index, "returned other dims or dtypes than for sample 0");
    }
    return made;
  }

 private:
  PlainSample Call(Sample sample) const {
    return script_->Map(function_, of().ReadPlain(sample), SampleSeed(seed_, sample, purpose_));
  }
  [[noreturn]] void Refuse(int64_t index, const char* what) const {
    throw ConfigError(
        Str(Place(function_.where), "the function of map ", what, " (sample ", index, ")"));
  }

  const FunctionRef function_;
  const uint64_t seed_, purpose_;
  DataScript* const script_;
  TensorSpecs inputs_, targets_;
};

/// Keeps samples in memory. Random steps below the cache draw as in epoch 0, once for all epochs.
class Cache : public Step {
 public:
  explicit Cache(std::shared_ptr<const Dataset> of)
      : Step(std::move(of), "cache"), samples_(static_cast<size_t>(size())) {}
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const PlainSample& kept = Kept(sample.index);
    if (kept.input.specs != inputs() || kept.target.specs != targets()) {
      return of().Read({sample.index, 0}, input, target);  // throws: the shapes differ
    }
    Copy(kept.input.bytes, input);
    Copy(kept.target.bytes, target);
  }
  PlainSample ReadPlain(Sample sample) const override { return Kept(sample.index); }

 private:
  const PlainSample& Kept(int64_t index) const {
    Slot& slot = samples_[static_cast<size_t>(index)];
    std::call_once(slot.once, [&] { slot.sample = of().ReadPlain({index, 0}); });
    return slot.sample;
  }

  struct Slot {
    std::once_flag once;
    PlainSample sample;
  };
  mutable std::vector<Slot> samples_;
};

}  // namespace

std::unique_ptr<Dataset> OpenMap(const Value& options, StepInputs of,
                                 const DatasetContext& context) {
  return std::make_unique<Map>(options, of[0], context);
}

std::unique_ptr<Dataset> OpenCache(const Value&, StepInputs of, const DatasetContext&) {
  return std::make_unique<Cache>(of[0]);
}

}  // namespace strata::data
