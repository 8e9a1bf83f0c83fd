#include "engine/layers/head_chunks.h"

#include <algorithm>
#include <atomic>

#include "engine/base/size_class.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/own_type.h"
#include "engine/layers/targets.h"

namespace strata {
namespace {

std::atomic<int64_t> rows_in_tests = 0;

int64_t RowsOf(std::span<const int64_t> logits) {
  int64_t rows = 1;
  for (const int64_t size : logits.first(logits.size() - 1)) rows *= size;
  return rows;
}

}  // namespace

bool MayRunInChunks(const LayerSpec& head, const LayerSpec& loss, int model) {
  const bool is_whole =
      model <= 1 || (SplitOf(head).empty() && !head.input_shard && !head.output_shard);
  return is_whole && head.type == "Linear" && !head.has_scripted_forward() && !OwnType(head) &&
         loss.type == "CrossEntropyLoss" && !loss.scripted;
}

// Fewer rows take less memory, but each chunk reads the weights and reads and writes their
// gradient. Milliseconds of forward and backward on one core (a Xeon with AVX-512), with
// so many rows in a chunk:
//
//   rows x inputs x classes    whole     64    128    256    384    512   1024
//   1024 x 768 x 50257          1521   2264   1642   1485   1398   1492
//   2048 x 512 x 32000          1437   2012   1589   1487   1470   1473   1421
//   2048 x 512 x 10000           400    589    456    424    414    410    401
//   2048 x 256 x 8192            203    221    190    190    194    192    198
//
// The numbers for GPUs are an estimate: there 2,048 rows are computed in bf16 in twice the time
// that it takes to read and write the gradient.
int64_t RowsOfChunk(int64_t classes, bool is_cpu) {
  if (const int64_t rows = rows_in_tests.load(std::memory_order_relaxed); rows > 0) return rows;
  const int64_t least = is_cpu ? 384 : 2048;
  const int64_t bytes = is_cpu ? int64_t{32} << 20 : int64_t{256} << 20;  // of float32 logits
  return std::max(least, bytes / (4 * classes) / 64 * 64);
}

std::optional<int64_t> RowsInChunks(std::span<const int64_t> logits,
                                    std::span<const int64_t> target, bool are_labels,
                                    const LayerSpec& loss, bool is_cpu) {
  const auto last = static_cast<int>(logits.size()) - 1;
  if (last < 1) return std::nullopt;
  const auto dims = FittingClassDims(logits, target, are_labels, GivenClassDim(loss));
  if (dims != std::vector<int>{last}) return std::nullopt;
  const int64_t rows = RowsOf(logits);
  return rows > RowsOfChunk(logits.back(), is_cpu) ? std::optional(rows) : std::nullopt;
}

std::optional<int64_t> RowsInChunks(std::span<const int64_t> logits, const LayerSpec& loss,
                                    bool is_cpu) {
  const auto last = static_cast<int64_t>(logits.size()) - 1;
  if (last < 1) return std::nullopt;
  LayerSpec given = loss;
  if (!GivenClassDim(loss)) given.class_dim = -1;
  return RowsInChunks(logits, logits.first(logits.size() - 1), /*are_labels=*/true, given, is_cpu);
}

// A chunk has its logits' log-softmax, the gradient of that, and the gradient of the logits at
// once, with label smoothing too. In half precision on the CPU, the product of a weight gradient is
// made beside the logits' gradient before it is added.
void CountInChunks(const LayerSpec& head, int64_t rows, DType compute, bool is_cpu,
                   LayerCost& cost) {
  const int64_t in = head.Int("in_features"), out = head.Int("out_features");
  const int64_t chunk = std::min(rows, RowsOfChunk(out, is_cpu));
  const int64_t item = DTypeSize(compute);
  const double again = static_cast<double>((rows - 1) / chunk) * static_cast<double>(in * out);
  cost.forward.bytes += again * static_cast<double>(item);
  cost.input_grad.bytes += again * static_cast<double>(item);
  if (!head.frozen) cost.weight_grad.bytes += 8 * again;  // sums in float32
  const int64_t exact = AllocatedBytes(4 * chunk * out), half = AllocatedBytes(item * chunk * out);
  const int64_t of_loss = 3 * exact;
  const bool rounds = item < 4 && is_cpu && !head.frozen;
  const int64_t of_weights = rounds ? half + AllocatedBytes(item * in * out) : 0;
  cost.forward_scratch = std::max(of_loss, of_weights) + 2 * AllocatedBytes(item * chunk * in);
  cost.backward_scratch = cost.input_grad_scratch = 0;
  cost.keeps_input = cost.defers_input = false;
  cost.deferred_bytes = 0;
  cost.kept_bytes = cost.input_bytes;
}

WithRowsOfChunk::WithRowsOfChunk(int64_t rows) : before_(rows_in_tests.exchange(rows)) {}
WithRowsOfChunk::~WithRowsOfChunk() { rows_in_tests = before_; }

}  // namespace strata
