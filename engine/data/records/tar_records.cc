// The reader of WebDataset's tars. Fields are decoded by the last part of their names: "cls" and
// its likes are whole numbers, "txt" texts, "json" any JSON, "npy" arrays as lists of numbers. A
// field that no file of a sample has is looked for in its "json". Of images only the place is kept;
// "jpg;png" is the first of both that a sample has.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value_json.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/data/files/array_file.h"
#include "engine/data/files/data_progress.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/files/prepared.h"
#include "engine/data/records/json_lines.h"
#include "engine/data/records/record_files.h"
#include "engine/data/records/tar_file.h"

namespace strata::data {
namespace {

constexpr std::array kWhole = {"cls", "cls2", "class", "count", "index", "inx", "id"};
constexpr std::array kTexts = {"txt", "text", "transcript"};
constexpr std::array kJson = {"json", "jsn"};
constexpr std::array kImages = {"jpg", "jpeg", "png"};
constexpr size_t kMostLevels = 100;

template <size_t kCount>
bool IsOf(const std::array<const char*, kCount>& endings, const std::string& field) {
  const std::string last = field.substr(field.rfind('.') + 1);
  return std::ranges::find(endings, last) != endings.end();
}

/// The elements of an array as nested lists.
Value ListOf(const Array& array, size_t dim, const std::byte*& at, const std::string& where) {
  const auto number = [&]<class T>(T value) -> Value {
    std::memcpy(&value, at, sizeof(value));
    at += sizeof(value);
    if constexpr (std::is_floating_point_v<T>) return static_cast<double>(value);
    return static_cast<int64_t>(value);
  };
  if (dim < array.spec.shape.size()) {
    Value::List list;
    for (int64_t i = 0; i < array.spec.shape[dim]; ++i) {
      list.push_back(ListOf(array, dim + 1, at, where));
    }
    return list;
  }
  switch (array.spec.dtype) {
    case DType::kFloat32:
      return number(float{});
    case DType::kFloat64:
      return number(double{});
    case DType::kInt64:
      return number(int64_t{});
    case DType::kInt32:
      return number(int32_t{});
    case DType::kInt16:
      return number(int16_t{});
    case DType::kInt8:
      return number(int8_t{});
    case DType::kUInt8:
      return number(uint8_t{});
    default:
      throw WorldError(Str(where, ": an array of ", DTypeName(array.spec.dtype),
                           " is not read; save it as float32"));
  }
}

Value Decode(std::string_view bytes, const std::string& field, const std::string& where) {
  if (IsOf(kTexts, field)) {
    const std::string trouble = Utf8Trouble(bytes);
    if (!trouble.empty()) throw WorldError(Str(where, ": ", trouble));
    return bytes;
  }
  if (IsOf(kJson, field)) return ParseStrictJson(bytes, kMostLevels, where);
  if (IsOf(kWhole, field)) {
    if (const auto number = ParseWhole<int64_t>(Trim(bytes))) return *number;
    throw WorldError(
        Str(where, ": expected a whole number from 0 on, got ", QuotedName(bytes.substr(0, 100))));
  }
  if (field.ends_with("npy")) {
    const Array array = ReadNpy(bytes, where);
    if (array.spec.elements() == 0) throw WorldError(Str(where, ": an array without elements"));
    const std::byte* at = array.bytes;
    return ListOf(array, 0, at, where);
  }
  throw WorldError(Str(where, ": ",
                       IsOf(kImages, field) ? "an image is read by image=\"" + field + "\""
                                            : "files of this kind are not read",
                       "; fields are ", Join(kWhole, ", "), "; ", Join(kTexts, ", "), "; ",
                       Join(kJson, ", "), "; npy; and for images ", Join(kImages, ", ")));
}

/// The sample and the field of a member. Files without an ending, such as README, and hidden ones
/// belong to no sample: then the field is empty.
struct MemberName {
  explicit MemberName(const std::string& name) : key(name) {
    const size_t base = name.rfind('/') + 1;  // 0 if there is no folder
    const size_t dot = name.find('.', base);
    if (dot == std::string::npos || dot == base) return;
    key = name.substr(0, dot);
    field = Lower(name.substr(dot + 1));
  }
  std::string key, field;
};

/// A sample of a tar.
class TarSample {
 public:
  TarSample(std::string_view tar, const std::string& path, std::string key)
      : tar_(tar), path_(path), key_(std::move(key)) {}
  const std::string& key() const { return key_; }
  std::string where() const { return Str(path_, ": sample ", QuotedName(key_)); }

  void Add(const std::string& field, const TarMember& member) {
    if (members_.emplace(field, member).second) return;
    throw WorldError(Str(path_, ": byte ", member.offset, ": sample ", QuotedName(key_), " has ",
                         QuotedName(field), " twice"));
  }

  void Give(const Wanted& wanted, const RecordBody& body) const {
    const std::string place = where();
    Value fields = Value::MakeMap(), json;
    const bool has_all = std::ranges::all_of(
        wanted.fields, [&](const std::string& field) { return members_.contains(field); });
    if (!has_all && members_.contains("json")) json = Read("json");
    for (const std::string& field : wanted.fields) {
      const Value* const inside = json.is_map() ? json.Find(field) : nullptr;
      if (members_.contains(field)) {
        fields.Set(field, Read(field));
      } else if (inside) {
        fields.Set(field, *inside);
      } else if (!wanted.any) {
        Refuse(field, json);
      }
    }
    if (wanted.any && fields.as_map().empty()) Refuse(wanted.fields[0], json);
    BytesPlace bytes;
    if (!wanted.bytes.empty()) {
      const TarMember& image = ImageOf(wanted.bytes, json);
      bytes = {image.offset, image.size};
    }
    body({fields, place, bytes});
  }

 private:
  [[noreturn]] void Refuse(const std::string& field, const Value& json) const {
    std::vector<std::string> names;
    for (const auto& [name, member] : members_) names.push_back(name);
    if (json.is_map()) {
      for (const auto& [name, value] : json.as_map()) names.push_back(name);
    }
    throw WorldError(Str(where(), ": there is no \"", field, "\"", DidYouMean(field, names),
                         IsApart()
                             ? "; its other files lie elsewhere in the tar, but the files of a "
                               "sample must follow each other (tar --sort=name)"
                             : ""));
  }
  /// True if the tar has files of this sample that do not follow the others.
  bool IsApart() const {
    size_t files = 0;
    ForEachTarMember(tar_, path_, [&](const TarMember& member) {
      const MemberName name(member.name);
      files += name.key == key_ && !name.field.empty();
    });
    return files > members_.size();
  }
  Value Read(const std::string& field) const {
    const TarMember& member = members_.at(field);
    return Decode(tar_.substr(static_cast<size_t>(member.offset), static_cast<size_t>(member.size)),
                  field, Str(path_, ": ", QuotedName(member.name)));
  }
  const TarMember& ImageOf(const std::string& endings, const Value& json) const {
    for (const std::string& ending : Split(endings, ';')) {
      const auto found = members_.find(ending);
      if (found != members_.end()) return found->second;
    }
    Refuse(endings, json);
  }

  const std::string_view tar_;
  const std::string& path_;
  const std::string key_;
  std::map<std::string, TarMember> members_;
};

class TarRecords : public RecordFile {
 public:
  explicit TarRecords(std::string path) : path_(std::move(path)), stamp_(StampOf(path_)) {}

  void ForEach(const Wanted& wanted, const RecordBody& body) const override {
    const MappedFile file(path_, "a tar");
    DataProgress progress(Reading(path_), std::ssize(file.text()));
    constexpr int64_t kRead = int64_t{16} << 20;  // bytes that stay in this process's memory
    int64_t released = 0;
    std::unique_ptr<TarSample> sample;
    const auto give = [&] {
      if (sample) sample->Give(wanted, body);
    };
    ForEachTarMember(file.text(), path_, [&](const TarMember& member) {
      const MemberName name(member.name);
      if (name.field.empty()) return;
      if (!sample || sample->key() != name.key) {
        give();
        sample = std::make_unique<TarSample>(file.text(), path_, name.key);
        progress.At(member.offset);
        if (member.offset >= released + kRead) {
          released = member.offset;
          file.Release(static_cast<size_t>(released));
        }
      }
      sample->Add(name.field, member);
    });
    give();
  }

  std::string ReadBytes(const BytesPlace& place, const std::string&) const override {
    const InputFile file(path_, "a tar");
    if (const std::string now = StampOf(path_); now != stamp_) {
      throw WorldError(Str(path_, ": the file has changed since it was opened: expected ", stamp_,
                           ", got ", now));
    }
    std::string bytes(static_cast<size_t>(place.size), '\0');
    file.ReadAt(place.at, bytes.data(), place.size);
    return bytes;
  }

 private:
  const std::string path_, stamp_;
};

}  // namespace

std::unique_ptr<RecordFile> OpenTarRecords(const std::string& path) {
  return std::make_unique<TarRecords>(path);
}

}  // namespace strata::data
