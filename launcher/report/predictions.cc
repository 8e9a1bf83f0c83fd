// Arrays leave room for their header, which is written when their length is known.
#include "launcher/report/predictions.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/weights/convert_elements.h"
#include "engine/data/files/array_file.h"

namespace strata::launcher {
namespace {

constexpr size_t kHeaderBytes = 256;

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

/// The field of a CSV file (RFC 4180).
std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text)
    quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + "\"";
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
  explicit Format(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (!fd_.is_open()) ThrowErrno("cannot write " + path);
  }
  virtual ~Format() = default;
  /// `first`: the number of the first of these samples.
  virtual void Add(const Predicted& rows, int64_t first) = 0;
  virtual void End(const TensorSpec& all) = 0;
  void Sync() {
    if (::fsync(fd_.get()) != 0) ThrowErrno("cannot write " + path_);
  }

 protected:
  void Write(std::string_view bytes) { WriteAll(fd_.get(), bytes, path_); }
  void Rewind() {
    if (::lseek(fd_.get(), 0, SEEK_SET) != 0) ThrowErrno("cannot write " + path_);
  }

 private:
  const std::string path_;
  Fd fd_;
};

class Predictions::Array : public Predictions::Format {
 public:
  using Header = std::string (*)(const TensorSpec&);
  Array(const std::string& path, Header header) : Format(path), header_(header) {
    Write(std::string(kHeaderBytes, ' '));
  }
  void Add(const Predicted& rows, int64_t) override { Write(rows.bytes); }
  void End(const TensorSpec& all) override {
    const std::string header = header_(all);
    Rewind();
    Write(header);
  }

 private:
  const Header header_;
};

class Predictions::Lines : public Predictions::Format {
 public:
  Lines(const std::string& path, PredictionOptions options, bool is_csv)
      : Format(path), options_(std::move(options)), is_csv_(is_csv) {}

  void Add(const Predicted& rows, int64_t first) override {
    const std::vector<double> numbers = NumbersOf(rows);
    const auto count = static_cast<size_t>(rows.spec.shape[0]);
    if (count == 0) return;
    const size_t width = numbers.size() / count;
    std::string text = is_csv_ && first == 0 ? Head(width) : "";
    for (size_t i = 0; i < count; ++i) {
      const std::span<const double> row(numbers.data() + i * width, width);
      const int64_t sample = first + static_cast<int64_t>(i);
      text +=
          (options_.classes ? ClassLine(sample, row) : OutputLine(sample, row, rows.spec.dtype)) +
          "\n";
    }
    Write(text);
  }
  void End(const TensorSpec&) override {}

 private:
  std::string Head(size_t width) const {
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
          options_.names.empty() ? std::to_string(number) : CsvText(options_.names[number]);
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

Predictions::Predictions(const std::string& path, PredictionOptions options)
    : path_(path), beside_(PlaceBeside(path)) {
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
  if (is_text) {
    format_ = std::make_unique<Lines>(beside_, std::move(options), is_csv);
  } else {
    format_ = std::make_unique<Array>(beside_, is_numpy ? NumpyHeader : SafetensorsHeader);
  }
}

Predictions::~Predictions() {
  if (format_) ::unlink(beside_.c_str());
}

void Predictions::Add(const Predicted& rows) {
  if (rows.spec.shape.empty() || rows.spec.shape[0] == 0) return;
  TensorSpec row = rows.spec;
  row.shape[0] = 0;
  if (samples_ == 0) CheckRows(row);
  if (samples_ == 0) spec_ = row;
  if (row != spec_) {
    throw ConfigError(Str("the last layer gives rows of several shapes: ", spec_.ToString(), ", ",
                          row.ToString()));
  }
  format_->Add(rows, samples_);
  samples_ += rows.spec.shape[0];
}

void Predictions::CheckRows(const TensorSpec& row) const {
  if (path_.ends_with(".npy") && row.dtype == DType::kBFloat16) {
    throw ConfigError("numpy has no bfloat16: write the predictions as .safetensors");
  }
  if (!has_classes_) return;
  if (row.shape.size() != 2 || !IsFloating(row.dtype)) {
    throw ConfigError(Str("classes need outputs (samples, classes), the last layer gives ",
                          row.ToString(), " a row"));
  }
  if (class_names_ > 0 && static_cast<size_t>(row.shape[1]) != class_names_) {
    throw ConfigError(Str("there are ", class_names_, " names for ", row.shape[1], " classes"));
  }
}

void Predictions::Finish() {
  TensorSpec all = spec_;
  all.shape[0] = samples_;
  format_->End(all);
  format_->Sync();
  format_ = nullptr;
  MoveIntoPlace(beside_, path_);
}

}  // namespace strata::launcher
