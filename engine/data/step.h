// Step: the base of all steps over other data. Internal to engine/data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/text.h"
#include "engine/data/dataset.h"

namespace strata::data {

/// The number of steps and sources below a step, following the first one if there are several; with
/// `kind`, only those of this kind.
inline uint64_t CountBelow(const Value& options, std::string_view kind = "") {
  const Value& of = options["of"];
  const bool is_several = of.is_list() && !of.as_list().empty();
  const Value& first = is_several ? of.as_list()[0] : of;
  if (!first.is_map()) return 0;
  const bool counts = kind.empty() || first["source"] == Value(kind);
  return (counts ? 1 : 0) + CountBelow(first, kind);
}

/// The `purpose` (SampleSeed()) of a step that calls a function of the script. It counts the steps
/// of the same kind below, so equal steps of one chain draw different numbers, and other steps in
/// the chain do not change the numbers.
inline uint64_t ScriptedPurpose(uint64_t of_kind, std::string_view kind, const Value& options) {
  return of_kind + (CountBelow(options, kind) << 32);
}

/// Passes another dataset's samples through. Derived classes override what they change.
class Step : public Dataset {
 public:
  Step(std::shared_ptr<const Dataset> of, std::string how)
      : of_(std::move(of)), how_(std::move(how)) {}
  int64_t size() const override { return of_->size(); }
  TensorSpecs inputs() const override { return of_->inputs(); }
  TensorSpecs targets() const override { return of_->targets(); }
  int64_t classes() const override { return of_->classes(); }
  std::vector<std::string> class_names() const override { return of_->class_names(); }
  std::vector<std::string> names_before_map() const override { return of_->names_before_map(); }
  std::string encoding() const override { return of_->encoding(); }
  DocumentLimits documents() const override { return of_->documents(); }
  std::vector<std::string> notes() const override { return of_->notes(); }
  std::string name_of(int64_t index) const override { return of_->name_of(index); }
  bool has_targets() const override { return of_->has_targets(); }
  std::string description() const override {
    return Str(of_->description(), "; ", how_,
               how_.find(' ') == how_.npos ? Str(" (", FormatCount(size()), ")") : "");
  }

 protected:
  const Dataset& of() const { return *of_; }

 private:
  const std::shared_ptr<const Dataset> of_;
  const std::string how_;
};

}  // namespace strata::data
