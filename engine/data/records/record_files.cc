#include "engine/data/records/record_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/data/files/folder.h"
#include "engine/data/records/json_lines.h"
#include "engine/data/sources.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

class JsonLines : public RecordFile {
 public:
  explicit JsonLines(std::string path) : path_(std::move(path)) {}
  void ForEach(const Wanted& wanted, const RecordBody& body) const override {
    if (!wanted.bytes.empty()) {
      throw ConfigError(Str(path_, ": JSON lines have no images; Parquet, Arrow and tars do"));
    }
    ForEachJsonLine(path_, [&](const Value& object, const std::string& where) {
      if (!wanted.any) {
        for (const std::string& field : wanted.fields) EntryOf(object, field, where);
      }
      body({object, where});
    });
  }
  std::string ReadBytes(const BytesPlace&, const std::string&) const override { return ""; }

 private:
  const std::string path_;
};

struct Format {
  const char* source;
  const char* ending;
  std::unique_ptr<RecordFile> (*open)(const std::string& path, std::shared_ptr<BlockCache> cache);
};

constexpr Format kFormats[] = {
    {"jsonl", ".jsonl",
     [](const std::string& path, std::shared_ptr<BlockCache>) -> std::unique_ptr<RecordFile> {
       return std::make_unique<JsonLines>(path);
     }},
    {"parquet", ".parquet",
     [](const std::string& path, std::shared_ptr<BlockCache> cache) {
       return OpenArrowRecords(path, true, std::move(cache));
     }},
    {"arrow", ".arrow",
     [](const std::string& path, std::shared_ptr<BlockCache> cache) {
       return OpenArrowRecords(path, false, std::move(cache));
     }},
    {"webdataset", ".tar",
     [](const std::string& path, std::shared_ptr<BlockCache>) { return OpenTarRecords(path); }},
};

const Format* FormatOf(const std::string& path) {
  const auto found = std::ranges::find_if(
      kFormats, [&](const Format& format) { return path.ends_with(format.ending); });
  return found == std::end(kFormats) ? nullptr : found;
}

/// The files of a folder whose names match, sorted, without hidden ones. Links that lead nowhere
/// are among them, so that opening them is an error.
std::vector<std::string> FilesIn(const fs::path& folder, const std::string& pattern) {
  std::vector<std::string> paths;
  for (const fs::path& file : ListFolder(folder).files) {
    const std::string name = file.filename().string();
    if (::fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0) paths.push_back(file.string());
  }
  return paths;
}

/// The files of one format in a folder. Of a data set that Hugging Face's save_to_disk() wrote
/// these are the ones that its state.json lists: files that map() has cached lie beside them.
std::vector<std::string> FilesOf(const fs::path& folder, const Format& format) {
  const std::vector<std::string> found = FilesIn(folder, Str("*", format.ending));
  const fs::path state = folder / "state.json";
  std::error_code unknown;
  if (found.empty() || format.source != std::string_view("arrow") || !fs::exists(state, unknown)) {
    return found;
  }
  constexpr int64_t kMostBytes = 64 << 20;
  constexpr size_t kMostLevels = 100;
  const Value json =
      ParseStrictJson(ReadSmallFile(state.string(), kMostBytes), kMostLevels, state.string());
  const JsonObject object(json, state.string());
  if (!object.Has("_data_files")) return found;
  std::vector<std::string> listed;
  for (const Value& file : object.List("_data_files")) {
    listed.push_back((folder / JsonObject(file, state.string()).Text("filename")).string());
  }
  return listed;
}

/// Names a folder in `folder` that has such files: Hugging Face has one for each split.
std::string BelowIt(const fs::path& folder, const std::string& format) {
  for (const fs::path& below : ListFolder(folder).folders) {
    const bool has_some = std::ranges::any_of(kFormats, [&](const Format& one) {
      return (format.empty() || format == one.source) &&
             !FilesIn(below, Str("*", one.ending)).empty();
    });
    if (has_some) return Str("; the folder ", below.string(), " has some");
  }
  return "";
}

}  // namespace

std::unique_ptr<RecordFile> RecordFiles::Open(size_t file,
                                              std::shared_ptr<BlockCache> cache) const {
  const auto found = std::ranges::find(kFormats, format, &Format::source);
  return found->open(paths[file], std::move(cache));
}

void RecordFiles::ForEach(const Wanted& wanted, const RecordBody& body) const {
  for (size_t file = 0; file < paths.size(); ++file) Open(file)->ForEach(wanted, body);
}

RecordFiles FindRecords(const std::string& format, const std::string& path,
                        const DatasetContext& context) {
  RecordFiles files = {format, {}, ResolvePath(path, context)};
  const fs::path whole = files.given;
  std::error_code unknown;
  const bool is_pattern = whole.filename().string().find('*') != std::string::npos &&
                          whole.parent_path().string().find('*') == std::string::npos;
  if (fs::is_directory(whole, unknown)) {
    for (const Format& one : kFormats) {
      if (!format.empty() && format != one.source) continue;
      const std::vector<std::string> found = FilesOf(whole, one);
      if (found.empty()) continue;
      if (!files.paths.empty()) {
        throw WorldError(Str(path, " has files of several formats, as ", files.paths[0], " and ",
                             found[0], "; name those of one, as \"", path, "/*", one.ending, "\""));
      }
      files = {one.source, found, files.given};
    }
  } else if (is_pattern) {
    const fs::path folder = whole.parent_path();
    files.paths = FilesIn(folder.empty() ? "." : folder, whole.filename().string());
  } else {
    files.paths = {whole.string()};
    if (whole.string().find_first_of("*?{") != std::string::npos && !fs::exists(whole, unknown)) {
      throw WorldError(Str(path, ": there is no such file; several files are a folder, or a path ",
                           "whose last part has \"*\", as \"shard-*\""));
    }
  }
  if (files.paths.empty()) {
    const auto named = std::ranges::find(kFormats, format, &Format::source);
    throw WorldError(Str(path, ": expected files",
                         named == std::end(kFormats) ? std::string(" of records")
                                                     : Str(" as \"*", named->ending, "\""),
                         ", got none", is_pattern ? "" : BelowIt(whole, format)));
  }
  if (!files.format.empty()) return files;
  const Format* const told = FormatOf(files.paths[0]);
  files.format = told ? told->source : "jsonl";
  return files;
}

void RefuseEmpty(const RecordFiles& files) {
  throw WorldError(Str(files.given, ": expected ",
                       files.format == "jsonl" ? "JSON lines" : "records", ", got none"));
}

std::unique_ptr<Dataset> OpenRecords(const DataSpec& spec, const DatasetContext& context) {
  const Value& options = spec.options;
  const RecordFiles files = FindRecords(spec.kind, options["path"].as_string(), context);
  std::optional<RecordFiles> like;
  if (!options["like"].is_null()) {
    like = FindRecords(spec.kind, options["like"].as_string(), context);
    if (like->paths == files.paths && options["targets"] != Value(false)) like.reset();
  }
  const RecordFiles* const others = like ? &*like : nullptr;
  if (!options["image"].is_null()) return OpenRecordImages(spec, files, others);
  if (!options["columns"].is_null()) return OpenRecordFeatures(spec, files, others);
  return OpenRecordTexts(spec, files, others, context);
}

}  // namespace strata::data
