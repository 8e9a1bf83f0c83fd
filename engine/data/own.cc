// The data of strata.dataset{...}: samples that a function of the script returns.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/data/data_script.h"
#include "engine/data/sources.h"
#include "engine/job/data_source.h"
#include "engine/layers/layer_types.h"

namespace strata::data {
namespace {

std::string TextOf(const TensorSpecs& specs) { return ToString(specs, ", ", "nothing"); }

/// A hint for a mix of int64 and float32: F.tensor{0, 1} of one sample is int64, F.tensor{0.5, 1}
/// of another is float32.
std::string NumbersHint(const TensorSpecs& got, const TensorSpecs& expected) {
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const DType a = got[i].dtype, b = expected[i].dtype;
    const bool has_whole = a == DType::kInt64 || b == DType::kInt64;
    if (has_whole && (a == DType::kFloat32 || b == DType::kFloat32)) return kWholeNumbers;
  }
  return "";
}

class Own : public Dataset {
 public:
  Own(const DataSpec& spec, const DatasetContext& context)
      : size_(spec.options["length"].as_int()),
        is_batch_(!spec.options["batch"].is_null()),
        is_ragged_(spec.options["ragged"].as_bool()),
        function_(spec.options[is_batch_ ? "batch" : "get"].as_function()),
        seed_(static_cast<uint64_t>(context.seed)),
        script_(context.script) {
    if (!script_) throw ConfigError("strata.dataset needs its script");
    const int64_t first = 0;
    const PlainSample sample = Call({&first, 1}, 0);
    inputs_ = OfOne(sample.input.specs);
    targets_ = OfOne(sample.target.specs);
    if (inputs_.empty()) Refuse(first, "must give a tensor, or a list of tensors, got nothing");
    if (is_ragged_ && is_batch_) Refuse(first, "gives batches, which cannot be ragged");
  }
  int64_t size() const override { return size_; }
  TensorSpecs inputs() const override { return inputs_; }
  TensorSpecs targets() const override { return targets_; }
  int64_t classes() const override { return 0; }
  std::string description() const override {
    return Str("dataset: ", FormatCount(size_), " samples of ", TextOf(inputs_), " -> ",
               TextOf(targets_), " (", function_.where, ")");
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    ReadBatch({&sample.index, 1}, sample.epoch, input, target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    if (!is_ragged_) return Dataset::ReadPlain(sample);
    PlainSample got = Call({&sample.index, 1}, sample.epoch);
    CheckAlike(got.input.specs, inputs_, sample.index, "input");
    CheckAlike(got.target.specs, targets_, sample.index, "target");
    return got;
  }
  void ReadBatch(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                 std::byte* target) const override {
    if (!is_batch_ && indices.size() != 1) {
      return Dataset::ReadBatch(indices, epoch, input, target);
    }
    const PlainSample got = Call(indices, epoch);
    Check(got.input.specs, inputs_, indices, "input");
    Check(got.target.specs, targets_, indices, "target");
    if (input) Interleave(got.input, inputs_, indices.size(), input);
    if (target) Interleave(got.target, targets_, indices.size(), target);
  }

 private:
  PlainSample Call(std::span<const int64_t> indices, int64_t epoch) const {
    const uint64_t seed = SampleSeed(seed_, {indices[0], epoch}, 1);
    return is_batch_ ? script_->GetBatch(function_, indices, seed)
                     : script_->Get(function_, indices[0], seed);
  }

  /// Removes the dim that counts the samples, if the function returns batches.
  TensorSpecs OfOne(TensorSpecs specs) const {
    if (!is_batch_) return specs;
    for (TensorSpec& spec : specs) {
      if (spec.shape.empty()) Refuse(0, "must give tensors whose dim 0 counts the samples");
      spec.shape.erase(spec.shape.begin());
    }
    return specs;
  }

  void Check(TensorSpecs got, TensorSpecs expected, std::span<const int64_t> indices,
             const char* half) const {
    if (is_batch_) expected = WithRows(std::move(expected), std::ssize(indices));
    if (got == expected) return;
    Refuse(indices[0], Str("gave the ", half, " ", TextOf(got), ", expected ", TextOf(expected),
                           " as for sample 0", NumbersHint(got, expected),
                           is_ragged_ ? "; collate=\"pad\" makes batches of such samples" : ""));
  }

  /// Checks that a sample is like the first one except for dim 0.
  void CheckAlike(const TensorSpecs& got, const TensorSpecs& expected, int64_t index,
                  const char* half) const {
    if (AreAlikeButForDim0(got, expected)) return;
    Refuse(index, Str("gave the ", half, " ", TextOf(got), ", expected ", TextOf(expected),
                      " as for sample 0, but for dim 0", NumbersHint(got, expected)));
  }

  /// Rearranges the bytes from "each tensor of all samples" to "all tensors of each sample".
  static void Interleave(const PlainTensors& got, const TensorSpecs& of_one, size_t count,
                         std::byte* to) {
    const auto stride = static_cast<size_t>(BytesOf(of_one));
    const char* from = got.bytes.data();
    size_t offset = 0;
    for (const TensorSpec& spec : of_one) {
      const auto bytes = static_cast<size_t>(spec.bytes());
      for (size_t i = 0; i < count; ++i, from += bytes) {
        std::memcpy(to + i * stride + offset, from, bytes);
      }
      offset += bytes;
    }
  }

  [[noreturn]] void Refuse(int64_t index, const std::string& what) const {
    throw ConfigError(Str(Place(function_.where), "the function of strata.dataset ", what,
                          " (sample ", index, ")"));
  }

  const int64_t size_;
  const bool is_batch_, is_ragged_;
  const FunctionRef function_;
  const uint64_t seed_;
  DataScript* const script_;
  TensorSpecs inputs_, targets_;
};

}  // namespace

std::unique_ptr<Dataset> OpenOwn(const DataSpec& spec, const DatasetContext& context) {
  return std::make_unique<Own>(spec, context);
}

}  // namespace strata::data
