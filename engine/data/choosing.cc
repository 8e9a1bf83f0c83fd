// Steps that choose samples of other data: part, take, concat, shuffled, filter.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/data_script.h"
#include "engine/data/sampler.h"
#include "engine/data/step.h"
#include "engine/data/steps.h"
#include "engine/job/table_encoding.h"

namespace strata::data {
namespace {

/// Some samples of another dataset, in a given order.
class Chosen : public Step {
 public:
  Chosen(std::shared_ptr<const Dataset> of, std::vector<int64_t> indices, std::string how)
      : Step(std::move(of), std::move(how)), indices_(std::move(indices)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  std::string name_of(int64_t index) const override {
    return of().name_of(indices_[static_cast<size_t>(index)]);
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    of().Read({indices_[static_cast<size_t>(sample.index)], sample.epoch}, input, target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    return of().ReadPlain({indices_[static_cast<size_t>(sample.index)], sample.epoch});
  }
  void ReadBatch(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                 std::byte* target) const override {
    std::vector<int64_t> below;
    for (const int64_t index : indices) below.push_back(indices_[static_cast<size_t>(index)]);
    of().ReadBatch(below, epoch, input, target);
  }

 private:
  const std::vector<int64_t> indices_;
};

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> indices(static_cast<size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

class Concat : public Step {
 public:
  explicit Concat(StepInputs parts)
      : Step(parts[0], "concat"), parts_(std::move(parts)), class_names_(of().class_names()) {
    for (const auto& part : parts_) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->size());
      classes_ = std::max(classes_, part->classes());
      has_targets_ = has_targets_ && part->has_targets();
      if (part->class_names() != class_names_) class_names_.clear();
      if (part->inputs() == of().inputs() && part->targets() == of().targets()) continue;
      throw ConfigError(Str("concat: expected samples as those of ", of().description(), "; got ",
                            part->description()));
    }
  }
  int64_t size() const override { return ends_.back(); }
  int64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  /// The encoding of the first table, since RequireAlike() has checked that the others agree with
  /// it. `fills` is true if it is true for any part.
  std::string encoding() const override {
    std::optional<TableEncoding> encoding;
    for (const auto& part : parts_) {
      const std::string text = part->encoding();
      if (text.empty()) continue;
      const TableEncoding own = TableEncoding::FromText(text);
      if (!encoding) encoding = own;
      encoding->fills = encoding->fills || own.fills;
    }
    return encoding ? encoding->ToText() : "";
  }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    for (const auto& part : parts_) {
      for (const std::string& note : part->notes()) notes.push_back(note);
    }
    return notes;
  }
  std::string name_of(int64_t index) const override {
    const auto [part, own] = PartOf(index);
    return part->name_of(own.index);
  }
  bool has_targets() const override { return has_targets_; }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const auto [part, own] = PartOf(sample);
    part->Read(own, input, target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    const auto [part, own] = PartOf(sample);
    return part->ReadPlain(own);
  }

 private:
  std::pair<const Dataset*, Sample> PartOf(Sample sample) const {
    const auto end = std::ranges::upper_bound(ends_, sample.index);
    const int64_t begin = end == ends_.begin() ? 0 : *(end - 1);
    return {parts_[static_cast<size_t>(end - ends_.begin())].get(),
            {sample.index - begin, sample.epoch}};
  }

  const StepInputs parts_;
  std::vector<int64_t> ends_;
  int64_t classes_ = 0;
  std::vector<std::string> class_names_;  // empty if the parts differ
  bool has_targets_ = true;
};

}  // namespace

std::unique_ptr<Dataset> OpenPart(const Value& options, StepInputs of, const DatasetContext&) {
  const int64_t size = of[0]->size();
  const int64_t begin = options["begin"].as_int(), end = options["end"].as_int();
  if (begin >= end || end > size) {
    throw ConfigError(Str("part: expected samples from 0 to ", size, ", got ", begin, " to ", end));
  }
  std::vector<int64_t> all = Range(0, size);
  if (!options["seed"].is_null()) {
    ShuffleIndices(all, static_cast<uint64_t>(options["seed"].as_int()));
  }
  return std::make_unique<Chosen>(of[0],
                                  std::vector<int64_t>(all.begin() + begin, all.begin() + end),
                                  Str("samples ", begin, " to ", end - 1));
}

std::unique_ptr<Dataset> OpenTake(const Value& options, StepInputs of, const DatasetContext&) {
  const int64_t count = std::min(options["count"].as_int(), of[0]->size());
  return std::make_unique<Chosen>(of[0], Range(0, count), Str("the first ", count));
}

std::unique_ptr<Dataset> OpenConcat(const Value&, StepInputs of, const DatasetContext&) {
  // The first part that is a table, and the first that has class names; the parts behind it must
  // agree with it.
  NamedFacts table, named;
  NamedClasses classes;
  for (size_t i = 0; i < of.size(); ++i) {
    const std::string whose = Str("part ", i + 1, " of concat");
    const DataFacts facts = of[i]->facts();
    RequireAlike(table, {whose, facts});
    RequireAlike(named, {whose, facts});
    if (table.facts.encoding.empty()) {
      table.whose = whose;
      table.facts.encoding = facts.encoding;
    }
    if (named.facts.names_before_map.empty()) {
      named = {whose, facts};
      named.facts.encoding = "";
    }
    if (classes.names.empty()) classes = {Str("part ", i + 1), facts.class_names, facts.targets};
    if (HasOtherClasses(*of[i], classes.names)) of[i] = WithClasses(of[i], classes, whose);
  }
  return std::make_unique<Concat>(std::move(of));
}

std::unique_ptr<Dataset> OpenShuffled(const Value& options, StepInputs of, const DatasetContext&) {
  std::vector<int64_t> all = Range(0, of[0]->size());
  ShuffleIndices(all, static_cast<uint64_t>(options["seed"].as_int()));
  return std::make_unique<Chosen>(of[0], std::move(all), "shuffled");
}

std::unique_ptr<Dataset> OpenFilter(const Value& options, StepInputs of,
                                    const DatasetContext& context) {
  const FunctionRef& function = options["f"].as_function();
  if (!context.script) throw ConfigError("filter needs its script");
  // The seed is not the job's. split{...} makes parts by number, and the facts that a job is
  // planned with are determined where the job's seed is not known; both must choose the same
  // samples.
  constexpr uint64_t kSeed = 0;
  const uint64_t purpose = ScriptedPurpose(3, "filter", options);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < of[0]->size(); ++i) {
    const bool keeps =
        context.script->Keeps(function, of[0]->ReadPlain(i), SampleSeed(kSeed, i, purpose));
    if (keeps) kept.push_back(i);
  }
  if (kept.empty()) {
    throw ConfigError(Str(function.where, ": the filter keeps none of the ",
                          FormatCount(of[0]->size()), " samples"));
  }
  const std::string how = Str("filtered: ", FormatCount(static_cast<int64_t>(kept.size())));
  return std::make_unique<Chosen>(of[0], std::move(kept), how);
}

}  // namespace strata::data
