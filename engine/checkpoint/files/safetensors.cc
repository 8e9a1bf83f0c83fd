// The dtypes of the format, the conversion between a header and a list of tensors, and the checks
// of a header.
#include "engine/checkpoint/files/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <set>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/checkpoint/files/tensor_name.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they are");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kLongestHeader = int64_t{32} << 20;
// Levels of JSON. The object, a tensor and a list need three.
constexpr size_t kDeepest = 4;
constexpr const char* kMetadata = "__metadata__";

struct StoredType {
  const char* name;
  int bytes;
  std::optional<DType> dtype;
};

constexpr std::array<StoredType, 17> kTypes = {{
    {"F64", 8, DType::kFloat64},
    {"F32", 4, DType::kFloat32},
    {"F16", 2, DType::kFloat16},
    {"BF16", 2, DType::kBFloat16},
    {"I64", 8, DType::kInt64},
    {"I32", 4, DType::kInt32},
    {"I16", 2, DType::kInt16},
    {"I8", 1, DType::kInt8},
    {"U8", 1, DType::kUInt8},
    {"BOOL", 1, DType::kBool},
    {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},
    {"U16", 2, std::nullopt},
    {"C64", 8, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt},
}};

const StoredType* FindType(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &StoredType::name);
  return found == kTypes.end() ? nullptr : &*found;
}

/// The number of bytes of a tensor, or -1 if it does not fit an int64.
int64_t BytesOf(const std::vector<int64_t>& shape, const StoredType& type) {
  int64_t bytes = type.bytes;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return -1;
  }
  return bytes;
}

StoredTensor ReadEntry(const std::string& name, const Value& entry, const std::string& path) {
  const std::string source = Str(path, ": tensor ", QuotedName(name));
  if (const std::string trouble = TroubleWithTensorName(name); !trouble.empty()) {
    throw WorldError(Str(source, ": no name for a tensor: ", trouble));
  }
  const JsonObject object(entry, source);
  for (const auto& [key, value] : object.entries()) {
    if (key == "dtype" || key == "shape" || key == "data_offsets") continue;
    throw WorldError(Str(source, ": unknown key ", QuotedName(key)));
  }
  const StoredType* type = FindType(object.Text("dtype"));
  if (!type) throw WorldError(Str(source, ": unknown dtype ", QuotedName(object.Text("dtype"))));
  const std::vector<int64_t> offsets = object.Sizes("data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) object.Refuse("data_offsets", "begin, end");
  StoredTensor tensor = {name, type->name, object.Sizes("shape"), offsets[0],
                         offsets[1] - offsets[0]};
  if (tensor.bytes != BytesOf(tensor.shape, *type)) {
    throw WorldError(Str(source, ": ", tensor.bytes, " bytes are not ", tensor.dtype, " ",
                         FormatShape(tensor.shape)));
  }
  return tensor;
}

StoredMetadata ReadMetadata(const Value& value, const std::string& path) {
  const JsonObject object(value, Str(path, ": ", kMetadata));
  StoredMetadata metadata;
  for (const auto& [key, text] : object.entries()) metadata.emplace_back(key, object.Text(key));
  return metadata;
}

/// Sorts the tensors by offset. Throws WorldError if they overlap, leave holes or do not fill the
/// data.
void CheckOffsets(std::vector<StoredTensor>& tensors, int64_t data_bytes, const std::string& path) {
  std::ranges::stable_sort(tensors, {}, [](const StoredTensor& tensor) {
    return std::pair(tensor.offset, tensor.offset + tensor.bytes);
  });
  int64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.offset != end) {
      throw WorldError(Str(path, ": tensor ", QuotedName(tensor.name), " begins at byte ",
                           tensor.offset,
                           tensor.offset < end ? ", within the one before" : ", behind a hole"));
    }
    end += tensor.bytes;  // cannot overflow: it equals the end offset in the header
    if (end > data_bytes) {
      throw WorldError(Str(path, ": tensor ", QuotedName(tensor.name), " ends at byte ", end,
                           " of ", data_bytes, ": the file is too short"));
    }
  }
  if (end != data_bytes) {
    throw WorldError(Str(path, ": ", Plural(data_bytes - end, "byte"), " behind the last tensor"));
  }
}

std::string LengthText(uint64_t length) {
  std::string text(kLengthBytes, '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  return text;
}

Value HeaderOf(const std::vector<StoredTensor>& tensors, const StoredMetadata& metadata) {
  Value::Map header;
  Value texts = Value::MakeMap();
  for (const auto& [key, text] : metadata) texts.Set(key, text);
  header.emplace_back(kMetadata, std::move(texts));
  for (const StoredTensor& tensor : tensors) {
    Value entry;
    entry.Set("dtype", tensor.dtype).Set("shape", Value::IntList(tensor.shape));
    entry.Set("data_offsets", Value::IntList({tensor.offset, tensor.offset + tensor.bytes}));
    header.emplace_back(tensor.name, std::move(entry));
  }
  return Value::MakeMap(std::move(header));
}

}  // namespace

const char* StoredName(DType dtype) {
  const auto found = std::ranges::find(kTypes, std::optional(dtype), &StoredType::dtype);
  STRATA_CHECK(found != kTypes.end()) << DTypeName(dtype);
  return found->name;
}

std::optional<DType> FromStoredName(std::string_view name) {
  const StoredType* type = FindType(name);
  return type ? type->dtype : std::nullopt;
}

// ---- Reading

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) { ReadHeader(); }

void SafetensorsFile::ReadHeader() {
  uint64_t length = 0;
  if (file_.size() < kLengthBytes) throw WorldError(Str(path(), " is too short for safetensors"));
  file_.ReadAt(0, &length, kLengthBytes);
  if (length > kLongestHeader || static_cast<int64_t>(length) > file_.size() - kLengthBytes) {
    throw WorldError(Str(path(), " is no safetensors file, or a damaged one: a header of ", length,
                         " bytes in a file of ", file_.size()));
  }
  data_begin_ = kLengthBytes + static_cast<int64_t>(length);
  std::string header(static_cast<size_t>(data_begin_), '\0');
  file_.ReadAt(0, header.data(), data_begin_);
  header_digest_ = StrongDigest(header);
  const Value value =
      ParseStrictJson(std::string_view(header).substr(kLengthBytes), kDeepest, path());
  for (const auto& [name, entry] : JsonObject(value, path()).entries()) {
    if (name == kMetadata) {
      metadata_ = ReadMetadata(entry, path());
    } else {
      tensors_.push_back(ReadEntry(name, entry, path()));
    }
  }
  CheckOffsets(tensors_, file_.size() - data_begin_, path());
}

void SafetensorsFile::Read(const StoredTensor& tensor, int64_t begin, void* to,
                           int64_t bytes) const {
  STRATA_CHECK(begin >= 0 && bytes >= 0 && begin <= tensor.bytes && bytes <= tensor.bytes - begin)
      << tensor.name << ": " << begin << " + " << bytes << " of " << tensor.bytes;
  file_.ReadAt(data_begin_ + tensor.offset + begin, to, bytes);
}

// ---- Writing

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<TensorDeclaration>& tensors,
                                     const StoredMetadata& metadata)
    : file_(path) {
  std::set<std::string_view> names;
  for (const TensorDeclaration& tensor : tensors) {
    const StoredType* type = FindType(tensor.dtype);
    STRATA_CHECK(type) << tensor.dtype;
    STRATA_CHECK(names.insert(tensor.name).second) << tensor.name << " comes twice";
    STRATA_CHECK(TroubleWithTensorName(tensor.name).empty()) << QuotedName(tensor.name);
    const int64_t bytes = BytesOf(tensor.shape, *type);
    STRATA_CHECK(bytes >= 0) << tensor.name;
    tensors_.push_back({tensor.name, type->name, tensor.shape, 0, bytes});
  }
  std::ranges::stable_sort(tensors_, std::greater(), [](const StoredTensor& tensor) {
    return FindType(tensor.dtype)->bytes;
  });
  for (StoredTensor& tensor : tensors_) {
    tensor.offset = data_bytes_;
    data_bytes_ += tensor.bytes;
  }
  std::string header = HeaderOf(tensors_, metadata).ToJson();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(header.size()) > kLongestHeader) {
    throw WorldError(Str("cannot write ", path, ": the names and shapes of ",
                         Plural(static_cast<int64_t>(tensors.size()), "tensor"), " take ",
                         header.size(), " bytes, and a header has at most ", kLongestHeader));
  }
  header.insert(0, LengthText(header.size()));
  header_bytes_ = static_cast<int64_t>(header.size());
  header_digest_ = StrongDigest(header);
  file_.Write(header.data(), header_bytes_);
}

void SafetensorsWriter::Write(const void* bytes, int64_t count) {
  STRATA_CHECK(count <= data_bytes_ - written_) << file_.path() << ": too many bytes";
  file_.Write(bytes, count);
  written_ += count;
}

void SafetensorsWriter::Finish() {
  STRATA_CHECK(written_ == data_bytes_)
      << file_.path() << ": " << data_bytes_ - written_ << " bytes are missing";
  file_.Sync();
}

}  // namespace strata
