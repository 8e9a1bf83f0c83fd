// The head of a language model in chunks: which last layers are computed together with the loss, a
// few hundred rows at a time, so that the logits never exist as a whole. The stage runs the chunks
// (engine/runtime/stage/chunked_head.h); costs and plans ask here what it will do.
//
// A Linear of 50,257 outputs and a CrossEntropyLoss make 201 KB of logits for each token, and as
// much again for their log-softmax and their gradients: 5 GB for 8,192 tokens. A chunk makes them
// for its own rows only and has its backward at once.
//
// Only the job's declaration and the shapes of a micro-batch decide, so all plans agree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/layers/layer_cost.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// True if the last layer and the loss may run in chunks: a Linear in the job's type, before a
/// CrossEntropyLoss. `model`: the number of ranks of the model axis. False for a Linear that they
/// share: its loss is computed on parts of the classes, by collectives in the order of the program.
bool MayRunInChunks(const LayerSpec& head, const LayerSpec& loss, int model);

/// The number of rows (tokens) of a chunk for so many classes. Micro-batches of no more rows have
/// one chunk, and are computed as ever.
int64_t RowsOfChunk(int64_t classes, bool is_cpu);

/// The rows of the logits, if they are computed in chunks; none if not. `logits`: the shape of the
/// head's output. `target`: that of the labels, or of the probabilities of all classes. The classes
/// must be in the last dim.
std::optional<int64_t> RowsInChunks(std::span<const int64_t> logits,
                                    std::span<const int64_t> target, bool are_labels,
                                    const LayerSpec& loss, bool is_cpu);

/// The same before the target is known: assumes that the loss takes the last dim for the classes
/// unless its class_dim says otherwise.
std::optional<int64_t> RowsInChunks(std::span<const int64_t> logits, const LayerSpec& loss,
                                    bool is_cpu);

/// Changes the costs of a head that runs in chunks. Its work stays where it was, although the
/// forward does all of it (ModelCosts::chunk_rows). The weights and their gradient are read
/// once per chunk. From the forward to the backward it keeps the gradient of its input alone.
void CountInChunks(const LayerSpec& head, int64_t rows, DType compute, bool is_cpu,
                   LayerCost& cost);

/// For tests: while an object lives, chunks have so many rows.
class WithRowsOfChunk {
 public:
  explicit WithRowsOfChunk(int64_t rows);
  ~WithRowsOfChunk();
  WithRowsOfChunk(const WithRowsOfChunk&) = delete;
  WithRowsOfChunk& operator=(const WithRowsOfChunk&) = delete;

 private:
  const int64_t before_;
};

}  // namespace strata
