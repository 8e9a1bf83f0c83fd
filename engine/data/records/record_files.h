// Records: samples with named fields in files of others. One interface over the readers of JSON
// lines, Parquet, Arrow and WebDataset's tars, so that texts, chats, features and images are read
// from all of them by the same code. Internal to engine/data.
//
// The records of several files are numbered through, in the order of the files' names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/data/dataset.h"

namespace strata::data {

/// Where the bytes of a field lie in their file, in the units of the format: a tar has the offset
/// and the size, other files have the number of the record.
struct BytesPlace {
  int64_t at = 0;
  int64_t size = 0;
};

struct Record {
  const Value& fields;       ///< those that were asked for; JSON lines give all
  const std::string& where;  ///< for errors: "a.jsonl:7", "a.parquet: row 6"
  BytesPlace bytes = {};     ///< of the field Wanted::bytes
};

/// The fields to read of each record.
struct Wanted {
  std::vector<std::string> fields;
  /// True: a record needs only one of the fields. False: it needs all of them.
  bool any = false;
  /// A field of bytes that are not read now: ReadBytes() reads them later. "" = none.
  std::string bytes = {};
};

using RecordBody = std::function<void(const Record& record)>;

/// A file of records.
class RecordFile {
 public:
  virtual ~RecordFile() = default;
  /// Calls `body` for every record, in the order of the file. Throws WorldError with the path and
  /// the place for a broken file, and for a missing field with the nearest name.
  virtual void ForEach(const Wanted& wanted, const RecordBody& body) const = 0;
  /// The bytes at a place that ForEach() gave for `field`. Several threads may call it at once.
  virtual std::string ReadBytes(const BytesPlace& place, const std::string& field) const = 0;
  /// The number of records that are decoded at once when one is read; 0 if a record can be read by
  /// itself. Known after ForEach().
  virtual int64_t records_at_once() const { return 0; }
};

/// The blocks (row groups, record batches) that ReadBytes() keeps decoded, of several files.
class BlockCache;
std::shared_ptr<BlockCache> MakeBlockCache(size_t blocks);
/// Returns how many blocks a cache must keep so that an order in windows of `window` samples
/// (SampleOrder::Windowed(); 0 = the data has no windows) decodes each block about once for each of
/// the runs that lie in it. A block has `rows_at_once` records.
size_t BlocksOfWindow(int64_t window, int64_t rows_at_once);

/// The file of a table that Parquet or Arrow wrote. `cache` is for ReadBytes(), and may be null.
std::unique_ptr<RecordFile> OpenArrowRecords(const std::string& path, bool is_parquet,
                                             std::shared_ptr<BlockCache> cache);
/// A tar of WebDataset: files that follow each other and have one name up to the first dot are a
/// record; the rest of their names are its fields.
std::unique_ptr<RecordFile> OpenTarRecords(const std::string& path);

/// Files of one format, by the name of the data source that reads it: "jsonl", "parquet", "arrow",
/// "webdataset".
struct RecordFiles {
  std::string format;
  std::vector<std::string> paths;
  std::string given;  ///< the path as the script has it, for messages

  /// Opens one of the files.
  std::unique_ptr<RecordFile> Open(size_t file, std::shared_ptr<BlockCache> cache = nullptr) const;
  /// Calls `body` for the records of all files.
  void ForEach(const Wanted& wanted, const RecordBody& body) const;
};

/// The files at `path`: a file, a folder (its files with the ending of the format), or a path whose
/// last part has "*". An empty `format` is told by the ending. Throws WorldError if there are none,
/// and for a folder with files of several formats.
RecordFiles FindRecords(const std::string& format, const std::string& path,
                        const DatasetContext& context);

/// Throws WorldError: the files have no records.
[[noreturn]] void RefuseEmpty(const RecordFiles& files);

/// The data of records: texts or tokens (record_texts.cc), numbers or images (record_features.cc).
/// `like` has the classes, or is null.
std::unique_ptr<Dataset> OpenRecordTexts(const DataSpec& spec, const RecordFiles& files,
                                         const RecordFiles* like, const DatasetContext& context);
std::unique_ptr<Dataset> OpenRecordFeatures(const DataSpec& spec, const RecordFiles& files,
                                            const RecordFiles* like);
std::unique_ptr<Dataset> OpenRecordImages(const DataSpec& spec, const RecordFiles& files,
                                          const RecordFiles* like);

}  // namespace strata::data
