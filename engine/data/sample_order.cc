#include "engine/data/sample_order.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "engine/base/split_mix.h"

namespace strata {

// A Feistel network permutes the numbers of 2 * half_bits bits, whatever its round function is:
//
//   (left, right) -> (right, left ^ F(right))      once per round, with a key of its own
//
// Fewer numbers than such a power of four are permuted by "cycle walking": a result that is too
// large is mixed again, until one is below the size. That ends, since the walk follows a cycle of
// the permutation on which the start lies, and takes fewer than four steps on average.
Permutation::Permutation(int64_t size, uint64_t seed) : size_(static_cast<uint64_t>(size)) {
  while (half_bits_ < 32 && uint64_t{1} << (2 * half_bits_) < size_) ++half_bits_;
  SplitMixRandom random(seed);
  for (uint64_t& key : keys_) key = random.Next();
}

uint64_t Permutation::Mix(uint64_t number) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = number >> half_bits_, right = number & mask;
  for (const uint64_t key : keys_) {
    left = std::exchange(right, left ^ (SplitMix(right + key) & mask));
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator[](int64_t place) const {
  uint64_t number = static_cast<uint64_t>(place);
  do number = Mix(number);
  while (number >= size_);
  return static_cast<int64_t>(number);
}

SampleOrder SampleOrder::Shuffled(int64_t size, uint64_t seed) {
  SampleOrder order(size);
  if (size > kMostListed) {
    order.permutation_.emplace(size, seed);
    return order;
  }
  // Our own Fisher-Yates, since the result of std::shuffle differs between standard libraries.
  std::vector<uint32_t>& list = order.list_;
  list.resize(static_cast<size_t>(size));
  std::iota(list.begin(), list.end(), 0);
  std::mt19937_64 random(seed);
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random() % i]);
  return order;
}

// With F whole runs of R samples, the order is: run permutation_[0], ..., run permutation_[F - 1],
// and the samples that are left, as a shorter run F. Window w has the places from w * kRuns * R on.
SampleOrder SampleOrder::Windowed(int64_t size, int64_t window, uint64_t seed) {
  if (window >= size) return Shuffled(size, seed);
  SampleOrder order(size);
  SplitMixRandom random(seed);
  order.run_ = std::max<int64_t>(1, window / kRuns);
  order.all_ = size;
  order.first_ = static_cast<int64_t>(random.Next() % static_cast<uint64_t>(size));
  order.permutation_.emplace(size / order.run_, random.Next());
  order.seed_ = random.Next();
  return order;
}

int64_t SampleOrder::InWindow(int64_t place) const {
  const int64_t window = kRuns * run_, number = place / window, begin = number * window;
  const Permutation inside(std::min(window, all_ - begin),
                           seed_ + SplitMix(static_cast<uint64_t>(number)));
  const int64_t chosen = begin + inside[place - begin];
  const int64_t run = chosen / run_;
  const bool is_whole = (run + 1) * run_ <= all_;
  return (first_ + (is_whole ? (*permutation_)[run] : run) * run_ + chosen % run_) % all_;
}

SampleOrder SampleOrder::Part(int64_t begin, int64_t end) const {
  SampleOrder part(end - begin);
  part.begin_ = begin_ + begin;
  part.permutation_ = permutation_;
  part.run_ = run_;
  part.all_ = all_;
  part.first_ = first_;
  part.seed_ = seed_;
  if (!list_.empty()) part.list_.assign(list_.begin() + begin, list_.begin() + end);
  return part;
}

}  // namespace strata
