// Writes mapped tensors. They are read and written one by one, so memory is needed for one tensor.
#include "engine/checkpoint/weights/write_weights.h"

#include <array>
#include <filesystem>
#include <functional>

#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/weights/published_config.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

/// Calls `write` with a temporary path beside `path`, and renames the result to `path` when it is
/// complete.
void WriteBeside(const std::string& path, const std::function<void(const std::string&)>& write) {
  const std::string beside = PlaceBeside(path);
  try {
    write(beside);
    MoveIntoPlace(beside, path);
  } catch (...) {
    std::error_code error;
    fs::remove_all(beside, error);
    throw;
  }
}

/// The same for a folder.
void WriteFolderBeside(const std::string& folder,
                       const std::function<void(const std::string&)>& write) {
  WriteBeside(folder, [&](const std::string& place) {
    std::error_code error;
    if (!fs::create_directory(place, error)) {
      throw WorldError(Str("cannot write ", place, ": ", error ? error.message() : "File exists"));
    }
    write(place);
    SyncFolder(place);
  });
}

void WriteJson(const std::string& path, const Value& value) {
  WriteSyncedFile(path, value.ToJson(2) + "\n");
}

/// Files that lie beside published weights: the model's sizes, its tokenizer and its chat template.
constexpr std::array kBesideWeights = {"config.json",        "generation_config.json",
                                       "tokenizer.json",     "tokenizer_config.json",
                                       "tokenizer.model",    "special_tokens_map.json",
                                       "added_tokens.json",  "vocab.json",
                                       "merges.txt",         "vocab.txt",
                                       "chat_template.jinja"};
constexpr int64_t kLargestBeside = int64_t{1} << 30;

/// Copies them from the folder `from` to `place`, and appends their names.
void CopyBeside(const std::string& from, const std::string& place,
                std::vector<std::string>& names) {
  for (const char* name : kBesideWeights) {
    const std::string path = Str(from, "/", name);
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    WriteSyncedFile(Str(place, "/", name), ReadSmallFile(path, kLargestBeside));
    names.emplace_back(name);
  }
}

using Tensors = std::vector<const MappedTensor*>;

Tensors PointersTo(const std::vector<MappedTensor>& tensors) {
  Tensors all;
  for (const MappedTensor& tensor : tensors) all.push_back(&tensor);
  return all;
}

int64_t BytesOf(const std::vector<MappedTensor>& tensors) {
  int64_t bytes = 0;
  for (const MappedTensor& tensor : tensors) bytes += tensor.spec.bytes();
  return bytes;
}

void WriteFile(const MappedWeights& weights, const Tensors& tensors, const std::string& path,
               ProgressLine& line) {
  std::vector<TensorDeclaration> declarations;
  std::map<std::string, const MappedTensor*> by_name;
  for (const MappedTensor* tensor : tensors) {
    declarations.push_back({tensor->name, StoredName(tensor->spec.dtype), tensor->spec.shape});
    by_name[tensor->name] = tensor;
  }
  SafetensorsWriter writer(path, declarations, {{"format", "pt"}});
  for (const StoredTensor& stored : writer.tensors()) {
    const MappedTensor& tensor = *by_name.at(stored.name);
    std::vector<char> bytes(static_cast<size_t>(stored.bytes));
    weights.Read(tensor, Slice::Whole(stored.shape), bytes.data());
    writer.Write(bytes.data(), stored.bytes);
    line.Advance(stored.bytes);
  }
  writer.Finish();
}

/// The tensors in their order, in groups of at most `shard_bytes`, or of a single larger tensor.
std::vector<Tensors> Shards(const std::vector<MappedTensor>& tensors, int64_t shard_bytes) {
  std::vector<Tensors> shards(1);
  int64_t bytes = 0;
  for (const MappedTensor& tensor : tensors) {
    const int64_t own = tensor.spec.bytes();
    if (!shards.back().empty() && bytes + own > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(&tensor);
    bytes += own;
  }
  return shards;
}

std::string ShardName(size_t shard, size_t shards) {
  return shards == 1 ? "model.safetensors"
                     : Printf("model-%05zu-of-%05zu.safetensors", shard + 1, shards);
}

/// The value in config.json of an entry of a map's config (built_in_maps.cc); null if it is not
/// written.
Value ConfigEntry(const Value& entry, const Value& job, const std::vector<MappedTensor>& tensors) {
  if (!entry.is_map()) return entry;
  if (entry.Has("layers") || entry.Has("only")) return {};
  if (entry.Has("argument")) return ArgumentOf(job["layers"], entry["argument"].as_string());
  int64_t count = 0;
  for (const MappedTensor& tensor : tensors) {
    if (entry.Has("count")) {
      count += NamePattern(entry["count"].as_string()).Match(tensor.name).has_value();
    } else if (tensor.name == entry["shape"].as_string()) {
      return tensor.spec.shape.at(static_cast<size_t>(entry["dim"].as_int()));
    }
  }
  return entry.Has("count") ? Value(count) : Value();
}

}  // namespace

void WriteWeights(const MappedWeights& weights, const std::vector<MappedTensor>& tensors,
                  const std::string& path) {
  ProgressLine line("writing weights", BytesOf(tensors));
  WriteBeside(
      path, [&](const std::string& file) { WriteFile(weights, PointersTo(tensors), file, line); });
}

void WriteWithConfig(const MappedWeights& weights, const std::vector<MappedTensor>& tensors,
                     const std::string& folder, const std::string& file, const std::string& json,
                     const Value& value) {
  ProgressLine line("writing weights", BytesOf(tensors));
  WriteFolderBeside(folder, [&](const std::string& place) {
    WriteFile(weights, PointersTo(tensors), Str(place, "/", file), line);
    WriteJson(Str(place, "/", json), value);
  });
}

std::vector<std::string> WritePublished(const MappedWeights& weights,
                                        const std::vector<MappedTensor>& tensors,
                                        const std::string& folder, int64_t shard_bytes) {
  const std::vector<Tensors> shards = Shards(tensors, shard_bytes);
  std::vector<std::string> names;
  ProgressLine line("writing weights", BytesOf(tensors));
  WriteFolderBeside(folder, [&](const std::string& place) {
    const auto write_text = [&](const std::string& name, const Value& value) {
      WriteJson(Str(place, "/", name), value);
      names.push_back(name);
    };
    Value places = Value::MakeMap();
    int64_t total = 0;
    for (size_t i = 0; i < shards.size(); ++i) {
      names.push_back(ShardName(i, shards.size()));
      WriteFile(weights, shards[i], Str(place, "/", names.back()), line);
      for (const MappedTensor* tensor : shards[i]) {
        places.Set(tensor->name, names.back());
        total += tensor->spec.bytes();
      }
    }
    if (shards.size() > 1) {
      Value index;
      index.Set("metadata", Value::MakeMap({{"total_size", total}})).Set("weight_map", places);
      write_text("model.safetensors.index.json", index);
    }
    if (weights.source().is_plain_file()) CopyBeside(weights.source().path(), place, names);
    const Value& job = weights.source().manifest().training.job;
    if (weights.map().config().is_map() && job.is_map()) {
      Value config = Value::MakeMap();
      for (const auto& [key, entry] : weights.map().config().as_map()) {
        const Value value = ConfigEntry(entry, job, tensors);
        if (!value.is_null()) config.Set(key, value);
      }
      if (!config.as_map().empty()) write_text("config.json", config);
    }
  });
  return names;
}

}  // namespace strata
