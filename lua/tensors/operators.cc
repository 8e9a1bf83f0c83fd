#include "lua/tensors/operators.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/text.h"

namespace strata::lua {
namespace {

/// Operators that open files, take memory that is not theirs, or change what a tensor stands on.
const std::set<std::string, std::less<>>& Forbidden() {
  static const std::set<std::string, std::less<>> names = {"from_file",
                                                           "record_stream",
                                                           "set_",
                                                           "set_data",
                                                           "_pin_memory",
                                                           "pin_memory",
                                                           "_to_cpu",
                                                           "_resize_output_",
                                                           "_backward",
                                                           "retain_grad",
                                                           "_use_cudnn_ctc_loss",
                                                           "_debug_has_internal_overlap",
                                                           "_has_same_storage_numel"};
  return names;
}

bool TakesWhatLuaHas(const c10::FunctionSchema& schema) {
  if (schema.overload_name().find("out") != std::string::npos) return false;
  if (schema.overload_name().find("imname") != std::string::npos) return false;
  if (schema.overload_name().starts_with("names")) return false;
  return std::none_of(schema.arguments().begin(), schema.arguments().end(),
                      [](const c10::Argument& argument) {
                        const std::string type = argument.type()->annotation_str();
                        return argument.is_out() || type.find("Storage") != std::string::npos ||
                               type.find("Dimname") != std::string::npos ||
                               type.find("Stream") != std::string::npos;
                      });
}

using Index = std::map<std::string, Operator, std::less<>>;

Index MakeIndex() {
  constexpr std::string_view kNamespace = "aten::";
  Index index;
  for (const c10::OperatorName& full : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!std::string_view(full.name).starts_with(kNamespace)) continue;
    const std::string name = full.name.substr(kNamespace.size());
    if (Forbidden().contains(name)) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(full);
    if (!handle || !TakesWhatLuaHas(handle->schema())) continue;
    Operator& op = index[name];
    op.name = name;
    op.overloads.push_back(*handle);
  }
  for (auto& [name, op] : index) {
    // The dispatcher's order is arbitrary: by number of arguments, then by the overload's name.
    std::sort(op.overloads.begin(), op.overloads.end(), [](const auto& a, const auto& b) {
      const size_t a_size = a.schema().arguments().size(), b_size = b.schema().arguments().size();
      if (a_size != b_size) return a_size < b_size;
      return a.schema().overload_name() < b.schema().overload_name();
    });
  }
  return index;
}

const Index& Operators() {
  static const Index index = MakeIndex();
  return index;
}

}  // namespace

const Operator* FindOperator(std::string_view name) {
  const auto found = Operators().find(name);
  return found == Operators().end() ? nullptr : &found->second;
}

std::string NearestOperator(std::string_view name) { return DidYouMean(name, OperatorNames()); }

const std::vector<std::string>& OperatorNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, op] : Operators()) all.push_back(name);
    return all;
  }();
  return names;
}

}  // namespace strata::lua
