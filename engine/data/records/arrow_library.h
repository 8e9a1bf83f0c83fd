// The interface of libstrata_arrow.so, which is linked to Arrow's C++ libraries. It is loaded when
// a job reads Parquet or Arrow files, so that nothing else needs these libraries. Internal to
// engine/data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"

namespace strata::data {

/// A column of bytes of one block (a row group of Parquet, a record batch of Arrow).
class ArrowBytes {
 public:
  virtual ~ArrowBytes() = default;
  /// Throws WorldError, with the number of the row in the file, if it has no bytes.
  virtual std::string_view At(int64_t row) const = 0;
};

/// An opened file. Several threads may read at once.
class ArrowFile {
 public:
  virtual ~ArrowFile() = default;
  virtual std::vector<std::string> columns() const = 0;
  /// For each block the number of the row behind its last one, in the file.
  virtual const std::vector<int64_t>& ends() const = 0;
  /// False if the blocks lie in the file as they are in memory, so that one row is soon read.
  virtual bool decodes() const = 0;
  /// Calls body(row, record) for the rows of a block; `row` is its number in the file. A record has
  /// the columns, which must exist.
  virtual void ReadBlock(
      size_t block, const std::vector<std::string>& columns,
      const std::function<void(int64_t row, const Value& record)>& body) const = 0;
  virtual std::shared_ptr<const ArrowBytes> ReadBytes(size_t block,
                                                      const std::string& column) const = 0;
};

struct ArrowLibrary {
  /// Opens a file that lies in memory as long as the ArrowFile lives. `path` is for errors: all
  /// functions throw WorldError that begins with it.
  std::unique_ptr<ArrowFile> (*open)(std::string_view bytes, const std::string& path,
                                     bool is_parquet);
};

/// Loads the library once. Throws WorldError that says what to install.
const ArrowLibrary& LoadArrowLibrary();

}  // namespace strata::data
