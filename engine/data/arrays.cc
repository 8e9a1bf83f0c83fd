// The data sources "npy", "npz", "safetensors" and "idx": arrays whose dim 0 counts the samples.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/files/array_file.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/sources.h"

namespace strata::data {
namespace {

TensorSpec OfOne(const Array& array) {
  TensorSpec spec = array.spec;
  spec.shape.erase(spec.shape.begin());
  return spec;
}

template <class T>
int64_t MostLabel(const Array& array) {
  int64_t most = -1;
  for (int64_t i = 0; i < array.spec.shape[0]; ++i) {
    T value;
    std::memcpy(&value, array.bytes + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    if (static_cast<int64_t>(value) < 0) return -1;
    most = std::max(most, static_cast<int64_t>(value));
  }
  return most;
}

/// The number of classes, one more than the largest label. 0 if the targets are not labels: numbers
/// with a fraction, several per sample, or some that are negative.
int64_t ClassesOf(const Array& array) {
  if (array.spec.shape.size() != 1) return 0;
  switch (array.spec.dtype) {
    case DType::kUInt8:
      return MostLabel<uint8_t>(array) + 1;
    case DType::kInt8:
      return MostLabel<int8_t>(array) + 1;
    case DType::kInt16:
      return MostLabel<int16_t>(array) + 1;
    case DType::kInt32:
      return MostLabel<int32_t>(array) + 1;
    case DType::kInt64:
      return MostLabel<int64_t>(array) + 1;
    default:
      return 0;
  }
}

std::span<const std::byte> RowsOf(const Array& array, int64_t begin, int64_t end) {
  const int64_t bytes = array.spec.bytes() / array.spec.shape[0];
  return {array.bytes + begin * bytes, static_cast<size_t>((end - begin) * bytes)};
}

void CopyRow(const Array& array, int64_t index, std::byte* to) {
  const std::span<const std::byte> row = RowsOf(array, index, index + 1);
  if (!row.empty()) std::memcpy(to, row.data(), row.size());
}

/// Lets the system read the rows of a batch side by side.
void ReadRowsSoon(const Array& array, std::span<const int64_t> indices) {
  for (size_t i = 0; i < indices.size();) {
    const size_t first = i++;
    while (i < indices.size() && indices[i] == indices[i - 1] + 1) ++i;
    ReadSoon(RowsOf(array, indices[first], indices[i - 1] + 1));
  }
}

class Arrays : public Dataset {
 public:
  Arrays(const DataSpec& spec, Array input, Array target)
      : kind_(spec.kind),
        has_targets_(spec.options["targets"] != Value(false)),
        input_(std::move(input)),
        target_(std::move(target)),
        classes_(ClassesOf(target_)) {
    // Only now, since ClassesOf() goes through the labels in order.
    for (const Array* array : {&input_, &target_}) {
      ExpectRandomReads(RowsOf(*array, 0, array->spec.shape[0]));
    }
  }
  int64_t size() const override { return input_.spec.shape[0]; }
  TensorSpec input() const override { return OfOne(input_); }
  TensorSpec target() const override { return OfOne(target_); }
  int64_t classes() const override { return classes_; }
  bool has_targets() const override { return has_targets_; }
  std::string description() const override {
    return Str(kind_, ": ", FormatCount(size()), " samples of ", input().ToString(),
               has_targets_ ? Str(" -> ", target().ToString()) : "");
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    if (input) CopyRow(input_, sample.index, input);
    if (target) CopyRow(target_, sample.index, target);
  }
  void ReadBatch(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                 std::byte* target) const override {
    if (input) ReadRowsSoon(input_, indices);
    if (target) ReadRowsSoon(target_, indices);
    Dataset::ReadBatch(indices, epoch, input, target);
  }

 private:
  const std::string kind_;
  const bool has_targets_;
  const Array input_, target_;
  const int64_t classes_;
};

/// MNIST's files of bytes: images become floats from 0 to 1, labels become int64.
class Idx : public Dataset {
 public:
  Idx(Array images, Array labels)
      : images_(std::move(images)), labels_(std::move(labels)), classes_(ClassesOf(labels_)) {}
  int64_t size() const override { return labels_.spec.shape[0]; }
  TensorSpec input() const override {
    return {{1, images_.spec.shape[1], images_.spec.shape[2]}, DType::kFloat32};
  }
  TensorSpec target() const override { return {{}, DType::kInt64}; }
  int64_t classes() const override { return classes_; }
  std::string description() const override {
    return Str("idx: ", FormatCount(size()), " images of ", images_.spec.shape[2], "x",
               images_.spec.shape[1], ", ", classes_, " classes");
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const auto index = static_cast<size_t>(sample.index);
    const int64_t label = static_cast<uint8_t>(labels_.bytes[index]);
    if (target) std::memcpy(target, &label, sizeof(label));
    if (!input) return;
    const auto pixels = static_cast<size_t>(Idx::input().elements());
    const std::byte* from = images_.bytes + index * pixels;
    auto* to = reinterpret_cast<float*>(input);
    for (size_t i = 0; i < pixels; ++i) to[i] = static_cast<float>(from[i]) / 255;
  }

 private:
  const Array images_, labels_;
  const int64_t classes_;
};

void CheckSamples(const Array& array, const std::string& path) {
  if (!array.spec.shape.empty() && array.spec.shape[0] > 0) return;
  throw WorldError(Str(path, ": expected an array whose dim 0 counts the samples, got ",
                       array.name.empty() ? "" : array.name + ", ", array.spec.ToString()));
}

void CheckPair(const Array& input, const std::string& input_path, const Array& target,
               const std::string& target_path) {
  CheckSamples(input, input_path);
  CheckSamples(target, target_path);
  if (input.spec.shape[0] == target.spec.shape[0]) return;
  throw WorldError(Str(target_path, ": expected ", input.spec.shape[0], " targets, one for each ",
                       "sample of ", input_path, ", got ", target.spec.shape[0]));
}

}  // namespace

std::unique_ptr<Dataset> OpenNpy(const DataSpec& spec, const DatasetContext& context) {
  const std::string path = ResolvePath(spec.options["input"].as_string(), context);
  const Value& option = spec.options["target"];
  const std::string target_path =
      option.is_null() ? path : ResolvePath(option.as_string(), context);
  Array input = ReadArray(path);
  Array target = option.is_null() ? input : ReadArray(target_path);
  CheckPair(input, path, target, target_path);
  return std::make_unique<Arrays>(spec, std::move(input), std::move(target));
}

std::unique_ptr<Dataset> OpenNamedArrays(const DataSpec& spec, const DatasetContext& context) {
  const std::string path = ResolvePath(spec.options["path"].as_string(), context);
  Array input = ReadArray(path, spec.options["input"].as_string());
  const Value& name = spec.options["target"];
  Array target = name.is_null() ? input : ReadArray(path, name.as_string());
  CheckPair(input, path, target, path);
  return std::make_unique<Arrays>(spec, std::move(input), std::move(target));
}

std::unique_ptr<Dataset> OpenIdx(const DataSpec& spec, const DatasetContext& context) {
  const std::string images_path = ResolvePath(spec.options["images"].as_string(), context);
  const std::string labels_path = ResolvePath(spec.options["labels"].as_string(), context);
  Array images = ReadArray(images_path), labels = ReadArray(labels_path);
  const auto check = [](const Array& array, size_t dims, const std::string& path,
                        const char* what) {
    if (array.spec.shape.size() == dims && array.spec.dtype == DType::kUInt8) return;
    throw WorldError(Str(path, ": expected ", what, ", got ", array.spec.ToString()));
  };
  check(images, 3, images_path, "bytes of images (samples, height, width)");
  check(labels, 1, labels_path, "bytes of labels (samples)");
  CheckPair(images, images_path, labels, labels_path);
  return std::make_unique<Idx>(std::move(images), std::move(labels));
}

}  // namespace strata::data
