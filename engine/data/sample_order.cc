#include "engine/data/sample_order.h"

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

SampleOrder SampleOrder::Part(int64_t begin, int64_t end) const {
  SampleOrder part(end - begin);
  part.begin_ = begin_ + begin;
  part.permutation_ = permutation_;
  if (!list_.empty()) part.list_.assign(list_.begin() + begin, list_.begin() + end);
  return part;
}

}  // namespace strata
