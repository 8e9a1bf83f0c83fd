// The tensors of connections follow those of the chain, in the order of connections.
#include "engine/runtime/stage/kept.h"

#include <iterator>
#include <utility>

#include "engine/base/check.h"

namespace strata {
namespace {

/// Removes the last `count` tensors and returns them.
Tensors TakeLast(Tensors& tensors, size_t count) {
  STRATA_CHECK(count <= tensors.size()) << count << " kept of " << tensors.size();
  const auto first = tensors.end() - static_cast<std::ptrdiff_t>(count);
  Tensors last(std::make_move_iterator(first), std::make_move_iterator(tensors.end()));
  tensors.erase(first, tensors.end());
  return last;
}

void Append(Tensors& tensors, Tensors more) {
  tensors.insert(tensors.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
}

}  // namespace

void Kept::TakeFromInput(Tensors& input) {
  for (auto value = values_.rbegin(); value != values_.rend(); ++value) {
    if (!Crosses(value->connection, begin_) || !IsThere(value->connection)) continue;
    kept_[value->connection.from] = TakeLast(input, value->tensors);
  }
}

void Kept::GiveTo(int layer, Tensors& inputs) {
  for (const KeptValue& value : values_) {
    if (value.connection.to != layer || value.connection.of_documents) continue;
    Append(inputs, std::move(kept_.at(value.connection.from)));
  }
}

void Kept::TakeFrom(int layer, Tensors& outputs) {
  for (const KeptValue& value : values_) {
    if (value.connection.from != layer || !IsThere(value.connection)) continue;
    kept_[layer] = TakeLast(outputs, value.tensors);
  }
}

const at::Tensor* Kept::documents() const {
  for (const KeptValue& value : values_) {
    if (!value.connection.of_documents) continue;
    const auto kept = kept_.find(value.connection.from);
    return kept == kept_.end() ? nullptr : &kept->second.at(0);
  }
  return nullptr;
}

void Kept::GiveToOutput(Tensors& output) {
  for (const KeptValue& value : values_) {
    if (!Crosses(value.connection, end_) || !IsThere(value.connection)) continue;
    Append(output, kept_.at(value.connection.from));
  }
}

}  // namespace strata
