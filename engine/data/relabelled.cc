// A step that renumbers classes as other data numbers them.
#include <cstring>
#include <vector>

#include "engine/data/step.h"
#include "engine/data/steps.h"

namespace strata::data {
namespace {

class WithNumbers : public Step {
 public:
  WithNumbers(std::shared_ptr<const Dataset> of, std::vector<std::string> names,
              std::vector<int64_t> numbers)
      : Step(of, ""), names_(std::move(names)), numbers_(std::move(numbers)) {}
  int64_t classes() const override { return static_cast<int64_t>(names_.size()); }
  std::vector<std::string> class_names() const override { return names_; }
  std::vector<std::string> names_before_map() const override { return names_; }
  std::string description() const override { return of().description(); }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    of().Read(sample, input, target);
    if (target) Renumber(target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    PlainSample plain = of().ReadPlain(sample);
    Renumber(reinterpret_cast<std::byte*>(plain.target.bytes.data()));
    return plain;
  }

 private:
  void Renumber(std::byte* target) const {
    int64_t label = 0;
    std::memcpy(&label, target, sizeof(label));
    label = numbers_.at(static_cast<size_t>(label));
    std::memcpy(target, &label, sizeof(label));
  }

  const std::vector<std::string> names_;
  const std::vector<int64_t> numbers_;  // the new number of each class
};

}  // namespace

bool HasOtherClasses(const Dataset& data, const std::vector<std::string>& names) {
  const std::vector<std::string> own = data.class_names();
  return !own.empty() && !names.empty() && own != names;
}

std::unique_ptr<Dataset> WithClasses(std::shared_ptr<const Dataset> of, const NamedClasses& ours,
                                     const std::string& whose) {
  const NamedClasses theirs = {whose, of->class_names(), of->targets()};
  return std::make_unique<WithNumbers>(std::move(of), ours.names, NumbersOfClasses(theirs, ours));
}

}  // namespace strata::data
