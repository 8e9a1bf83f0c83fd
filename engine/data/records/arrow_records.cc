// The reader of Parquet and Arrow files, and the loader of the library that decodes them.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <list>
#include <mutex>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/share.h"
#include "engine/base/text.h"
#include "engine/data/files/data_progress.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/records/arrow_library.h"
#include "engine/data/records/record_files.h"
#include "engine/data/sample_order.h"

namespace strata::data {

/// Keeps the blocks that were used last. A thread that asks for a block that another one is reading
/// waits for it.
class BlockCache {
 public:
  using Block = std::shared_ptr<const ArrowBytes>;
  explicit BlockCache(size_t blocks) : most_(blocks) {}

  Block Get(const void* file, size_t number, const std::function<Block()>& read) {
    std::promise<Block> promise;
    std::shared_future<Block> block;
    bool reads = false;
    {
      const std::lock_guard lock(mutex_);
      auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
        return entry.file == file && entry.number == number;
      });
      reads = found == entries_.end();
      if (reads) {
        entries_.push_front({file, number, promise.get_future().share()});
      } else {
        entries_.splice(entries_.begin(), entries_, found);
      }
      block = entries_.front().block;
      if (entries_.size() > most_) entries_.pop_back();
    }
    if (reads) {
      try {
        promise.set_value(read());
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    }
    return block.get();
  }

 private:
  struct Entry {
    const void* file;
    size_t number;
    std::shared_future<Block> block;
  };
  const size_t most_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the one that was used last comes first
};

std::shared_ptr<BlockCache> MakeBlockCache(size_t blocks) {
  return std::make_shared<BlockCache>(blocks);
}

size_t BlocksOfWindow(int64_t window, int64_t rows_at_once) {
  // For blocks of other sizes, and for threads that are already in the next window.
  constexpr int64_t kMore = 4;
  if (window == 0 || rows_at_once == 0) return kMore;
  // A run begins inside of a block, so it touches one more than its length tells.
  return static_cast<size_t>(SampleOrder::kRuns + window / rows_at_once + kMore);
}

namespace {

namespace fs = std::filesystem;

constexpr char kVariable[] = "STRATA_ARROW";
constexpr char kPathInWorkspace[] = "engine/data/libstrata_arrow.so";

/// The first place of the library that exists; if none does, the first, of which the loader's error
/// then tells.
std::string LibraryPath() {
  const std::vector<std::string> paths = LibraryPlaces(kVariable, kPathInWorkspace);
  for (const std::string& path : paths) {
    if (std::error_code error; fs::exists(path, error)) return path;
  }
  return paths[0];
}

const ArrowLibrary* Load() {
  const std::string path = LibraryPath();
  // Libraries that are loaded satisfy those that need them by name.
  if (const char* folder = std::getenv("LIBARROW"); folder && *folder) {
    for (const char* name : {"libarrow.so.2600", "libparquet.so.2600"}) {
      const std::string whole = Str(folder, "/", name);
      if (::dlopen(whole.c_str(), RTLD_NOW | RTLD_LOCAL)) continue;
      throw WorldError(Str("cannot load ", whole, " ($LIBARROW): ", ::dlerror()));
    }
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    throw WorldError(Str("cannot load Arrow's library, which reads Parquet and Arrow files: ",
                         ::dlerror(), "; install it: pip install 'strata[arrow]', or pip install ",
                         "pyarrow==26.0.1 and name its folder by $LIBARROW"));
  }
  using Entry = const ArrowLibrary* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(library, "strata_arrow_library"));
  if (!entry) throw WorldError(Str(path, " is not Strata's library for Arrow: ", ::dlerror()));
  return entry();
}

class ArrowRecords : public RecordFile {
 public:
  ArrowRecords(const std::string& path, bool is_parquet, std::shared_ptr<BlockCache> cache)
      : mapped_(path, is_parquet ? "a Parquet file" : "an Arrow file"),
        is_parquet_(is_parquet),
        cache_(std::move(cache)) {}

  void ForEach(const Wanted& wanted, const RecordBody& body) const override {
    const std::vector<std::string> columns = ColumnsOf(wanted);
    const ArrowFile& arrow = file();
    if (columns.empty() && !arrow.ends().empty() &&
        arrow.ends().back() > std::ssize(mapped_.bytes())) {
      throw WorldError(Str(path(), ": expected images in \"", wanted.bytes,
                           "\", but the file has more ", "rows than bytes"));
    }
    DataProgress progress(Reading(path()), arrow.ends().empty() ? 0 : arrow.ends().back());
    for (size_t block = 0; block < arrow.ends().size(); ++block) {
      arrow.ReadBlock(block, columns, [&](int64_t row, const Value& record) {
        body({record, Str(path(), ": row ", row), {row, 0}});
        progress.At(row + 1);
      });
      mapped_.Release(mapped_.bytes().size());
    }
  }

  std::string ReadBytes(const BytesPlace& place, const std::string& field) const override {
    const ArrowFile& arrow = file();
    const auto end = std::ranges::upper_bound(arrow.ends(), place.at);
    if (end == arrow.ends().end()) {
      throw WorldError(Str(path(), ": row ", place.at, ": the file has changed"));
    }
    const auto block = static_cast<size_t>(end - arrow.ends().begin());
    const auto read = [&] { return arrow.ReadBytes(block, field); };
    const auto bytes = cache_ ? cache_->Get(this, block, read) : read();
    return std::string(bytes->At(place.at));
  }

  int64_t records_at_once() const override {
    const ArrowFile& arrow = file();
    int64_t most = 0, begin = 0;
    for (const int64_t end : arrow.ends()) {
      most = std::max(most, end - std::exchange(begin, end));
    }
    return arrow.decodes() ? most : 0;
  }

 private:
  const std::string& path() const { return mapped_.path(); }

  /// Opened when it is first used.
  const ArrowFile& file() const {
    const std::lock_guard lock(mutex_);
    if (!file_) file_ = LoadArrowLibrary().open(mapped_.text(), path(), is_parquet_);
    return *file_;
  }

  /// The columns to read; throws WorldError for one that is missing.
  std::vector<std::string> ColumnsOf(const Wanted& wanted) const {
    const std::vector<std::string> all = file().columns();
    std::vector<std::string> columns;
    const auto require = [&](const std::string& column) {
      throw WorldError(
          Str(path(), ": there is no column \"", column, "\"", DidYouMean(column, all)));
    };
    for (const std::string& column : wanted.fields) {
      const bool is_there = std::ranges::find(all, column) != all.end();
      if (is_there) columns.push_back(column);
      if (!is_there && !wanted.any) require(column);
    }
    if (wanted.any && columns.empty()) require(wanted.fields[0]);
    const std::string& bytes = wanted.bytes;
    if (!bytes.empty() && std::ranges::find(all, bytes) == all.end()) require(bytes);
    return columns;
  }

  const MappedFile mapped_;
  const bool is_parquet_;
  const std::shared_ptr<BlockCache> cache_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<ArrowFile> file_;
};

}  // namespace

const ArrowLibrary& LoadArrowLibrary() {
  static const ArrowLibrary* const library = Load();
  return *library;
}

std::unique_ptr<RecordFile> OpenArrowRecords(const std::string& path, bool is_parquet,
                                             std::shared_ptr<BlockCache> cache) {
  return std::make_unique<ArrowRecords>(path, is_parquet, std::move(cache));
}

}  // namespace strata::data
