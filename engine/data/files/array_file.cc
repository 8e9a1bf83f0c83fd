#include "engine/data/files/array_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/files/zip_file.h"
#include "engine/data/files/inflate.h"
#include "engine/data/files/mapped_file.h"

namespace strata::data {
namespace {

using Bytes = std::string_view;
using Owner = std::shared_ptr<const void>;

constexpr size_t kMostInflated = size_t{1} << 36;
constexpr Bytes kNpyMagic = "\x93NUMPY";
constexpr Bytes kZipMagic = "PK\x03\x04";

[[noreturn]] void Refuse(const std::string& where, const std::string& what) {
  throw WorldError(Str(where, ": ", what));
}

/// Reads a little-endian number of `count` bytes at `at`.
uint64_t Little(Bytes bytes, size_t at, size_t count, const std::string& where) {
  if (at > bytes.size() || count > bytes.size() - at) Refuse(where, "the file is cut off");
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

/// Makes an Array; throws WorldError unless the bytes are exactly those of the elements.
Array Filled(std::string name, TensorSpec spec, Bytes bytes, Owner owner,
             const std::string& where) {
  if (spec.bytes() != static_cast<int64_t>(bytes.size())) {
    Refuse(where,
           Str("expected ", spec.bytes(), " bytes of ", spec.ToString(), ", got ", bytes.size()));
  }
  return {std::move(name), std::move(spec), reinterpret_cast<const std::byte*>(bytes.data()),
          std::move(owner)};
}

// .npy: the magic, the version, the header's length, a Python dict such as {'descr': '<f4',
// 'fortran_order': False, 'shape': (3, 4), }, and the elements.

struct NpyType {
  const char* name;
  DType dtype;
};
constexpr NpyType kNpyTypes[] = {
    {"<f4", DType::kFloat32}, {"<f8", DType::kFloat64}, {"<f2", DType::kFloat16},
    {"<i8", DType::kInt64},   {"<i4", DType::kInt32},   {"<i2", DType::kInt16},
    {"|i1", DType::kInt8},    {"|u1", DType::kUInt8},   {"|b1", DType::kBool}};

/// The text behind 'KEY': in the dict, up to the character `end`.
Bytes DictEntry(Bytes dict, const char* key, char end, const std::string& where) {
  const std::string quoted = Str("'", key, "':");
  const size_t at = dict.find(quoted);
  const size_t begin = at == dict.npos ? dict.npos : at + quoted.size();
  const size_t stop = begin == dict.npos ? dict.npos : dict.find(end, begin);
  if (stop == dict.npos) Refuse(where, Str("the .npy header has no '", key, "'"));
  return Trim(dict.substr(begin, stop - begin));
}

std::vector<int64_t> NpyShape(Bytes text, const std::string& where) {
  if (!text.starts_with('(')) Refuse(where, "the .npy header's shape is no tuple");
  std::vector<int64_t> shape;
  for (const std::string& piece : Split(text.substr(1), ',')) {
    const Bytes digits = Trim(piece);
    if (digits.empty()) continue;
    const auto size = ParseWhole<int64_t>(digits);
    if (!size) Refuse(where, Str("the .npy header's shape has \"", digits, "\""));
    shape.push_back(*size);
  }
  if (shape.size() > 64) Refuse(where, "the .npy header's shape has more than 64 dims");
  return shape;
}

TensorSpec NpySpec(Bytes dict, const std::string& where) {
  Bytes descr = DictEntry(dict, "descr", ',', where);
  if (DictEntry(dict, "fortran_order", ',', where) != "False") {
    Refuse(where, "the array lies in Fortran's order; save numpy.ascontiguousarray(x)");
  }
  TensorSpec spec = {NpyShape(DictEntry(dict, "shape", ')', where), where), DType::kFloat32};
  if (descr.size() > 2) descr = descr.substr(1, descr.size() - 2);  // without its quotes
  std::vector<std::string> known;
  for (const NpyType& type : kNpyTypes) {
    if (descr == type.name) {
      spec.dtype = type.dtype;
      return spec;
    }
    known.push_back(type.name);
  }
  Refuse(where, Str("numbers of type \"", descr, "\" are not read; types are ", Join(known, ", ")));
}

Array ReadNpy(std::string name, Bytes bytes, Owner owner, const std::string& where) {
  if (!bytes.starts_with(kNpyMagic)) Refuse(where, "expected the array of a .npy file");
  const uint64_t version = Little(bytes, 6, 1, where);
  const size_t width = version == 1 ? 2 : 4;
  const size_t length = Little(bytes, 8, width, where);
  const size_t begin = 8 + width;
  if (version < 1 || version > 3) Refuse(where, Str(".npy of version ", version, " is not read"));
  if (length > bytes.size() - begin) Refuse(where, "the file is cut off in its header");
  TensorSpec spec = NpySpec(bytes.substr(begin, length), where);
  return Filled(std::move(name), std::move(spec), bytes.substr(begin + length), std::move(owner),
                where);
}

// .npz: a ZIP archive of .npy files.

Array ReadMember(const ZipEntry& entry, Bytes file, const Owner& owner, const std::string& path) {
  const std::string where = Str(path, ": ", entry.name);
  const Bytes packed =
      file.substr(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.packed));
  const auto size = static_cast<size_t>(entry.bytes);
  std::string name = entry.name;
  if (name.ends_with(".npy")) name.resize(name.size() - 4);
  if (entry.method == 0) return ReadNpy(name, packed, owner, where);
  if (entry.method != 8) Refuse(where, Str("compression ", entry.method, " is not read"));
  if (size > kMostInflated) Refuse(where, "too large once it is inflated");
  const auto content = std::make_shared<const std::string>(InflateRaw(packed, where, size));
  return ReadNpy(name, *content, content, where);
}

std::vector<Array> ReadNpz(Bytes bytes, const Owner& owner, const std::string& path) {
  std::vector<Array> arrays;
  for (const ZipEntry& entry : ReadZip(InputFile(path))) {
    arrays.push_back(ReadMember(entry, bytes, owner, path));
  }
  return arrays;
}

// IDX: two zeros, the type, the number of dims, the dims and the elements, big-endian. Only bytes
// are read, since MNIST has nothing else.

Array ReadIdx(Bytes bytes, Owner owner, const std::string& path) {
  if (bytes[2] != 8) Refuse(path, "expected an IDX file of bytes (type 8)");
  const size_t dims = static_cast<uint8_t>(bytes[3]);
  if (bytes.size() < 4 + 4 * dims) Refuse(path, "the file is cut off in its header");
  TensorSpec spec = {{}, DType::kUInt8};
  for (size_t i = 0; i < dims; ++i) {
    int64_t size = 0;
    for (size_t k = 0; k < 4; ++k) size = size << 8 | static_cast<uint8_t>(bytes[4 + 4 * i + k]);
    spec.shape.push_back(size);
  }
  return Filled("", std::move(spec), bytes.substr(4 + 4 * dims), std::move(owner), path);
}

std::vector<Array> ReadSafetensorsArrays(const std::string& path, Bytes bytes, const Owner& owner) {
  const SafetensorsFile file(path);
  int64_t size = 0;
  for (const StoredTensor& tensor : file.tensors()) {
    size = std::max(size, tensor.offset + tensor.bytes);
  }
  const auto begin = static_cast<size_t>(file.file_bytes() - size);
  std::vector<Array> arrays;
  for (const StoredTensor& tensor : file.tensors()) {
    const std::optional<DType> dtype = FromStoredName(tensor.dtype);
    if (!dtype) Refuse(path, Str(tensor.name, " has the dtype ", tensor.dtype));
    arrays.push_back(Filled(
        tensor.name, {tensor.shape, *dtype},
        bytes.substr(begin + static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes)),
        owner, Str(path, ": ", tensor.name)));
  }
  return arrays;
}

}  // namespace

std::vector<Array> ReadArrays(const std::string& path) {
  const auto file = std::make_shared<const MappedFile>(path, "an array of numbers");
  Bytes bytes = file->text();
  Owner owner = file;
  if (IsGzip(bytes)) {
    const auto content =
        std::make_shared<const std::string>(InflateGzip(bytes, path, kMostInflated));
    bytes = *content;
    owner = content;
  }
  if (bytes.starts_with(kNpyMagic)) return {ReadNpy("", bytes, owner, path)};
  if (owner == file && bytes.starts_with(kZipMagic)) return ReadNpz(bytes, owner, path);
  // Safetensors begin with the length of their header, in 64 bits; those of IDX have a dim of 0
  // there.
  if (owner == file && bytes.substr(0, 9).ends_with(Bytes("\0\0\0\0{", 5))) {
    return ReadSafetensorsArrays(path, bytes, owner);
  }
  if (bytes.size() >= 4 && bytes.starts_with(Bytes("\0\0", 2))) {
    return {ReadIdx(bytes, owner, path)};
  }
  Refuse(path, Str("expected a file of arrays (.npy, .npz, .safetensors or IDX), got ",
                   bytes.size(), " other bytes"));
}

Array ReadNpy(Bytes bytes, const std::string& where) { return ReadNpy("", bytes, nullptr, where); }

Array ReadArray(const std::string& path) {
  std::vector<Array> arrays = ReadArrays(path);
  if (arrays.size() == 1) return std::move(arrays[0]);
  Refuse(path, Str("expected one array, got ", arrays.size()));
}

Array ReadArray(const std::string& path, const std::string& name) {
  std::vector<std::string> names;
  for (Array& array : ReadArrays(path)) {
    if (array.name == name) return std::move(array);
    names.push_back(array.name);
  }
  Refuse(path, Str("there is no array \"", name, "\"", DidYouMean(name, names)));
}

std::string NpyHeader(const TensorSpec& spec, size_t least) {
  const char* type = nullptr;
  for (const NpyType& known : kNpyTypes) {
    if (known.dtype == spec.dtype) type = known.name;
  }
  if (!type) throw ConfigError(Str(DTypeName(spec.dtype), " has no place in a .npy file"));
  std::string shape = Join(spec.shape, ", ");
  if (spec.shape.size() == 1) shape += ",";
  std::string dict =
      Str("{'descr': '", type, "', 'fortran_order': False, 'shape': (", shape, "), }");
  // As NumPy does, pad the header with spaces and a newline, so that the elements are aligned to 64
  // bytes.
  constexpr size_t kAligned = 64, kBefore = 10;
  const size_t bytes = std::max(kBefore + dict.size() + 1, least);
  dict.resize((bytes + kAligned - 1) / kAligned * kAligned - kBefore - 1, ' ');
  dict += '\n';
  std::string header(kNpyMagic);
  header += std::string("\1\0", 2);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

void WriteArrays(const std::string& path, const std::vector<Array>& arrays) {
  const std::string beside = path + ".part";
  std::error_code error;
  std::filesystem::remove(beside, error);
  if (arrays.size() == 1 && arrays[0].name.empty()) {
    OutputFile file(beside);
    const std::string header = NpyHeader(arrays[0].spec);
    file.Write(header.data(), static_cast<int64_t>(header.size()));
    file.Write(arrays[0].bytes, arrays[0].spec.bytes());
    file.Sync();
  } else {
    std::vector<TensorDeclaration> declarations;
    for (const Array& array : arrays) {
      declarations.push_back({array.name, StoredName(array.spec.dtype), array.spec.shape});
    }
    SafetensorsWriter writer(beside, declarations, {});
    for (const StoredTensor& tensor : writer.tensors()) {
      const auto found = std::ranges::find(arrays, tensor.name, &Array::name);
      writer.Write(found->bytes, tensor.bytes);
    }
    writer.Finish();
  }
  std::filesystem::rename(beside, path, error);
  if (error) throw WorldError(Str("cannot write ", path, ": ", error.message()));
}

}  // namespace strata::data
