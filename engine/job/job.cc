#include "engine/job/job.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/job_table.h"

namespace strata {
Batch ResolveBatch(const Batch& batch) {
  const int64_t m = batch.micro_batches, each = batch.micro_batch_size;
  const int given = (batch.size > 0) + (m > 0) + (each > 0);
  if (given < 2) {
    throw ConfigError(
        "batch needs two of size, micro_batches and micro_batch_size: batch = {micro_batches = 4, "
        "micro_batch_size = 8}");
  }
  int64_t product = 0;
  if (batch.size == 0) {
    if (__builtin_mul_overflow(m, each, &product)) {
      throw ConfigError(Str("batch: micro_batches ", m, " * micro_batch_size ", each,
                            " is more samples than can be counted"));
    }
    return {product, m, each};
  }
  const int64_t divisor = m > 0 ? m : each;
  if (m > 0 && each > 0 && !(batch.size / m == each && batch.size % m == 0)) {
    throw ConfigError(Str("batch: size ", batch.size, " is not micro_batches ", m,
                          " * micro_batch_size ", each, "; two of the three suffice"));
  }
  if (batch.size % divisor != 0) {
    throw ConfigError(Str("batch: size ", batch.size, " is not divisible by ",
                          m > 0 ? "micro_batches " : "micro_batch_size ", divisor));
  }
  const int64_t other = batch.size / divisor;
  return m > 0 ? Batch{batch.size, m, other} : Batch{batch.size, other, each};
}

Value Job::ToValue() const {
  Value value;
  for (const JobKey& key : JobTable()) key.show(*this, value);
  return value;
}

std::vector<std::string> KeysFreeOnResume() {
  std::vector<std::string> names;
  for (const JobKey& key : JobTable()) {
    if (key.free_on_resume) names.push_back(key.field.name);
  }
  return names;
}

}  // namespace strata
