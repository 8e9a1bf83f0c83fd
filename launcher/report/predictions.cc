// Writes predictions. Arrays reserve space for their header, which is written when the number of
// samples is known.
#include "launcher/report/predictions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/weights/convert_elements.h"
#include "engine/data/files/array_file.h"
#include "engine/data/files/csv_file.h"
#include "engine/layers/layer_types.h"

namespace strata::launcher {
namespace {

constexpr int64_t kHeaderBytes = 256;

void Pad(std::string& text, size_t size) {
  if (text.size() > size) throw ConfigError("outputs have too many dims for this file");
  text.resize(size, ' ');
}

std::string NumpyHeader(const TensorSpec& spec) {
  std::string header = data::NpyHeader(spec, kHeaderBytes);
  Pad(header, kHeaderBytes);
  return header;
}

std::string SafetensorsHeader(const TensorSpec& spec) {
  Value entry;
  entry.Set("dtype", StoredName(spec.dtype)).Set("shape", Value::IntList(spec.shape));
  entry.Set("data_offsets", Value::IntList({0, spec.bytes()}));
  std::string text = Value::MakeMap({{"output", entry}}).ToJson();
  Pad(text, kHeaderBytes - 8);
  const uint64_t length = text.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text;
}

/// The numbers of rows of a floating dtype.
std::vector<double> NumbersOf(const OutputRows& rows) {
  std::vector<double> numbers(static_cast<size_t>(rows.spec.elements()));
  ConvertElements(rows.spec.dtype, rows.bytes.data(), DType::kFloat64, numbers.data(),
                  rows.spec.elements());
  return numbers;
}

/// The numbers of rows of another dtype, exactly; a double cannot hold every 64-bit integer.
std::vector<int64_t> IntegersOf(const OutputRows& rows) {
  std::vector<int64_t> numbers(static_cast<size_t>(rows.spec.elements()));
  const auto item = static_cast<size_t>(DTypeSize(rows.spec.dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, rows.bytes.data() + i * item, item);
    const size_t shift = 64 - 8 * item;  // moves the sign bit to the top, and back
    const bool has_sign = rows.spec.dtype != DType::kUInt8 && rows.spec.dtype != DType::kBool;
    const auto number = static_cast<int64_t>(bits << shift);
    numbers[i] = has_sign ? number >> shift : static_cast<int64_t>(bits);
  }
  return numbers;
}

std::string NumberText(double number, DType dtype) {
  return Printf(dtype == DType::kFloat64 ? "%.17g" : "%.9g", number);
}

/// A number as text. JSON has no infinite numbers and no NaN, so those become strings there.
std::string CellText(double number, DType dtype, bool is_csv) {
  const std::string text = NumberText(number, dtype);
  return is_csv || std::isfinite(number) ? text : Str('"', text, '"');
}

std::vector<std::string> TextsOf(const OutputRows& rows, bool is_csv) {
  std::vector<std::string> texts;
  if (IsFloating(rows.spec.dtype)) {
    for (const double number : NumbersOf(rows)) {
      texts.push_back(CellText(number, rows.spec.dtype, is_csv));
    }
  } else {
    for (const int64_t number : IntegersOf(rows)) texts.push_back(std::to_string(number));
  }
  return texts;
}

/// The index of the largest number, and its probability: the number itself if the row has
/// probabilities, else its softmax. The probability is NaN if the row has a NaN or its maximum is
/// infinite.
std::pair<size_t, double> LargestOf(std::span<const double> row, bool probabilities) {
  const auto largest = std::ranges::max_element(row);
  const auto place = static_cast<size_t>(largest - row.begin());
  const bool has_largest =
      std::isfinite(*largest) && std::ranges::none_of(row, [](double x) { return std::isnan(x); });
  if (!has_largest) return {place, std::numeric_limits<double>::quiet_NaN()};
  if (probabilities) return {place, *largest};
  double sum = 0;
  for (const double output : row) sum += std::exp(output - *largest);
  return {place, 1 / sum};
}

void CheckIsOneOf(const std::string& loss_of_labels) {
  if (loss_of_labels.empty()) return;
  throw ConfigError(
      Str("classes: with ", loss_of_labels, " each output is a label of its own, and a sample may ",
          "have several: write the outputs, without --as_classes and --class_names; the labels ",
          "are those above ", loss_of_labels == "BCELoss" ? "0.5" : "0"));
}

}  // namespace

class Predictions::Format {
 public:
  virtual ~Format() = default;
  /// The rows as bytes. `first`: the number of the first of these samples.
  virtual std::string Bytes(const Predicted& blocks, int64_t first) const = 0;
  /// The head of the file, written when all rows are known: kHeaderBytes, or nothing.
  virtual std::string Head(const TensorSpec& all) const = 0;
};

class Predictions::Array : public Predictions::Format {
 public:
  using Header = std::string (*)(const TensorSpec&);
  explicit Array(Header header) : header_(header) {}
  /// The bytes of all outputs, one output after the other.
  std::string Bytes(const Predicted& blocks, int64_t) const override {
    std::string bytes;
    for (size_t k = 0; k < blocks[0].size(); ++k) {
      for (const auto& block : blocks) bytes += block[k].bytes;
    }
    return bytes;
  }
  std::string Head(const TensorSpec& all) const override { return header_(all); }

 private:
  const Header header_;
};

class Predictions::Lines : public Predictions::Format {
 public:
  Lines(PredictionOptions options, bool is_csv) : options_(std::move(options)), is_csv_(is_csv) {}

  std::string Bytes(const Predicted& blocks, int64_t first) const override {
    std::string text;
    int64_t sample = first;
    for (const auto& block : blocks) {
      Rows<double> classes;
      std::vector<Rows<std::string>> outputs;
      if (options_.classes) {
        classes = {block[0].spec, NumbersOf(block[0])};
      } else {
        for (const OutputRows& rows : block) outputs.push_back({rows.spec, TextsOf(rows, is_csv_)});
      }
      if (is_csv_ && sample == 0) text += Names(outputs.empty() ? 0 : outputs[0].width());
      for (int64_t i = 0; i < block[0].spec.shape[0]; ++i, ++sample) {
        text += Begin(sample);
        text += options_.classes ? ClassText(classes.Of(i)) : OutputText(sample, i, outputs);
      }
    }
    return text;
  }
  std::string Head(const TensorSpec&) const override { return ""; }

 private:
  /// The rows of one output.
  template <class T>
  struct Rows {
    TensorSpec spec;
    std::vector<T> items;

    size_t width() const {
      return items.size() / static_cast<size_t>(std::max<int64_t>(spec.shape[0], 1));
    }
    std::span<const T> Of(int64_t i) const {
      return std::span(items).subspan(static_cast<size_t>(i) * width(), width());
    }
  };

  std::string Names(size_t width) const {
    std::string head = options_.file_of ? "file,sample" : "sample";
    if (options_.classes) return head + ",class,probability\n";
    for (size_t i = 0; i < width; ++i) head += Str(",output_", i);
    return head + "\n";
  }

  std::string Begin(int64_t sample) const {
    const std::string file = options_.file_of ? options_.file_of(sample) : "";
    if (is_csv_) return Str(options_.file_of ? data::CsvField(file) + "," : "", sample, ",");
    return Str("{", options_.file_of ? Str("\"file\": ", Value(file).ToJson(), ", ") : "",
               "\"sample\": ", sample, ", ");
  }

  std::string OutputText(int64_t sample, int64_t i,
                         const std::vector<Rows<std::string>>& outputs) const {
    std::vector<std::string> lists;
    for (size_t k = 0; k < outputs.size(); ++k) {
      std::span<const std::string> row = outputs[k].Of(i);
      if (!is_csv_ && options_.filled_up.contains(k)) {
        const int64_t longest = std::max<int64_t>(outputs[k].spec.shape.at(1), 1);
        const int64_t length = std::min(options_.length_of(sample), longest);
        row = row.first(static_cast<size_t>(length * (std::ssize(row) / longest)));
      }
      const std::string numbers = Join(row, is_csv_ ? "," : ", ");
      if (is_csv_) return numbers + "\n";
      lists.push_back(
          Str("\"output", outputs.size() > 1 ? Str("_", k) : "", "\": [", numbers, "]"));
    }
    return Join(lists, ", ") + "}\n";
  }

  std::string ClassText(std::span<const double> row) const {
    const auto [number, probability] = LargestOf(row, options_.probabilities);
    const std::string share = CellText(probability, DType::kFloat32, is_csv_);
    Value name;  // null if no output is the largest
    if (!std::isnan(probability)) {
      name = options_.names.empty() ? Value(static_cast<int64_t>(number))
                                    : Value(options_.names[number]);
    }
    if (is_csv_) {
      const std::string cell = name.is_string() ? data::CsvField(name.as_string())
                               : name.is_null() ? ""
                                                : name.ToJson();
      return Str(cell, ",", share, "\n");
    }
    return Str("\"class\": ", name.ToJson(), ", \"probability\": ", share, "}\n");
  }

  const PredictionOptions options_;
  const bool is_csv_;
};

Predictions::Predictions(const std::string& path, PredictionOptions options,
                         const std::string& what)
    : path_(path) {
  const bool is_csv = path.ends_with(".csv"), is_text = is_csv || path.ends_with(".jsonl");
  const bool is_numpy = path.ends_with(".npy");
  if (!is_text && !is_numpy && !path.ends_with(".safetensors")) {
    throw ConfigError(
        Str("predictions go to a file that ends in .npy, .safetensors, .csv or .jsonl, ", "not to ",
            path));
  }
  if (!options.names.empty()) options.classes = true;
  if (options.classes) CheckIsOneOf(options.loss_of_labels);
  if (options.classes && !is_text) throw ConfigError("classes are written as .csv or .jsonl only");
  if (options.classes) class_names_ = options.names.size();
  has_classes_ = options.classes;
  // The number 3 is the version of the format of parts, which may change between versions of
  // strata.
  const std::string how =
      Str(what, options.classes ? " 3 classes " : " 3 ", Join(options.names, ","));
  if (is_text) {
    format_ = std::make_unique<Lines>(std::move(options), is_csv);
  } else {
    format_ = std::make_unique<Array>(is_numpy ? NumpyHeader : SafetensorsHeader);
  }
  file_ = std::make_unique<PartFile>(path, how, is_text ? 0 : kHeaderBytes);
  const Value& state = file_->state();
  if (state.is_null()) return;
  samples_ = state["samples"].as_int();
  for (const Value& output : state["row"].as_list()) {
    row_.push_back({output["shape"].as_ints(), ParseDType(output["dtype"].as_string())});
  }
}

Predictions::~Predictions() = default;

void Predictions::Add(const Predicted& blocks) {
  if (blocks.empty()) return;
  int64_t samples = samples_;
  for (const auto& block : blocks) {
    TensorSpecs row;
    for (const OutputRows& rows : block) {
      row.push_back({{rows.spec.shape.begin() + 1, rows.spec.shape.end()}, rows.spec.dtype});
    }
    try {
      CheckRows(row);
    } catch (const ConfigError&) {
      file_->Discard();
      throw;
    }
    row_ = std::move(row);
    samples += block[0].spec.shape[0];
  }
  const std::string bytes = format_->Bytes(blocks, samples_);
  samples_ = samples;
  file_->Add(bytes, Value::MakeMap({{"samples", samples_}, {"row", ToValue(row_)}}));
}

void Predictions::CheckRows(const TensorSpecs& row) const {
  const bool is_json = path_.ends_with(".jsonl");
  if (row.size() > 1 && !is_json && !path_.ends_with(".safetensors")) {
    throw ConfigError(Str("the last layer gives ", row.size(), " outputs a sample, ",
                          ToString(row, ", "), ": .safetensors and .jsonl take several, and ",
                          "e:predict in Lua gives them"));
  }
  const bool may_differ = is_json && !has_classes_;
  if (!row_.empty() && (may_differ ? row.size() != row_.size() : row != row_)) {
    throw ConfigError(Str("the last layer gives rows of several shapes: ", ToString(row_), ", ",
                          ToString(row), has_classes_ ? "" : "; .jsonl takes them"));
  }
  if (path_.ends_with(".npy") && row[0].dtype == DType::kBFloat16) {
    throw ConfigError("numpy has no bfloat16: write the predictions as .safetensors");
  }
  if (has_classes_) CheckClasses(row);
}

void Predictions::CheckClasses(const TensorSpecs& row) const {
  if (row.size() != 1 || row[0].shape.size() != 1 || !IsFloating(row[0].dtype)) {
    throw ConfigError(Str("classes need outputs (samples, classes), the last layer gives ",
                          ToString(row), " a row"));
  }
  const int64_t classes = row[0].shape[0];
  if (classes == 1) {
    throw ConfigError(
        "classes need an output for each, the last layer gives one score a sample, "
        "which is written without --as_classes");
  }
  if (class_names_ > 0 && static_cast<size_t>(classes) != class_names_) {
    throw ConfigError(Str("there are ", class_names_, " names for ", classes, " classes"));
  }
}

void Predictions::Finish() {
  if (row_.size() > 1 && path_.ends_with(".safetensors")) return FinishSeveral();
  TensorSpec all = row_.empty() ? TensorSpec() : row_[0];
  all.shape.insert(all.shape.begin(), samples_);
  file_->Finish(format_->Head(all));
}

/// Writes a file with several outputs. Parts contain the rows of all outputs; the file has all rows
/// of an output together.
void Predictions::FinishSeveral() {
  const std::string beside = PlaceBeside(path_);
  std::vector<TensorDeclaration> outputs;
  // Maps the name of an output to its offset and length within a sample's bytes.
  std::map<std::string, std::pair<int64_t, int64_t>> places;
  int64_t sample_bytes = 0;
  for (size_t k = 0; k < row_.size(); ++k) {
    std::vector<int64_t> shape = row_[k].shape;
    shape.insert(shape.begin(), samples_);
    outputs.push_back({Str("output_", k), StoredName(row_[k].dtype), std::move(shape)});
    places[outputs.back().name] = {sample_bytes, row_[k].bytes()};
    sample_bytes += row_[k].bytes();
  }
  SafetensorsWriter writer(beside, outputs, {});
  for (const StoredTensor& output : writer.tensors()) {
    const auto [before, bytes] = places.at(output.name);
    for (int64_t part = 0; part < file_->parts() && sample_bytes > 0; ++part) {
      const std::string rows = file_->Part(part);
      const int64_t samples = std::ssize(rows) / sample_bytes;
      writer.Write(rows.data() + samples * before, samples * bytes);
    }
  }
  writer.Finish();
  file_->FinishAs(beside);
}

}  // namespace strata::launcher
