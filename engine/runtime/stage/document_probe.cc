#include "engine/runtime/stage/document_probe.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/random/random.h"
#include "engine/layers/training_scope.h"

namespace strata {
namespace {

/// The second document of a packed row.
struct Place {
  int64_t row, begin, tokens;
};

std::optional<Place> SecondDocument(const Documents& documents) {
  const auto& rows = documents.lengths();
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].size() < 2) continue;
    return Place{static_cast<int64_t>(row), rows[row][0], rows[row][1]};
  }
  return std::nullopt;
}

/// The rows of (T, N, ...) are dim 1, of all other tensors dim 0.
int RowDim(int token_dim) { return token_dim == 0 ? 1 : 0; }

/// The dim of the tokens of an input whose layout nobody told: (N, T, ...), else (T, N, ...), else
/// the only other dim of so many elements; -1 if there is none.
int GuessTokenDim(const at::Tensor& x, const Documents& documents) {
  if (!x.defined() || x.dim() < 2) return -1;
  std::vector<int> found;
  for (int dim = 0; dim < x.dim(); ++dim) {
    const bool fits = x.size(dim) == documents.tokens() && x.size(RowDim(dim)) == documents.rows();
    if (fits && dim == 1) return dim;
    if (fits) found.push_back(dim);
  }
  return found.empty() || (found.size() > 1 && found[0] != 0) ? -1 : found[0];
}

/// The dim of the tokens of an output of one row: the only one in which the output for a part of
/// the row has fewer elements; -1 if it is not so.
int FindTokenDim(const at::Tensor& of_row, const at::Tensor& of_part, const Place& part,
                 int64_t tokens) {
  if (!of_row.defined() || !of_part.defined() || of_row.dim() != of_part.dim()) return -1;
  int found = -1;
  for (int dim = 0; dim < of_row.dim(); ++dim) {
    if (of_row.size(dim) == of_part.size(dim)) continue;
    if (found >= 0 || of_row.size(dim) != tokens || of_part.size(dim) != part.tokens) return -1;
    found = dim;
  }
  // The second output of a part of a decoder has tokens and no rows.
  return of_row.dim() > 1 && found >= 0 && of_row.size(RowDim(found)) == 1 ? found : -1;
}

/// Tokens of one row of `x`, copied.
at::Tensor Part(const at::Tensor& x, int token_dim, const Place& place) {
  return x.narrow(RowDim(token_dim), place.row, 1)
      .narrow(token_dim, place.begin, place.tokens)
      .clone();
}

Tensors Forward(const StageLayer& layer, Tensors input, const at::Tensor& places, uint64_t seed) {
  const at::AutoGradMode grad_mode(false);
  const Documents documents(places);
  const DocumentScope scope(&documents);
  const TrainingScope training(false);
  const RandomScope random(seed);
  Pass pass;
  pass.training = false;
  return layer.layer->Forward(input, pass);
}

bool AreClose(const at::Tensor& got, const at::Tensor& expected, double tolerance) {
  if (got.sizes() != expected.sizes()) return false;
  const at::Tensor whole = expected.to(at::kDouble);
  const double norm = whole.norm().item<double>();
  const double difference = got.to(at::kDouble).sub(whole).norm().item<double>();
  return !(difference > tolerance * norm);  // numbers that are not finite are reported elsewhere
}

}  // namespace

void DocumentProbe::See(const StageLayer& layer, const Tensors& input, const Documents& documents,
                        uint64_t seed) {
  if (seen_.contains(layer.index)) return;
  const std::optional<Place> place = SecondDocument(documents);
  if (!place) return;
  seen_.insert(layer.index);
  const Place row = {place->row, 0, documents.tokens()};
  Tensors of_row, alone;
  for (size_t i = 0; i < input.size(); ++i) {
    const auto known = token_dims_.find({layer.index, i});
    const int dim = known == token_dims_.end() ? GuessTokenDim(input[i], documents) : known->second;
    if (dim < 0) return;
    of_row.push_back(Part(input[i], dim, row));
    alone.push_back(Part(input[i], dim, *place));
  }
  const at::Tensor& places = documents.places();
  const Tensors packed = Forward(layer, of_row, Part(places, 1, row), seed);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(Str(layer.label, " does not treat the documents of packed rows as texts of ",
                          "their own: it ", why, ". Between tokens only attention may mix, and ",
                          "the place of a token is strata.positions(x)"));
  };
  Tensors got;
  try {
    got = Forward(layer, alone, Part(places, 1, *place), seed);
  } catch (const ConfigError& error) {
    refuse(Str("cannot take a shorter text: ", Split(error.what(), '\n').front()));
  } catch (const c10::Error& error) {
    refuse(
        Str("cannot take a shorter text: ", Split(error.what_without_backtrace(), '\n').front()));
  }
  const Place inside = {0, place->begin, place->tokens};
  for (size_t i = 0; i < std::min(got.size(), packed.size()); ++i) {
    const int dim = FindTokenDim(packed[i], got[i], *place, documents.tokens());
    token_dims_[{layer.index + 1, i}] = dim;
    if (dim < 0 || AreClose(got[i], Part(packed[i], dim, inside), tolerance_)) continue;
    refuse("gives other values for a document alone than for it behind another one");
  }
}

}  // namespace strata
