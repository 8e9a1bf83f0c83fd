// Arrays leave room for their header, which is written when their length is known.
#include "launcher/report/predictions/predictions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value/value.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/weights/convert_elements.h"
#include "engine/data/files/array_file.h"
#include "engine/data/files/csv_file.h"

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

std::vector<double> NumbersOf(const Predicted& rows) {
  std::vector<double> numbers(static_cast<size_t>(rows.spec.elements()));
  if (IsFloating(rows.spec.dtype)) {
    ConvertElements(rows.spec.dtype, rows.bytes.data(), DType::kFloat64, numbers.data(),
                    rows.spec.elements());
    return numbers;
  }
  const auto item = static_cast<size_t>(DTypeSize(rows.spec.dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, rows.bytes.data() + i * item, item);
    const size_t shift = 64 - 8 * item;  // the sign's bit to the top, and back
    const bool has_sign = rows.spec.dtype != DType::kUInt8 && rows.spec.dtype != DType::kBool;
    numbers[i] = has_sign ? static_cast<double>(static_cast<int64_t>(bits << shift) >> shift)
                          : static_cast<double>(bits);
  }
  return numbers;
}

std::string NumberText(double number, DType dtype) {
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), dtype == DType::kFloat64 ? "%.17g" : "%.9g", number);
  return text.data();
}

/// The place of the largest, and its share of the sum of exponentials.
std::pair<size_t, double> LargestOf(std::span<const double> row) {
  const auto largest = std::ranges::max_element(row);
  double sum = 0;
  for (const double output : row) sum += std::exp(output - *largest);
  return {static_cast<size_t>(largest - row.begin()), 1 / sum};
}

}  // namespace

class Predictions::Format {
 public:
  virtual ~Format() = default;
  /// Rows as bytes; `first`: the number of the first of these samples.
  virtual std::string Bytes(const Predicted& rows, int64_t first) const = 0;
  /// What the file begins with, once all rows are known; of kHeaderBytes, or nothing.
  virtual std::string Head(const TensorSpec& all) const = 0;
};

class Predictions::Array : public Predictions::Format {
 public:
  using Header = std::string (*)(const TensorSpec&);
  explicit Array(Header header) : header_(header) {}
  std::string Bytes(const Predicted& rows, int64_t) const override { return rows.bytes; }
  std::string Head(const TensorSpec& all) const override { return header_(all); }

 private:
  const Header header_;
};

class Predictions::Lines : public Predictions::Format {
 public:
  Lines(PredictionOptions options, bool is_csv) : options_(std::move(options)), is_csv_(is_csv) {}

  std::string Bytes(const Predicted& rows, int64_t first) const override {
    const std::vector<double> numbers = NumbersOf(rows);
    const auto count = static_cast<size_t>(rows.spec.shape[0]);
    const size_t width = count > 0 ? numbers.size() / count : 0;
    std::string text = is_csv_ && first == 0 ? Names(width) : "";
    for (size_t i = 0; i < count; ++i) {
      const std::span<const double> row(numbers.data() + i * width, width);
      const int64_t sample = first + static_cast<int64_t>(i);
      text +=
          (options_.classes ? ClassLine(sample, row) : OutputLine(sample, row, rows.spec.dtype)) +
          "\n";
    }
    return text;
  }
  std::string Head(const TensorSpec&) const override { return ""; }

 private:
  std::string Names(size_t width) const {
    if (options_.classes) return "sample,class,probability\n";
    std::string head = "sample";
    for (size_t i = 0; i < width; ++i) head += Str(",output_", i);
    return head + "\n";
  }

  std::string OutputLine(int64_t sample, std::span<const double> row, DType dtype) const {
    std::vector<std::string> outputs;
    for (const double output : row) {
      const bool is_number = is_csv_ || std::isfinite(output);  // JSON has no others
      outputs.push_back(is_number ? NumberText(output, dtype)
                                  : Str('"', NumberText(output, dtype), '"'));
    }
    return is_csv_ ? Str(sample, ",", Join(outputs, ","))
                   : Str("{\"sample\": ", sample, ", \"output\": [", Join(outputs, ", "), "]}");
  }

  std::string ClassLine(int64_t sample, std::span<const double> row) const {
    const auto [number, probability] = LargestOf(row);
    const std::string share = NumberText(probability, DType::kFloat32);
    if (is_csv_) {
      const std::string name =
          options_.names.empty() ? std::to_string(number) : data::CsvField(options_.names[number]);
      return Str(sample, ",", name, ",", share);
    }
    const Value name = options_.names.empty() ? Value(static_cast<int64_t>(number))
                                              : Value(options_.names[number]);
    return Str("{\"sample\": ", sample, ", \"class\": ", name.ToJson(),
               ", \"probability\": ", share, "}");
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
  if (options.classes && !is_text) throw ConfigError("classes are written as .csv or .jsonl only");
  spec_.shape = {-1};  // none yet: the first rows tell
  if (options.classes) class_names_ = options.names.size();
  has_classes_ = options.classes;
  const std::string how = Str(what, options.classes ? " classes " : " ", Join(options.names, ","));
  if (is_text) {
    format_ = std::make_unique<Lines>(std::move(options), is_csv);
  } else {
    format_ = std::make_unique<Array>(is_numpy ? NumpyHeader : SafetensorsHeader);
  }
  file_ = std::make_unique<PartFile>(path, how, is_text ? 0 : kHeaderBytes);
  const Value& state = file_->state();
  if (state.is_null()) return;
  samples_ = state["samples"].as_int();
  spec_ = {state["row"].as_ints(), ParseDType(state["dtype"].as_string())};
}

Predictions::~Predictions() = default;

void Predictions::Add(const Predicted& rows) {
  if (rows.spec.shape.empty()) return;
  TensorSpec row = rows.spec;
  row.shape[0] = 0;
  try {
    CheckRows(row);
  } catch (const ConfigError&) {
    file_->Discard();
    throw;
  }
  spec_ = row;
  const std::string bytes = format_->Bytes(rows, samples_);
  samples_ += rows.spec.shape[0];
  Value state;
  state.Set("samples", samples_).Set("row", Value::IntList(spec_.shape));
  file_->Add(bytes, state.Set("dtype", DTypeName(spec_.dtype)));
}

void Predictions::CheckRows(const TensorSpec& row) const {
  if (samples_ > 0 && row != spec_) {
    throw ConfigError(Str("the last layer gives rows of several shapes: ", spec_.ToString(), ", ",
                          row.ToString()));
  }
  if (path_.ends_with(".npy") && row.dtype == DType::kBFloat16) {
    throw ConfigError("numpy has no bfloat16: write the predictions as .safetensors");
  }
  if (!has_classes_) return;
  if (row.shape.size() != 2 || !IsFloating(row.dtype)) {
    throw ConfigError(Str("classes need outputs (samples, classes), the last layer gives ",
                          row.ToString(), " a row"));
  }
  if (row.shape[1] == 1) {
    throw ConfigError(
        "classes need an output for each, the last layer gives one score a sample, "
        "which is written without --as_classes");
  }
  if (class_names_ > 0 && static_cast<size_t>(row.shape[1]) != class_names_) {
    throw ConfigError(Str("there are ", class_names_, " names for ", row.shape[1], " classes"));
  }
}

void Predictions::Finish() {
  TensorSpec all = spec_;
  all.shape[0] = samples_;
  file_->Finish(format_->Head(all));
}

}  // namespace strata::launcher
