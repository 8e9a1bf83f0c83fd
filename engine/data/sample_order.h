// SampleOrder: the order of the samples of a dataset, ascending or shuffled. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace strata {

/// A pseudo-random permutation of 0 to size - 1 that is computed, so it needs no memory.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed);
  int64_t operator[](int64_t place) const;

 private:
  uint64_t Mix(uint64_t number) const;

  static constexpr int kRounds = 6;
  uint64_t size_;
  int half_bits_ = 1;  // half the bits of a number that is mixed
  uint64_t keys_[kRounds];
};

/// Maps each place in the order to the index of its sample.
///
/// A shuffled order of up to kMostListed samples is a list made by Fisher-Yates with mt19937_64,
/// and takes 4 bytes a sample. Trainings resume in the middle of such an order, so it must never
/// change. A longer order is a Permutation.
///
/// Windowed() is for samples that are costly to read far from each other. It cuts the samples into
/// kRuns runs a window, of samples that follow each other, from a random one on; takes the runs in
/// random order; and shuffles the samples of kRuns runs at a time. All of it is computed from the
/// seed, so any place is found without the ones before, and a training resumes there.
class SampleOrder {
 public:
  static constexpr int64_t kMostListed = int64_t{1} << 27;

  /// The ascending order.
  explicit SampleOrder(int64_t size) : size_(size) {}
  static SampleOrder Shuffled(int64_t size, uint64_t seed);
  static constexpr int64_t kRuns = 16;
  /// Shuffled() for a window of all samples. REQUIRES: window >= 1.
  static SampleOrder Windowed(int64_t size, int64_t window, uint64_t seed);

  int64_t size() const { return size_; }
  /// REQUIRES: 0 <= place < size().
  int64_t operator[](int64_t place) const {
    if (!list_.empty()) return list_[static_cast<size_t>(place)];
    if (run_ > 0) return InWindow(begin_ + place);
    return permutation_ ? (*permutation_)[begin_ + place] : begin_ + place;
  }
  /// The places begin to end - 1 of this order. REQUIRES: 0 <= begin <= end <= size().
  SampleOrder Part(int64_t begin, int64_t end) const;

 private:
  int64_t InWindow(int64_t place) const;

  int64_t begin_ = 0;  // unused if there is a list
  int64_t size_;
  std::vector<uint32_t> list_;              // empty if the order is computed
  std::optional<Permutation> permutation_;  // with windows: of the whole runs
  int64_t run_ = 0;                         // samples of a run; 0 = no windows
  int64_t all_ = 0, first_ = 0;  // with windows: all samples, and the one that runs begin at
  uint64_t seed_ = 0;            // with windows: of their orders
};

}  // namespace strata
