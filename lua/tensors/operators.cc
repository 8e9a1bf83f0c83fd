#include "lua/tensors/operators.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/text.h"
#include "lua/tensors/composed.h"

namespace strata::lua {
namespace {

/// Operators that open files, take memory that is not theirs, change what a tensor stands on, or
/// trust what they are given and end the process when it is empty or out of range.
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
                                                           "_has_same_storage_numel",
                                                           "_stack",
                                                           "_weight_norm",
                                                           "_weight_norm_interface",
                                                           "align_tensors",
                                                           "_convert_indices_from_csr_to_coo",
                                                           "_convert_indices_from_coo_to_csr",
                                                           "_dyn_quant_matmul_4bit",
                                                           "_reshape_alias_copy",
                                                           "_weight_norm_interface_backward",
                                                           "fractional_max_pool2d_backward",
                                                           "fractional_max_pool3d_backward",
                                                           "quantized_lstm_cell",
                                                           "reflection_pad1d_backward",
                                                           "reflection_pad2d_backward",
                                                           "reflection_pad3d",
                                                           "slow_conv3d",
                                                           "slow_conv3d_forward"};
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
  static const torch::Library composed = ComposedOperators();
  Index index;
  for (const c10::OperatorName& full : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto space = full.getNamespace();
    if (space != "aten" && space != kComposedNamespace) continue;
    const std::string name = full.name.substr(space->size() + 2);  // without "aten::"
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
