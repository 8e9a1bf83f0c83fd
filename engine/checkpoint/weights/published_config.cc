// Compares config.json with the job's layers, entry by entry. An entry that config.json does not
// have is skipped: it has a default of the library, which is not known here.
#include "engine/checkpoint/weights/published_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/strict_json.h"

namespace strata {
namespace {

constexpr int64_t kLargest = int64_t{16} << 20;
constexpr size_t kDeepest = 20;
const Value kNone = false;  // the value of "only" that means: none

Value Find(const Value& layers, const std::string& type, const std::string& name) {
  if (!layers.is_list()) return {};
  for (const Value& layer : layers.as_list()) {
    if (layer["type"] == Value(type) && layer["args"].is_map()) return layer["args"][name];
    const Value inside = Find(layer["layers"], type, name);
    if (!inside.is_null()) return inside;
  }
  return {};
}

/// The value of a key in config.json. transformers 5 writes the keys for rotary positions into an
/// entry of their own.
Value Said(const Value& config, const std::string& key) {
  const Value& rope = config["rope_parameters"];
  if (config.Has(key) || !rope.is_map()) return config[key];
  return key == "rope_scaling" ? rope : rope[key];
}

/// The value that the job's layers have; none if they do not determine it.
std::optional<Value> Own(const Value& entry, const Value& layers) {
  if (!entry.is_map()) return std::nullopt;
  if (entry.Has("only")) return entry["only"];
  for (const char* form : {"argument", "layers"}) {
    if (!entry[form].is_string()) continue;
    const Value own = ArgumentOf(layers, entry[form].as_string());
    if (own.is_number() || own.is_string()) return own;
  }
  return std::nullopt;
}

/// True if an entry is to be compared; another entry of config.json may turn it off.
bool Counts(const Value& entry, const Value& config) {
  return !entry["if"].is_string() || config[entry["if"].as_string()] != Value(false);
}

bool Agree(const Value& said, const Value& own) {
  if (said.is_null()) return true;
  if (own == kNone) {
    const Value plain = "default";
    const bool is_plain = said.is_map() && (said["rope_type"] == plain || said["type"] == plain);
    return is_plain || said == kNone;
  }
  if (!said.is_number() || !own.is_number()) return said == own;
  // A number may have been written as a float32.
  const double a = said.as_double(), b = own.as_double();
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

std::string TextOf(const Value& value) {
  if (value == kNone) return "none";
  return value.is_number() ? Printf("%.9g", value.as_double()) : value.ToJson();
}

}  // namespace

Value ArgumentOf(const Value& layers, const std::string& argument) {
  const std::vector<std::string> parts = Split(argument, '.');
  return Find(layers, parts.front(), parts.back());
}

std::vector<std::string> ConfigNotes(const MappedWeights& weights,
                                     const std::vector<LayerSpec>& layers) {
  const std::string path = weights.source().path() + "/config.json";
  const Value& map = weights.map().config();
  std::error_code error;
  if (!map.is_map() || !weights.source().is_plain_file()) return {};
  if (!std::filesystem::is_regular_file(path, error)) return {};
  Value config;
  try {
    config = ParseStrictJson(ReadSmallFile(path, kLargest), kDeepest, path);
  } catch (const WorldError& trouble) {
    return {Str(trouble.what(), "; the job's layers are not compared with it")};
  }
  if (!config.is_map()) return {};
  Value::List list;
  for (const LayerSpec& layer : layers) list.push_back(layer.ToValue());
  const Value all = std::move(list);
  std::vector<std::string> notes;
  for (const auto& [key, entry] : map.as_map()) {
    const std::optional<Value> own = Own(entry, all);
    if (!own || !Counts(entry, config)) continue;
    const Value said = Said(config, key);
    if (Agree(said, *own)) continue;
    notes.push_back(
        Str(path, " says ", key, " ", TextOf(said), ", the job's layers have ", TextOf(*own)));
  }
  return notes;
}

}  // namespace strata
