// Helpers for this package's tests: a folder for data files, and readers of samples.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/data/open_dataset.h"

namespace strata {

/// Provides an empty folder for files, and opens sources as an engine does.
class DatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  /// Writes a file below folder_ and returns its path.
  std::string Write(const std::string& name, const std::string& content) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  std::unique_ptr<Dataset> Open(const std::string& kind, Value options) {
    return OpenDataset({kind, std::move(options), {}, ""}, context_);
  }
  std::string ErrorOf(const std::string& kind, const Value& options) {
    return strata::ErrorOf([&] { Open(kind, options); });
  }
  std::filesystem::path folder_;
  DatasetContext context_;
};

inline Value Options(Value::Map entries) { return Value::MakeMap(std::move(entries)); }

/// The input of a sample, as floats.
inline std::vector<float> Floats(const Dataset& dataset, int64_t index) {
  std::vector<float> values(static_cast<size_t>(dataset.input().elements()));
  dataset.Read(index, reinterpret_cast<std::byte*>(values.data()), nullptr);
  return values;
}

/// The input or the target of a sample, as integers.
inline std::vector<int64_t> Ints(const Dataset& dataset, int64_t index, bool target) {
  const TensorSpec spec = target ? dataset.target() : dataset.input();
  std::vector<int64_t> values(static_cast<size_t>(spec.elements()));
  std::byte* bytes = reinterpret_cast<std::byte*>(values.data());
  dataset.Read(index, target ? nullptr : bytes, target ? bytes : nullptr);
  return values;
}

/// A digits file of `count` lines: pixel p of line i is (i + p) % 17, its label is i % 10.
inline std::string DigitsLines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    for (int pixel = 0; pixel < 64; ++pixel) text += Str((i + pixel) % 17, ",");
    text += Str(i % 10, "\n");
  }
  return text;
}

/// A CIFAR-10 file of `count` records: labels 0, 1, ...; channel c of record i has the grey value
/// 10 * i + c.
inline std::string Cifar(int count) {
  std::string records;
  for (int i = 0; i < count; ++i) {
    records += static_cast<char>(i % 10);
    for (int channel = 0; channel < 3; ++channel) {
      records += std::string(1024, static_cast<char>(10 * i + channel));
    }
  }
  return records;
}

}  // namespace strata
