#include "engine/layers/inputs.h"

#include <algorithm>
#include <vector>

namespace strata {
namespace {

struct Row {
  std::string_view type;
  std::vector<std::string_view> names;
};

const std::vector<Row>& Table() {
  static const std::vector<std::string_view> decoder = {
      "tgt",      "memory",     "tgt_key_padding_mask", "memory_key_padding_mask",
      "tgt_mask", "memory_mask"};
  static const std::vector<Row> table = {
      {"MultiheadAttention", {"query", "key", "value", "key_padding_mask", "attn_mask"}},
      {"Transformer",
       {"src", "tgt", "src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask",
        "src_mask", "tgt_mask", "memory_mask"}},
      {"TransformerEncoderLayer", {"src", "src_key_padding_mask", "src_mask"}},
      {"TransformerEncoder", {"src", "src_key_padding_mask", "mask"}},
      {"TransformerDecoderLayer", decoder},
      {"TransformerDecoder", decoder},
      {"RNN", {"input", "h_0"}},
      {"GRU", {"input", "h_0"}},
      {"LSTM", {"input", "h_0", "c_0"}},
      {"EmbeddingBag", {"input", "per_sample_weights"}},
  };
  return table;
}

}  // namespace

std::span<const std::string_view> InputNames(std::string_view type) {
  const auto row = std::ranges::find(Table(), type, &Row::type);
  if (row == Table().end()) return {};
  return row->names;
}

}  // namespace strata
