// Compares jobs in their canonical form, parsed from JSON, where a function is {function=,
// digest=}.
#include "engine/runtime/saves/saved_job.h"

#include <algorithm>
#include <vector>

#include "engine/base/text.h"

namespace strata {
namespace {

bool IsFunction(const Value& value) {
  return value.is_map() && value.as_map().size() == 2 && value.Has("function") &&
         value.Has("digest");
}

bool IsSame(const Value& a, const Value& b) {
  return a == b || (IsFunction(a) && IsFunction(b) && a["digest"] == b["digest"]);
}

std::string Short(const Value& value) {
  constexpr size_t kMost = 60;
  const std::string text = value.ToLua();
  return text.size() <= kMost ? text : Str(text.substr(0, kMost), "...");
}

/// The key as users write it in a script: options of a type stand beside the type, and data sources
/// are in `data`.
std::string KeyBelow(const std::string& path, const std::string& name) {
  if (name == "options") return path;
  if (path.empty())
    return name == "train_data" ? "data.train" : name == "test_data" ? "data.test" : name;
  return Str(path, ".", name);
}

void AddDifferences(const std::string& path, const Value& a, const Value& b,
                    std::vector<std::string>& lines) {
  if (IsSame(a, b)) return;
  const auto below = [&](const std::string& name, const Value& inner_a, const Value& inner_b) {
    AddDifferences(KeyBelow(path, name), inner_a, inner_b, lines);
  };
  if (a.is_list() && b.is_list()) {
    const Value::List &of_a = a.as_list(), &of_b = b.as_list();
    const Value none;
    for (size_t i = 0; i < std::max(of_a.size(), of_b.size()); ++i) {
      below(Str(i), i < of_a.size() ? of_a[i] : none, i < of_b.size() ? of_b[i] : none);
    }
  } else if (a.is_map() && b.is_map()) {
    for (const auto& [name, value] : a.as_map()) below(name, value, b[name]);
    for (const auto& [name, value] : b.as_map()) {
      if (!a.Has(name)) below(name, Value(), value);
    }
  } else {
    lines.push_back(Str(path, ": ", Short(a), " against ", Short(b)));
  }
}

std::string Shown(std::vector<std::string> lines) {
  constexpr size_t kShown = 3;
  const size_t all = lines.size();
  lines.resize(std::min(all, kShown));
  return Join(lines, "; ") + (all > kShown ? Str("; and ", all - kShown, " more") : "");
}

/// The members of layers that determine what they compute: not their names, initial values or
/// frozen parameters.
Value Computing(const Value& layers) {
  Value::List kept;
  for (const Value& layer : layers.as_list()) {
    Value own = Value::MakeMap();
    for (const char* name : {"type", "args", "forward", "tied_forward", "low_rank", "packed"}) {
      if (layer.Has(name)) own.Set(name, layer[name]);
    }
    // For a layer in Lua, `init` makes what its forward computes with.
    if (layer.Has("forward")) own.Set("init", layer["init"]);
    if (layer.Has("layers")) own.Set("layers", Computing(layer["layers"]));
    kept.push_back(std::move(own));
  }
  return kept;
}

}  // namespace

std::string DifferencesOf(const Value& saved, const Value& now) {
  std::vector<std::string> lines;
  AddDifferences("", saved, now, lines);
  return Shown(std::move(lines));
}

std::string DifferencesOfOutputs(const Value& saved, const Value& now) {
  std::vector<std::string> lines;
  if (saved.Has("layers")) {
    AddDifferences("layers", Computing(saved["layers"]), Computing(now["layers"]), lines);
  }
  if (saved.Has("ema")) AddDifferences("ema", saved["ema"], now["ema"], lines);
  for (const char* name : {"name", "params"}) {
    const Value& before = saved["precision"][name];
    if (before.is_null()) continue;
    AddDifferences(Str("precision.", name), before, now["precision"][name], lines);
  }
  return Shown(std::move(lines));
}

}  // namespace strata
