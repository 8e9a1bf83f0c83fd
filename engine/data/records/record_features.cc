// The data of records with columns of numbers, or with an image.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/files/image_file.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/records/json_lines.h"
#include "engine/data/records/labels.h"
#include "engine/data/records/record_files.h"
#include "engine/data/sample_order.h"

namespace strata::data {
namespace {

/// The fields of the input, and the target's.
std::vector<std::string> FieldsWith(std::vector<std::string> fields, const LabelWriter& labels) {
  if (!labels.field().empty()) fields.push_back(labels.field());
  return fields;
}

/// The name of a data source's first option and its files: "parquet: 1,437 images of a.parquet".
std::string What(const DataSpec& spec, int64_t size, std::string_view what,
                 const RecordFiles& files) {
  return Str(spec.kind, ": ", FormatCount(size), " ", what, " of ", files.given);
}

PreparedKey KeyOf(const RecordFiles& files, const RecordFiles* like, const std::string& what) {
  PreparedKey key = {Str(files.format, ", ", what), files.paths};
  if (like) key.files.insert(key.files.end(), like->paths.begin(), like->paths.end());
  return key;
}

/// What both kinds of data have: a number of samples, and their targets.
class WithLabels : public Dataset {
 public:
  WithLabels(const DataSpec& spec, Prepared prepared)
      : has_targets_(spec.options["targets"] != Value(false) && !spec.options["target"].is_null()),
        prepared_(std::move(prepared)),
        labels_(prepared_),
        size_(prepared_.facts["samples"].as_int()) {
    ExpectRandomReadsIfLarge(prepared_.bytes);
  }
  int64_t size() const override { return size_; }
  TensorSpec target() const override { return labels_.spec(); }
  int64_t classes() const override { return labels_.classes(); }
  std::vector<std::string> class_names() const override { return labels_.names(); }
  bool has_targets() const override { return has_targets_; }

 protected:
  const Prepared& prepared() const { return prepared_; }
  void CopyTarget(int64_t index, std::byte* to) const {
    if (to) labels_.Copy(index, to);
  }

 private:
  const bool has_targets_;
  const Prepared prepared_;
  const Labels labels_;
  const int64_t size_;
};

// ---- Columns of numbers. Prepared data has the float32 of all samples, and then the targets.

/// The shape of nested lists of numbers, by their first elements.
std::vector<int64_t> ShapeOf(const Value& value) {
  std::vector<int64_t> shape;
  for (const Value* at = &value; at->is_list(); at = &at->as_list()[0]) {
    shape.push_back(std::ssize(at->as_list()));
    if (at->as_list().empty()) break;
  }
  return shape;
}

/// Appends the numbers of a field; its lists must have this shape, that of the first record.
void AppendNumbers(const Value& value, std::span<const int64_t> shape, const std::string& field,
                   const std::string& where, std::vector<float>& numbers) {
  if (shape.empty() && (value.is_number() || value.is_bool())) {
    numbers.push_back(value.is_bool() ? value.as_bool() : static_cast<float>(value.as_double()));
    if (std::isfinite(numbers.back())) return;
  }
  const bool is_list =
      !shape.empty() && shape[0] > 0 && value.is_list() && std::ssize(value.as_list()) == shape[0];
  if (!is_list) {
    throw WorldError(Str(where, ": \"", field, "\" expects ",
                         shape.empty() ? std::string("a finite number")
                         : shape[0] == 0
                             ? std::string("numbers, since a sample has no empty inputs")
                             : Str("a list of ", shape[0], ", as the first record has"),
                         ", got ", value.Describe()));
  }
  for (const Value& one : value.as_list()) {
    AppendNumbers(one, shape.subspan(1), field, where, numbers);
  }
}

Value WriteFeatures(const RecordFiles& files, const std::vector<std::string>& columns,
                    LabelWriter& labels, PreparedWriter& to) {
  std::vector<std::vector<int64_t>> shapes;
  std::vector<float> numbers;
  files.ForEach({FieldsWith(columns, labels)}, [&](const Record& record) {
    numbers.clear();
    for (size_t i = 0; i < columns.size(); ++i) {
      const Value& value = EntryOf(record.fields, columns[i], record.where);
      if (shapes.size() == i) shapes.push_back(ShapeOf(value));
      AppendNumbers(value, shapes[i], columns[i], record.where, numbers);
    }
    to.Write(numbers.data(), numbers.size() * sizeof(numbers[0]));
    labels.Add(record);
  });
  if (labels.count() == 0) RefuseEmpty(files);
  // The shape of a single column stays; several columns become one row.
  std::vector<int64_t> shape = {std::ssize(numbers)};
  if (shapes.size() == 1 && !shapes[0].empty()) shape = shapes[0];
  Value facts = Value::MakeMap({{"samples", labels.count()}, {"shape", Value::IntList(shape)}});
  labels.Write(to, facts);
  return facts;
}

class Features : public WithLabels {
 public:
  Features(const DataSpec& spec, const RecordFiles& files, Prepared prepared)
      : WithLabels(spec, std::move(prepared)),
        spec_{this->prepared().facts["shape"].as_ints(), DType::kFloat32},
        what_(What(spec, size(), "rows", files)) {}
  TensorSpec input() const override { return spec_; }
  std::string description() const override { return what_; }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    CopyTarget(sample.index, target);
    if (!input) return;
    const auto bytes = static_cast<size_t>(spec_.bytes());
    std::memcpy(input, prepared().bytes.data() + static_cast<size_t>(sample.index) * bytes, bytes);
  }

 private:
  const TensorSpec spec_;
  const std::string what_;
};

// ---- Images. Prepared data has the Place of each, and then the targets.

struct Place {
  int64_t file;  ///< its number in RecordFiles::paths
  BytesPlace bytes;
};

Value WritePlaces(const RecordFiles& files, const std::string& image, LabelWriter& labels,
                  PreparedWriter& to) {
  int64_t at_once = 0;
  for (size_t i = 0; i < files.paths.size(); ++i) {
    const auto file = files.Open(i);
    file->ForEach({FieldsWith({}, labels), false, image}, [&](const Record& record) {
      const Place place = {static_cast<int64_t>(i), record.bytes};
      to.Write(&place, sizeof(place));
      labels.Add(record);
    });
    at_once = std::max(at_once, file->records_at_once());
  }
  if (labels.count() == 0) RefuseEmpty(files);
  Value facts = Value::MakeMap({{"samples", labels.count()}, {"at_once", at_once}});
  labels.Write(to, facts);
  return facts;
}

class Images : public WithLabels {
 public:
  Images(const DataSpec& spec, const RecordFiles& files, Prepared prepared)
      : WithLabels(spec, std::move(prepared)),
        field_(spec.options["image"].as_string()),
        side_(static_cast<int>(spec.options["size"].as_int())),
        channels_(static_cast<int>(spec.options["channels"].as_int())),
        is_tar_(files.format == "webdataset"),
        paths_(files.paths),
        what_(What(spec, size(), Str("images of ", side_, "x", side_), files)) {
    at_once_ = this->prepared().facts["at_once"].as_int();
    window_ = spec.options["window"].is_null() ? 0 : spec.options["window"].as_int();
    const auto cache = MakeBlockCache(BlocksOfWindow(window_, at_once_));
    for (size_t i = 0; i < paths_.size(); ++i) files_.push_back(files.Open(i, cache));
  }
  TensorSpec input() const override { return {{channels_, side_, side_}, DType::kFloat32}; }
  std::vector<std::string> notes() const override {
    if (window_ > 0 || at_once_ < 2 || at_once_ >= size()) return {};
    return {Str(what_, " are decoded up to ", FormatCount(at_once_),
                " rows at once, for each sample of a shuffled epoch; window=",
                SampleOrder::kRuns * at_once_, " shuffles so many among each other, and decodes ",
                "rows about once")};
  }
  std::string description() const override { return what_; }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    CopyTarget(sample.index, target);
    if (!input) return;
    Place place = {};
    std::memcpy(&place, prepared().bytes.data() + static_cast<size_t>(sample.index) * sizeof(place),
                sizeof(place));
    const auto file = static_cast<size_t>(place.file);
    const std::string bytes = files_[file]->ReadBytes(place.bytes, field_);
    const Image image = DecodeImage(
        bytes, channels_, side_, Str(paths_[file], is_tar_ ? ": byte " : ": row ", place.bytes.at));
    ResizeToPlanes(image, side_, side_, true, reinterpret_cast<float*>(input));
  }

 private:
  const std::string field_;
  const int side_, channels_;
  const bool is_tar_;
  const std::vector<std::string> paths_;
  const std::string what_;
  int64_t at_once_ = 0, window_ = 0;
  std::vector<std::unique_ptr<RecordFile>> files_;
};

}  // namespace

std::unique_ptr<Dataset> OpenRecordFeatures(const DataSpec& spec, const RecordFiles& files,
                                            const RecordFiles* like) {
  const Value& options = spec.options;
  std::vector<std::string> columns;
  for (const Value& column : options["columns"].as_list()) columns.push_back(column.as_string());
  const std::string what =
      Str("columns, version 1, ", options["columns"].ToLua(), ", ", KeyOfLabels(options));
  return std::make_unique<Features>(spec, files,
                                    Prepare(KeyOf(files, like, what), [&](PreparedWriter& to) {
                                      LabelWriter labels(options, like);
                                      return WriteFeatures(files, columns, labels, to);
                                    }));
}

std::unique_ptr<Dataset> OpenRecordImages(const DataSpec& spec, const RecordFiles& files,
                                          const RecordFiles* like) {
  const Value& options = spec.options;
  const std::string& image = options["image"].as_string();
  const std::string what =
      Str("images, version 1, ", options["image"].ToLua(), ", ", KeyOfLabels(options));
  return std::make_unique<Images>(spec, files,
                                  Prepare(KeyOf(files, like, what), [&](PreparedWriter& to) {
                                    LabelWriter labels(options, like);
                                    return WritePlaces(files, image, labels, to);
                                  }));
}

}  // namespace strata::data
