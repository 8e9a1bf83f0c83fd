// Reports of safetensors files, saves and folders of saves.
#include "launcher/report/inspect_report.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/checkpoint/shards.h"
#include "engine/runtime/watch/flight.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

/// The report of a file of tensors. Names in the file have been checked and its metadata is quoted,
/// so no control characters reach the terminal.
std::string PlainFile(const std::string& path) {
  const auto file = TensorFile::Open(path);
  TextTable table({"tensor", "dtype", "shape", "bytes"});
  int64_t bytes = 0;
  for (const StoredTensor& tensor : file->tensors()) {
    bytes += tensor.bytes;
    table.Add({tensor.name, tensor.dtype, FormatShape(tensor.shape), FormatCount(tensor.bytes)});
  }
  std::string text = Str(path, ": ", file->format(), ", ",
                         Plural(static_cast<int64_t>(file->tensors().size()), "tensor"), ", ",
                         Bytes(bytes), ", without digests\n");
  if (const auto* safetensors = dynamic_cast<const SafetensorsFile*>(file.get())) {
    for (const auto& [key, value] : safetensors->metadata()) {
      text += Str("metadata ", QuotedName(key), " = ", QuotedName(value), "\n");
    }
  }
  return text + table.Render();
}

/// The report of published weights: of one file, or of each file that an index names.
std::string Published(const std::string& path) {
  std::string text;
  const Manifest manifest = ManifestOfFiles(path);
  for (const SavedFile& file : manifest.files) {
    text += PlainFile((fs::path(path).parent_path() / file.name).string());
  }
  return text;
}

/// The class names of the data that the save was trained on; "" if there are none.
std::string ClassesText(const Value& data) {
  const Value& classes = data["classes"];
  if (!classes.is_list()) return "";
  constexpr size_t kShown = 20;
  std::vector<std::string> names;
  for (const Value& name : classes.as_list()) {
    if (name.is_string() && names.size() < kShown) names.push_back(QuotedName(name.as_string()));
  }
  const size_t all = classes.as_list().size();
  return Str("classes: ", Join(names, ", "), all > names.size() ? Str(", ... (", all, ")") : "",
             "\n");
}

std::string Head(const Checkpoint& save) {
  const TrainingState& training = save.manifest().training;
  return Str(save.path(), ": step ", training.step, " of the job ", QuotedName(training.job_name),
             ", ", training.optimizer, ", seed ", training.seed, "\n", "a step: micro-batches ",
             training.micro_batches, ", micro-batch size ", training.micro_batch_size, "\n",
             ClassesText(training.data));
}

Inspection InspectSave(const std::string& path) {
  const auto save = Checkpoint::Open(path);
  Inspection inspection;
  TextTable table({"tensor", "kind", "dtype", "shape", "bytes", "slices", "digest"});
  std::string trouble;
  int64_t bytes = 0;
  for (const SavedTensor& tensor : save->manifest().tensors) {
    std::string state = "ok";
    try {
      save->Verify(tensor);
    } catch (const WorldError& error) {
      state = "DAMAGED";
      inspection.whole = false;
      trouble += Str(error.what(), "\n");
    }
    bytes += tensor.spec.bytes();
    table.Add({tensor.name, TensorKindName(tensor.kind), DTypeName(tensor.spec.dtype),
               FormatShape(tensor.spec.shape), FormatCount(tensor.spec.bytes()),
               std::to_string(tensor.slices.size()), state});
  }
  const auto count = static_cast<int64_t>(save->manifest().tensors.size());
  inspection.text = Str(Head(*save), table.Render(), Plural(count, "tensor"), ", ", Bytes(bytes),
                        inspection.whole ? ", whole\n" : ", DAMAGED\n", trouble);
  return inspection;
}

/// The report of a folder of saves: one line for each save, and the newest one in full.
Inspection InspectFolder(const std::string& path) {
  const std::vector<std::string> saves = ListSaves(path);
  Inspection inspection;
  std::string latest = "none";
  try {
    const std::optional<LatestSave> found = ReadLatest(path);
    if (found) latest = found->name;
    if (!found && saves.empty()) throw WorldError(NothingSavedIn(path));
    inspection = InspectSave(path);
  } catch (const WorldError& error) {
    if (saves.empty()) throw;
    inspection = {Str(error.what(), "\n"), false};
  }
  TextTable table({"save", "state"});
  for (const std::string& name : saves) {
    const std::string trouble = TroubleWithSave(Str(path, "/", name));
    table.Add({name, trouble.empty() ? "whole" : trouble});
  }
  inspection.text = Str(table.Render(), "latest: ", latest, "\n\n", inspection.text);
  return inspection;
}

/// The text of the file if it is a flight record; otherwise "".
std::string FlightFile(const std::string& path) {
  const InputFile file(path);
  const auto read = [&](int64_t count) {
    std::string text(static_cast<size_t>(count), '\0');
    file.ReadAt(0, text.data(), count);
    return text;
  };
  const std::string begin = read(std::min<int64_t>(256, file.size()));
  return IsFlightRecord(begin) ? read(file.size()) : "";
}

}  // namespace

Inspection Inspect(const std::string& given, std::optional<int> events) {
  std::string path = given;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  if (const std::string text = is_folder ? "" : FlightFile(path); !text.empty()) {
    return {FlightText(Value::FromJson(text), events.value_or(12)), true};
  }
  if (events) throw ConfigError(Str("--events: ", path, " is no flight record"));
  if (!is_folder) {
    return {path.ends_with(".index.json") ? Published(path) : PlainFile(path), true};
  }
  if (IsSave(path)) return InspectSave(path);
  const auto published = PublishedIn(path);
  if (published && ListSaves(path).empty()) return {Published(*published), true};
  return InspectFolder(path);
}

}  // namespace strata::launcher
