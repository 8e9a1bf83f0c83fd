// The index of LibTorch's operators that scripts can call.
#include "lua/tensors/operators.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/text.h"
#include "lua/tensors/functional.h"

namespace strata::lua {
namespace {

/// Operators that scripts must not call: they open files, use memory that is not theirs, replace a
/// tensor's storage, or end the process if an argument is empty or out of range.
const std::set<std::string, std::less<>>& Forbidden() {
  static const std::set<std::string, std::less<>> names = {
      "from_file",     "record_stream",       "set_",
      "set_data",      "pin_memory",          "retain_grad",
      "align_tensors", "quantized_lstm_cell", "reflection_pad3d",
      "slow_conv3d",   "slow_conv3d_forward"};
  return names;
}

/// True for operators that PyTorch's public functions call with arguments that these have checked.
/// torch._foreach_* are exceptions: optimizers use them, and they check their arguments.
bool IsInternal(std::string_view name) {
  if (name.starts_with("_foreach_")) return false;
  if (name == "native_batch_norm") return true;  // reads missing statistics
  // These use labels and offsets as addresses without checking them.
  if (name == "ctc_loss" || name == "segment_reduce") return true;
  return name.starts_with("_") || name.find("_backward") != name.npos;
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
  Index index;
  for (const c10::OperatorName& full : c10::Dispatcher::singleton().getAllOpNames()) {
    if (full.getNamespace() != "aten") continue;
    const std::string name = full.name.substr(std::string_view("aten::").size());
    if (Forbidden().contains(name)) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(full);
    if (!handle || !TakesWhatLuaHas(handle->schema())) continue;
    Operator& op = index[name];
    op.name = name;
    op.overloads.push_back(*handle);
  }
  for (auto& [name, op] : index) {
    // The dispatcher's order is arbitrary. So sort by the number of arguments, then by the
    // overload's name.
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

/// The longest public name that begins an internal name, or is part of it as whole words:
/// "embedding_bag" for "_embedding_bag_dense_backward"; "" if there is none.
std::string PublicName(std::string_view internal) {
  const std::string within = Str("_", internal.substr(internal.find_first_not_of('_')), "_");
  std::string longest;
  for (const std::string& name : OperatorNames()) {
    const size_t at = within.find("_" + name + "_");
    const bool tells = at == 0 || (at != within.npos && name.find('_') != name.npos);
    if (tells && name.size() > longest.size()) longest = name;
  }
  return longest;
}

}  // namespace

const Operator* FindAnyOperator(std::string_view name) {
  const auto found = Operators().find(name);
  return found == Operators().end() ? nullptr : &found->second;
}

const Operator* FindOperator(std::string_view name) {
  return IsInternal(name) ? nullptr : FindAnyOperator(name);
}

std::string WhyNoOperator(std::string_view name) {
  const Functional* functional = FindFunctional(name, false);
  if (functional && !functional->no_function.empty()) {
    return Str("there is no F.", name, ": ", functional->no_function);
  }
  if (FindAnyOperator(name)) {
    const std::string instead = PublicName(name);
    return Str("\"", name, "\" is internal to LibTorch, which trusts its arguments",
               instead.empty() ? "" : "; use F." + instead,
               name.find("_backward") == name.npos ? "" : " and tensor:backward()");
  }
  return Str("there is no operator \"", name, "\"", DidYouMean(name, OperatorNames()));
}

const std::vector<std::string>& OperatorNames() {
  static const std::vector<std::string> names = [] {
    std::set<std::string> all;
    for (const auto& [name, op] : Operators()) {
      if (!IsInternal(name)) all.insert(name);
    }
    for (const Functional* functional : AllFunctionals()) {
      if (functional->no_function.empty()) all.insert(functional->name);
    }
    return std::vector<std::string>(all.begin(), all.end());
  }();
  return names;
}

}  // namespace strata::lua
