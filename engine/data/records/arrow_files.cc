// libstrata_arrow.so: Parquet and Arrow files by Arrow's C++ libraries.
//
// A Parquet file has row groups, which are decoded column by column. An Arrow file has record
// batches and, in its footer, their offsets. An Arrow stream (as Hugging Face's data sets are) has
// only the batches, so opening one walks over their headers. Nothing here starts a thread, since
// ranks are forked later.
#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/api.h>
#include <arrow/util/float16.h>
#include <arrow/util/utf8.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value_json.h"
#include "engine/data/records/arrow_library.h"

namespace strata::data {
namespace {

using Type = arrow::Type;

constexpr std::string_view kFileMagic = "ARROW1";
constexpr std::string_view kStreamEnd{"\xff\xff\xff\xff\0\0\0\0", 8};

// ---- Values of arrays

/// Throws WorldError if the values of a type are not read.
void CheckType(const arrow::DataType& type, const std::string& where) {
  switch (type.id()) {
    case Type::NA:
    case Type::BOOL:
    case Type::HALF_FLOAT:
    case Type::FLOAT:
    case Type::DOUBLE:
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
    case Type::DICTIONARY:
      return;
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
    case Type::STRUCT:
      for (const auto& field : type.fields()) CheckType(*field->type(), where);
      return;
    default:
      if (arrow::is_integer(type.id())) return;
      throw WorldError(Str(where, " has the type ", type.ToString(), "; expected texts, numbers, ",
                           "lists or structs of them: cast it before it is written"));
  }
}

/// Throws WorldError for a text that is not UTF-8, which Parquet's reader does not check.
Value ToValue(const arrow::Array& array, int64_t i);

template <class List>
Value ListAt(const arrow::Array& array, int64_t i) {
  const auto& lists = static_cast<const List&>(array);
  Value::List list;
  list.reserve(static_cast<size_t>(lists.value_length(i)));
  for (int64_t k = 0; k < lists.value_length(i); ++k) {
    list.push_back(ToValue(*lists.values(), lists.value_offset(i) + k));
  }
  return list;
}

Value StructAt(const arrow::Array& array, int64_t i) {
  const auto& structs = static_cast<const arrow::StructArray&>(array);
  Value::Map map;
  for (int field = 0; field < structs.num_fields(); ++field) {
    map.emplace_back(structs.type()->field(field)->name(), ToValue(*structs.field(field), i));
  }
  return Value::MakeMap(std::move(map));
}

template <class Numbers>
Value WholeAt(const arrow::Array& array, int64_t i) {
  const auto number = static_cast<const Numbers&>(array).Value(i);
  if (std::in_range<int64_t>(number)) return static_cast<int64_t>(number);
  return static_cast<double>(number);  // as in JSON
}

template <class Numbers>
Value FloatAt(const arrow::Array& array, int64_t i) {
  return static_cast<double>(static_cast<const Numbers&>(array).Value(i));
}

template <class Bytes>
std::string_view BytesAt(const arrow::Array& array, int64_t i) {
  return static_cast<const Bytes&>(array).GetView(i);
}

template <class Bytes>
Value Utf8At(const arrow::Array& array, int64_t i) {
  const std::string_view text = BytesAt<Bytes>(array, i);
  if (!arrow::util::ValidateUTF8(text)) throw WorldError(Utf8Trouble(text));
  return text;
}

Value ToValue(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return {};
  switch (array.type_id()) {
    case Type::BOOL:
      return static_cast<const arrow::BooleanArray&>(array).Value(i);
    case Type::INT8:
      return WholeAt<arrow::Int8Array>(array, i);
    case Type::INT16:
      return WholeAt<arrow::Int16Array>(array, i);
    case Type::INT32:
      return WholeAt<arrow::Int32Array>(array, i);
    case Type::INT64:
      return WholeAt<arrow::Int64Array>(array, i);
    case Type::UINT8:
      return WholeAt<arrow::UInt8Array>(array, i);
    case Type::UINT16:
      return WholeAt<arrow::UInt16Array>(array, i);
    case Type::UINT32:
      return WholeAt<arrow::UInt32Array>(array, i);
    case Type::UINT64:
      return WholeAt<arrow::UInt64Array>(array, i);
    case Type::FLOAT:
      return FloatAt<arrow::FloatArray>(array, i);
    case Type::DOUBLE:
      return FloatAt<arrow::DoubleArray>(array, i);
    case Type::HALF_FLOAT:
      return arrow::util::Float16::FromBits(
                 static_cast<const arrow::HalfFloatArray&>(array).Value(i))
          .ToDouble();
    case Type::STRING:
      return Utf8At<arrow::StringArray>(array, i);
    case Type::LARGE_STRING:
      return Utf8At<arrow::LargeStringArray>(array, i);
    case Type::STRING_VIEW:
      return Utf8At<arrow::StringViewArray>(array, i);
    case Type::BINARY:
      return Utf8At<arrow::BinaryArray>(array, i);
    case Type::LARGE_BINARY:
      return Utf8At<arrow::LargeBinaryArray>(array, i);
    case Type::BINARY_VIEW:
      return Utf8At<arrow::BinaryViewArray>(array, i);
    case Type::LIST:
      return ListAt<arrow::ListArray>(array, i);
    case Type::LARGE_LIST:
      return ListAt<arrow::LargeListArray>(array, i);
    case Type::FIXED_SIZE_LIST:
      return ListAt<arrow::FixedSizeListArray>(array, i);
    case Type::STRUCT:
      return StructAt(array, i);
    case Type::DICTIONARY: {
      const auto& words = static_cast<const arrow::DictionaryArray&>(array);
      return ToValue(*words.dictionary(), words.GetValueIndex(i));
    }
    default:
      throw WorldError(Str("a value of type ", array.type()->ToString(), " is not read"));
  }
}

// ---- Columns of bytes

/// The bytes of a column that is binary, or of the field "bytes" of one that is a struct, as
/// Hugging Face's images are. Null for other types.
std::shared_ptr<arrow::Array> BytesOf(const std::shared_ptr<arrow::Array>& array) {
  std::shared_ptr<arrow::Array> bytes = array;
  if (array->type_id() == Type::STRUCT) {
    bytes = static_cast<const arrow::StructArray&>(*array).GetFieldByName("bytes");
  }
  const Type::type type = bytes ? bytes->type_id() : Type::NA;
  const bool is_read =
      type == Type::BINARY || type == Type::LARGE_BINARY || type == Type::BINARY_VIEW;
  return is_read ? bytes : nullptr;
}

class BytesColumn : public ArrowBytes {
 public:
  /// `begin` is the number of the first row in the file. `owner` keeps the bytes alive.
  BytesColumn(const arrow::ArrayVector& chunks, int64_t begin, std::string path,
              const std::string& column)
      : begin_(begin), path_(std::move(path)), column_(column) {
    for (const auto& chunk : chunks) {
      chunks_.push_back(BytesOf(chunk));
      is_struct_ = chunk->type_id() == Type::STRUCT;
      if (chunks_.back()) continue;
      throw WorldError(Str(path_, ": the column \"", column, "\" has the type ",
                           chunk->type()->ToString(),
                           "; expected images as binary, or a struct with the field bytes"));
    }
  }
  std::string_view At(int64_t row) const override {
    int64_t i = row - begin_;
    for (const auto& chunk : chunks_) {
      if (i >= chunk->length()) {
        i -= chunk->length();
        continue;
      }
      if (chunk->IsNull(i)) break;
      if (chunk->type_id() == Type::BINARY) return BytesAt<arrow::BinaryArray>(*chunk, i);
      if (chunk->type_id() == Type::BINARY_VIEW) return BytesAt<arrow::BinaryViewArray>(*chunk, i);
      return BytesAt<arrow::LargeBinaryArray>(*chunk, i);
    }
    throw WorldError(Str(path_, ": row ", row, ": \"", column_,
                         "\" expects the bytes of an image, got nothing",
                         is_struct_ ? "; paths are not followed, but Hugging Face's save_to_disk() "
                                      "writes the images themselves"
                                    : ""));
  }

 private:
  const int64_t begin_;
  const std::string path_, column_;
  arrow::ArrayVector chunks_;
  bool is_struct_ = false;
};

// ---- Files

class File : public ArrowFile {
 public:
  File(std::string_view bytes, std::string path, const char* kind)
      : bytes_(bytes), path_(std::move(path)), kind_(kind) {}
  std::vector<std::string> columns() const override { return schema_->field_names(); }
  const std::vector<int64_t>& ends() const override { return ends_; }

  void ReadBlock(size_t block, const std::vector<std::string>& columns,
                 const std::function<void(int64_t, const Value&)>& body) const override {
    int64_t row = block == 0 ? 0 : ends_[block - 1];
    Value record = Value::MakeMap();
    if (columns.empty()) {
      for (; row < ends_[block]; ++row) body(row, record);
      return;
    }
    for (const std::string& column : columns) {
      CheckType(*schema_->GetFieldByName(column)->type(),
                Str(path_, ": the column \"", column, "\""));
    }
    const auto give = [&](const arrow::RecordBatch& batch) {
      arrow::ArrayVector arrays;
      for (const std::string& column : columns) arrays.push_back(batch.GetColumnByName(column));
      for (int64_t i = 0; i < batch.num_rows(); ++i, ++row) {
        for (size_t k = 0; k < columns.size(); ++k) {
          try {
            record.Set(columns[k], ToValue(*arrays[k], i));
          } catch (const WorldError& error) {
            throw WorldError(Str(path_, ": row ", row, ": \"", columns[k], "\": ", error.what()));
          }
        }
        body(row, record);
      }
    };
    ForEachBatch(block, columns, give);
    if (row != ends_[block]) throw WorldError(Str(path_, ": block ", block, " lacks rows"));
  }

  std::shared_ptr<const ArrowBytes> ReadBytes(size_t block,
                                              const std::string& column) const override {
    arrow::ArrayVector chunks;
    ForEachBatch(block, {column}, [&](const arrow::RecordBatch& batch) {
      chunks.push_back(batch.GetColumnByName(column));
    });
    return std::make_shared<BytesColumn>(chunks, block == 0 ? 0 : ends_[block - 1], path_, column);
  }

 protected:
  using BatchBody = std::function<void(const arrow::RecordBatch& batch)>;

  /// Reads these columns of a block, and calls `body` for each batch of its rows; a block may come
  /// in several batches.
  virtual void ForEachBatch(size_t block, const std::vector<std::string>& columns,
                            const BatchBody& body) const = 0;

  [[noreturn]] void Refuse(const std::string& why) const {
    throw WorldError(Str(path_, ": no whole ", kind_, ": ", why.substr(0, why.find('\n'))));
  }
  void Check(const arrow::Status& status) const {
    if (!status.ok()) Refuse(status.message());
  }
  template <class T>
  T Take(arrow::Result<T> result) const {
    Check(result.status());
    return std::move(result).ValueUnsafe();
  }
  /// Calls `read`; exceptions of Arrow become WorldErrors.
  template <class Read>
  void Guard(const Read& read) const {
    try {
      read();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      Refuse(error.what());
    }
  }
  std::shared_ptr<arrow::io::BufferReader> Reader() const {
    return std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(
        reinterpret_cast<const uint8_t*>(bytes_.data()), std::ssize(bytes_)));
  }
  /// Counts the rows of one more block.
  void AddBlock(int64_t rows) {
    constexpr int64_t kMost = int64_t{1} << 60;
    const int64_t before = ends_.empty() ? 0 : ends_.back();
    if (rows < 0 || rows > kMost - before) Refuse(Str("a block of ", rows, " rows"));
    ends_.push_back(before + rows);
  }
  void CheckNames() const {
    for (const std::string& name : schema_->field_names()) {
      if (schema_->GetFieldIndex(name) < 0) Refuse(Str("two columns have the name \"", name, "\""));
    }
  }

  const std::string_view bytes_;
  const std::string path_;
  const char* const kind_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<int64_t> ends_;
};

class Parquet : public File {
 public:
  Parquet(std::string_view bytes, const std::string& path) : File(bytes, path, "Parquet file") {
    arrow::util::InitializeUTF8();
    Guard([&] {
      const auto reader = Open();
      metadata_ = reader->parquet_reader()->metadata();
      Check(reader->GetSchema(&schema_));
      CheckNames();
      for (int i = 0; i < metadata_->num_row_groups(); ++i) {
        AddBlock(metadata_->RowGroup(i)->num_rows());
      }
    });
  }
  bool decodes() const override { return true; }

 private:
  static constexpr int64_t kRowsAtOnce = 256;

  std::unique_ptr<parquet::arrow::FileReader> Open() const {
    parquet::arrow::FileReaderBuilder builder;
    Check(
        builder.Open(Reader(), parquet::ReaderProperties(arrow::system_memory_pool()), metadata_));
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(kRowsAtOnce);
    properties.set_pre_buffer(false);
    builder.memory_pool(arrow::system_memory_pool())->properties(properties);
    return Take(builder.Build());
  }

  /// The numbers of the leaves of a column, which may be nested.
  static void AddLeaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
    if (field.column_index >= 0) leaves.push_back(field.column_index);
    for (const auto& child : field.children) AddLeaves(child, leaves);
  }

  void ForEachBatch(size_t block, const std::vector<std::string>& columns,
                    const BatchBody& body) const override {
    Guard([&] {
      const auto reader = Open();
      std::vector<int> leaves;
      for (const std::string& column : columns) {
        const auto index = static_cast<size_t>(schema_->GetFieldIndex(column));
        AddLeaves(reader->manifest().schema_fields[index], leaves);
      }
      const auto batches = Take(reader->GetRecordBatchReader({static_cast<int>(block)}, leaves));
      std::shared_ptr<arrow::RecordBatch> batch;
      while (Check(batches->ReadNext(&batch)), batch) body(*batch);
    });
  }

  std::shared_ptr<parquet::FileMetaData> metadata_;  // null while it is read
};

/// Files and streams of Arrow.
class Batches : public File {
 public:
  using File::File;
  bool decodes() const override { return decodes_; }

 protected:
  static arrow::ipc::IpcReadOptions Options(bool only_first = false) {
    arrow::ipc::IpcReadOptions options;
    options.memory_pool = arrow::system_memory_pool();
    options.use_threads = false;
    if (only_first) options.included_fields = {0};  // enough to count the rows
    return options;
  }
  /// Sees whether the batches lie in the file as they are in memory.
  void LookAt(const arrow::RecordBatch& batch) {
    for (const auto& array : batch.columns()) {
      for (const auto& buffer : array->data()->buffers) {
        if (!buffer || buffer->size() == 0) continue;
        const auto* data = reinterpret_cast<const char*>(buffer->data());
        decodes_ |= data < bytes_.data() || data >= bytes_.data() + bytes_.size();
      }
    }
  }
  virtual std::shared_ptr<arrow::RecordBatch> BatchAt(size_t block) const = 0;

 private:
  void ForEachBatch(size_t block, const std::vector<std::string>& columns,
                    const BatchBody& body) const override {
    Guard([&] {
      const auto batch = BatchAt(block);
      Check(batch->Validate());
      for (const std::string& column : columns) {
        Check(batch->GetColumnByName(column)->ValidateFull());
      }
      body(*batch);
    });
  }

  bool decodes_ = false;
};

class BatchFile : public Batches {
 public:
  BatchFile(std::string_view bytes, const std::string& path) : Batches(bytes, path, "Arrow file") {
    Guard([&] {
      const auto first = Take(arrow::ipc::RecordBatchFileReader::Open(Reader(), Options(true)));
      reader_ = Take(arrow::ipc::RecordBatchFileReader::Open(Reader(), Options()));
      schema_ = reader_->schema();
      CheckNames();
      for (int i = 0; i < first->num_record_batches(); ++i) {
        const auto batch = Take(first->ReadRecordBatch(i));
        AddBlock(batch->num_rows());
        LookAt(*batch);
      }
    });
  }

 private:
  std::shared_ptr<arrow::RecordBatch> BatchAt(size_t block) const override {
    const std::lock_guard lock(mutex_);
    return Take(reader_->ReadRecordBatch(static_cast<int>(block)));
  }

  mutable std::mutex mutex_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
};

class BatchStream : public Batches {
 public:
  BatchStream(std::string_view bytes, const std::string& path)
      : Batches(bytes, path, "Arrow stream") {
    Guard([&] {
      const auto reader = Reader();
      schema_ = Take(arrow::ipc::ReadSchema(reader.get(), &dictionaries_));
      CheckNames();
      if (dictionaries_.fields().num_fields() > 0) {
        Refuse(
            "dictionary-encoded columns are read from files only; write it by "
            "pyarrow.ipc.new_file()");
      }
      for (int64_t offset = Take(reader->Tell()); ReadNext(*reader, offset);
           offset = Take(reader->Tell())) {
      }
      if (!bytes_.ends_with(kStreamEnd)) Refuse("it is cut off: the mark at its end is missing");
    });
  }

 private:
  bool ReadNext(arrow::io::BufferReader& reader, int64_t offset) {
    const auto message = Take(arrow::ipc::ReadMessage(&reader, arrow::system_memory_pool()));
    if (!message) return false;
    const auto batch = BatchOf(*message, true);
    offsets_.push_back(offset);
    AddBlock(batch->num_rows());
    LookAt(*batch);
    return true;
  }
  std::shared_ptr<arrow::RecordBatch> BatchOf(const arrow::ipc::Message& message,
                                              bool only_first) const {
    arrow::ipc::DictionaryMemo none;
    return Take(arrow::ipc::ReadRecordBatch(message, schema_, &none, Options(only_first)));
  }
  std::shared_ptr<arrow::RecordBatch> BatchAt(size_t block) const override {
    const auto reader = Reader();
    Check(reader->Seek(offsets_[block]));
    const auto message = Take(arrow::ipc::ReadMessage(reader.get(), arrow::system_memory_pool()));
    if (!message) Refuse("a record batch is missing");
    return BatchOf(*message, false);
  }

  arrow::ipc::DictionaryMemo dictionaries_;
  std::vector<int64_t> offsets_;
};

std::unique_ptr<ArrowFile> Open(std::string_view bytes, const std::string& path, bool is_parquet) {
  if (is_parquet) return std::make_unique<Parquet>(bytes, path);
  if (bytes.starts_with(kFileMagic)) return std::make_unique<BatchFile>(bytes, path);
  return std::make_unique<BatchStream>(bytes, path);
}

constexpr ArrowLibrary kArrow = {Open};

}  // namespace
}  // namespace strata::data

extern "C" const strata::data::ArrowLibrary* strata_arrow_library() {
  return &strata::data::kArrow;
}
