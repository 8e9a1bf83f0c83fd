// Helpers for tests: temporary folders and files, small saves of three ranks, and files of weights.
#pragma once

#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/full_disk.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/checkpoint/save_part.h"

namespace strata {

/// A new temporary folder. The destructor removes it.
class TestFolder {
 public:
  TestFolder() {
    const char* base = std::getenv("TEST_TMPDIR");
    path_ = std::string(base ? base : "/tmp") + "/strata_XXXXXX";
    STRATA_CHECK(::mkdtemp(path_.data())) << path_;
  }
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string Inside(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  STRATA_CHECK(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// All boxes of a tensor, including empty ones.
inline std::vector<Slice> AllBoxes(const std::vector<int64_t>& shape) {
  std::vector<Slice> boxes = {Slice::Whole({})};
  for (const int64_t size : shape) {
    std::vector<Slice> longer;
    for (const Slice& box : boxes) {
      for (int64_t begin = 0; begin <= size; ++begin) {
        for (int64_t end = begin; end <= size; ++end) {
          std::vector<int64_t> offset = box.offset, sizes = box.shape;
          offset.push_back(begin);
          sizes.push_back(end - begin);
          longer.push_back(Slice::Box(offset, sizes));
        }
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

/// A tensor whose elements are first, first + 1, ... in row-major order.
struct TestTensor {
  std::string name;
  TensorKind kind;
  std::vector<int64_t> shape;
  float first = 0;

  TensorSpec spec() const { return {shape, DType::kFloat32}; }
  std::vector<float> values() const {
    std::vector<float> values(static_cast<size_t>(spec().elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
    return values;
  }
  /// The elements that a slice holds, found one by one, as a reference for faster code.
  std::vector<float> Of(const Slice& slice) const {
    std::vector<float> box;
    const std::vector<float> all = values();
    const int64_t elements = Product(slice.shape);
    for (int64_t i = 0; i < elements; ++i) {
      int64_t rest = i, place = 0, stride = 1;
      for (size_t dim = shape.size(); dim-- > 0;) {
        place += (slice.offset[dim] + rest % slice.shape[dim]) * stride;
        rest /= slice.shape[dim];
        stride *= shape[dim];
      }
      box.push_back(all[static_cast<size_t>(place)]);
    }
    return {box.begin() + slice.begin, box.begin() + slice.begin + slice.count};
  }
};

/// A slice of a tensor, and the rank that owns it.
struct TestOwner {
  int rank = 0;
  TestTensor tensor;
  Slice slice;
};

inline TrainingState TestState(int64_t step) {
  TrainingState state;
  state.step = step;
  state.micro_batches = 4;
  state.micro_batch_size = 8;
  state.seed = 1234;
  state.data.Set("classes", Value::List{"cat", "d\nog"});
  state.optimizer = "adamw";
  state.job_name = "net";
  state.job = Value::MakeMap({{"name", "net"}, {"clip", 0.5}});
  state.job_digest = Digest(state.job.ToJson());
  return state;
}

/// Writes the slices of ranks 0 to ranks-1 to `temporary` and returns their manifest.
inline Manifest WriteParts(const std::string& temporary, const std::vector<TestOwner>& owners,
                           int ranks, int64_t step) {
  Manifest manifest;
  manifest.training = TestState(step);
  const std::atomic<bool> cancelled = false;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::vector<float>> memory;
    std::vector<OwnedSlice> slices;
    for (const TestOwner& owner : owners) {
      if (owner.rank != rank) continue;
      memory.push_back(owner.tensor.Of(owner.slice));
      slices.push_back({owner.tensor.name, owner.tensor.kind, owner.tensor.spec(), owner.slice,
                        memory.back().data()});
    }
    AddPart(manifest, SavePart::FromJson(WritePart(temporary, rank, slices, cancelled).ToJson()));
  }
  return manifest;
}

/// The slices of three ranks. Rank 0 holds whole tensors. Ranks 1 and 2 each hold half of a
/// weight's columns and a part of its moment.
inline std::vector<TestOwner> TestOwners() {
  const TestTensor weight = {"3.weight", TensorKind::kParameter, {4, 6}, 100};
  const TestTensor moment = {"3.weight#exp_avg", TensorKind::kMoment, {4, 6}, 200};
  const TestTensor mean = {"norm.running_mean", TensorKind::kBuffer, {5}, 300};
  const TestTensor scale = {"norm.scale", TensorKind::kParameter, {}, 400};
  Slice first_half = Slice::Box({0, 3}, {4, 3}), second_half = first_half;
  first_half.count = 5;
  second_half.begin = 5;
  second_half.count = 7;
  return {{0, mean, Slice::Whole({5})},
          {0, scale, Slice::Whole({})},
          {1, weight, Slice::Box({0, 0}, {4, 3})},
          {2, weight, Slice::Box({0, 3}, {4, 3})},
          {1, moment, first_half},
          {2, moment, second_half},
          {0, moment, Slice::Box({0, 0}, {4, 3})}};
}

/// Writes a save of TestOwners() and returns its path.
inline std::string WriteTestSave(SaveFolder& folder, int64_t step) {
  const std::string temporary = folder.Begin(step);
  return folder.Commit(temporary, WriteParts(temporary, TestOwners(), 3, step));
}

/// A tensor of a test file: its elements count from `first` on.
struct TestWeight {
  std::string name;
  std::vector<int64_t> shape;
  float first = 0;
};

inline void WriteTestWeights(const std::string& path, const std::vector<TestWeight>& weights) {
  std::vector<TensorDeclaration> declarations;
  for (const TestWeight& weight : weights) {
    declarations.push_back({weight.name, "F32", weight.shape});
  }
  SafetensorsWriter writer(path, declarations, {});
  for (const TestWeight& weight : weights) {
    const std::vector<float> values =
        TestTensor{weight.name, TensorKind::kParameter, weight.shape, weight.first}.values();
    writer.Write(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  }
  writer.Finish();
}

inline std::vector<float> FloatsOf(const TensorFile& file, const std::string& name) {
  const StoredTensor* tensor = file.Find(name);
  STRATA_CHECK(tensor) << name;
  std::vector<float> values(static_cast<size_t>(tensor->bytes) / sizeof(float));
  file.Read(*tensor, 0, values.data(), tensor->bytes);
  return values;
}

}  // namespace strata
