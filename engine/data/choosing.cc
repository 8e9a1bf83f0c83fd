// Steps that choose samples of other data: part, take, concat, shuffled, filter.
#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/data_script.h"
#include "engine/data/files/data_progress.h"
#include "engine/data/sample_order.h"
#include "engine/data/step.h"
#include "engine/data/steps.h"
#include "engine/job/table_encoding.h"

namespace strata::data {
namespace {

/// Some samples of another dataset, in a given order.
class Chosen : public Step {
 public:
  /// `index_of` maps the index of each of `size` samples to its index in `of`.
  Chosen(std::shared_ptr<const Dataset> of, int64_t size, std::function<int64_t(int64_t)> index_of,
         std::string how)
      : Step(std::move(of), std::move(how)), size_(size), index_of_(std::move(index_of)) {}
  int64_t size() const override { return size_; }
  std::string name_of(int64_t index) const override { return of().name_of(index_of_(index)); }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    of().Read({index_of_(sample.index), sample.epoch}, input, target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    return of().ReadPlain({index_of_(sample.index), sample.epoch});
  }
  void ReadBatch(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                 std::byte* target) const override {
    std::vector<int64_t> below;
    for (const int64_t index : indices) below.push_back(index_of_(index));
    of().ReadBatch(below, epoch, input, target);
  }

 private:
  const int64_t size_;
  const std::function<int64_t(int64_t)> index_of_;
};

std::unique_ptr<Dataset> Ordered(std::shared_ptr<const Dataset> of, SampleOrder order,
                                 std::string how) {
  const int64_t size = order.size();
  return std::make_unique<Chosen>(
      std::move(of), size, [order = std::move(order)](int64_t index) { return order[index]; },
      std::move(how));
}

/// The samples with these indices.
std::unique_ptr<Dataset> Listed(std::shared_ptr<const Dataset> of, std::vector<int64_t> indices,
                                std::string how) {
  const int64_t size = std::ssize(indices);
  return std::make_unique<Chosen>(
      std::move(of), size,
      [indices = std::move(indices)](int64_t index) { return indices[static_cast<size_t>(index)]; },
      std::move(how));
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
  DocumentLimits documents() const override {
    DocumentLimits limits = of().documents();
    for (const auto& part : parts_) limits = Both(limits, part->documents());
    return limits;
  }
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

std::unique_ptr<Dataset> OpenPart(const Value& options, StepInputs of,
                                  const DatasetContext& context) {
  const int64_t size = of[0]->size();
  const int64_t begin = options["begin"].as_int(), end = options["end"].as_int();
  // Below the step pack running text has other samples than by itself, its texts.
  if (const Value& counted = options["counted"];
      context.documents && counted.is_int() && counted != Value(size)) {
    throw ConfigError(Str("split counted ", counted.as_int(), " samples, but pack gets ", size,
                          " of ", of[0]->description(),
                          "; split what is packed: data:pack{...}:split{...}"));
  }
  if (begin >= end || end > size) {
    throw ConfigError(Str("part: expected samples from 0 to ", size, ", got ", begin, " to ", end));
  }
  const Value& seed = options["seed"];
  const SampleOrder all = seed.is_null()
                              ? SampleOrder(size)
                              : SampleOrder::Shuffled(size, static_cast<uint64_t>(seed.as_int()));
  const SampleOrder part = all.Part(begin, end);
  const std::string how = Str("samples ", begin, " to ", end - 1);
  if (seed.is_null() || FindOption(options, "window").is_null()) return Ordered(of[0], part, how);
  // Windows shuffle samples that are read together, so a part keeps them together.
  std::vector<int64_t> indices;
  for (int64_t place = 0; place < part.size(); ++place) indices.push_back(part[place]);
  std::ranges::sort(indices);
  return Listed(of[0], std::move(indices), how);
}

std::unique_ptr<Dataset> OpenTake(const Value& options, StepInputs of, const DatasetContext&) {
  const int64_t count = std::min(options["count"].as_int(), of[0]->size());
  return Ordered(of[0], SampleOrder(count), Str("the first ", count));
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
  const auto seed = static_cast<uint64_t>(options["seed"].as_int());
  return Ordered(of[0], SampleOrder::Shuffled(of[0]->size(), seed), "shuffled");
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
  DataProgress progress("filtering " + of[0]->description(), of[0]->size());
  for (int64_t i = 0; i < of[0]->size(); ++i) {
    progress.At(i);
    const bool keeps =
        context.script->Keeps(function, of[0]->ReadPlain(i), SampleSeed(kSeed, i, purpose));
    if (keeps) kept.push_back(i);
  }
  if (kept.empty()) {
    throw ConfigError(Str(function.where, ": the filter keeps none of the ",
                          FormatCount(of[0]->size()), " samples"));
  }
  const std::string how = Str("filtered: ", FormatCount(std::ssize(kept)));
  return Listed(of[0], std::move(kept), how);
}

}  // namespace strata::data
