// An index says only which tensor is in which file; shapes and dtypes are read from the files
// themselves.
#include "engine/checkpoint/shards.h"

#include <filesystem>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/checkpoint/files/tensor_name.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexEnd = ".index.json";
constexpr int64_t kLargestIndex = int64_t{32} << 20;
constexpr size_t kDeepest = 20;
// Characters that would end a path, or lead out of the folder.
constexpr std::string_view kNoName("/\0", 2);

void Add(const StoredTensor& stored, const std::string& file, Manifest& manifest) {
  const std::optional<DType> dtype = FromStoredName(stored.dtype);
  if (!dtype) {
    manifest.foreign.push_back({stored.name, stored.dtype, stored.shape});
    return;
  }
  manifest.tensors.push_back({stored.name,
                              TensorKind::kParameter,
                              {stored.shape, *dtype},
                              {{Slice::Whole(stored.shape), file, ""}}});
}

/// Marks the tensors that `inspect --merge` writes beside a parameter, such as "3.weight#exp_avg",
/// as moments.
void TellMoments(Manifest& manifest) {
  std::set<std::string_view> names;
  for (const SavedTensor& tensor : manifest.tensors) names.insert(tensor.name);
  for (SavedTensor& tensor : manifest.tensors) {
    const std::string_view name = tensor.name;
    const size_t sign = name.find('#');
    const bool is_beside = sign != name.npos && names.contains(name.substr(0, sign));
    if (is_beside) tensor.kind = TensorKind::kMoment;
  }
}

Manifest TensorsOfFiles(const std::string& path) {
  Manifest manifest;
  if (!path.ends_with(kIndexEnd)) {
    const auto file = TensorFile::Open(path);
    const std::string name = fs::path(path).filename().string();
    manifest.files.push_back({name, file->file_bytes(), file->header_digest()});
    for (const StoredTensor& stored : file->tensors()) Add(stored, name, manifest);
    return manifest;
  }
  for (const auto& [name, tensors] : ParseIndex(ReadSmallFile(path, kLargestIndex), path)) {
    const auto file = TensorFile::Open((fs::path(path).parent_path() / name).string());
    manifest.files.push_back({name, file->file_bytes(), file->header_digest()});
    for (const std::string& tensor : tensors) {
      const StoredTensor* stored = file->Find(tensor);
      if (!stored) {
        throw WorldError(Str(file->path(), " has no tensor ", QuotedName(tensor), ", which ", path,
                             " says is in it"));
      }
      Add(*stored, name, manifest);
    }
  }
  return manifest;
}

}  // namespace

std::map<std::string, std::vector<std::string>> ParseIndex(std::string_view text,
                                                           const std::string& path) {
  const Value value = ParseStrictJson(text, kDeepest, path);
  const JsonObject map(JsonObject(value, path).Object("weight_map"), path + ": weight_map");
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [tensor, file] : map.entries()) {
    const std::string& name = map.Text(tensor);
    const bool is_plain =
        !name.empty() && name[0] != '.' && name.find_first_of(kNoName) == std::string::npos;
    if (!is_plain) map.Refuse(tensor, "the name of a file beside the index");
    files[name].push_back(tensor);
  }
  return files;
}

std::optional<std::string> PublishedIn(const std::string& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"}) {
    std::error_code error;
    const std::string path = Str(folder, "/", name);
    if (fs::is_regular_file(path, error)) return path;
  }
  return std::nullopt;
}

Manifest ManifestOfFiles(const std::string& path) {
  Manifest manifest = TensorsOfFiles(path);
  TellMoments(manifest);
  return manifest;
}

}  // namespace strata
