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

/// The dim of the rows of a tensor (N, T, ...) or (T, N, ...); -1 if it is neither.
int RowDim(const at::Tensor& x, const Documents& documents) {
  if (!x.defined() || x.dim() < 2) return -1;
  const int64_t rows = documents.rows(), tokens = documents.tokens();
  if (x.size(0) == rows && x.size(1) == tokens) return 0;
  return x.size(0) == tokens && x.size(1) == rows ? 1 : -1;
}

/// Tokens of one row of `x`, copied.
at::Tensor Part(const at::Tensor& x, int row_dim, const Place& place) {
  return x.narrow(row_dim, place.row, 1).narrow(1 - row_dim, place.begin, place.tokens).clone();
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
  for (const at::Tensor& x : input) {
    const int row_dim = RowDim(x, documents);
    if (row_dim < 0) return;
    of_row.push_back(Part(x, row_dim, row));
    alone.push_back(Part(x, row_dim, *place));
  }
  const at::Tensor& places = documents.places();
  const Tensors packed = Forward(layer, of_row, Part(places, 0, row), seed);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(Str(layer.label, " does not treat the documents of packed rows as texts of ",
                          "their own: it ", why, ". Between tokens only attention may mix, and ",
                          "the place of a token is strata.positions(x)"));
  };
  Tensors got;
  try {
    got = Forward(layer, alone, Part(places, 0, *place), seed);
  } catch (const ConfigError& error) {
    refuse(Str("cannot take a shorter text: ", Split(error.what(), '\n').front()));
  } catch (const c10::Error& error) {
    refuse(
        Str("cannot take a shorter text: ", Split(error.what_without_backtrace(), '\n').front()));
  }
  const Documents one_row(Part(places, 0, row));
  const Place inside = {0, place->begin, place->tokens};
  for (size_t i = 0; i < std::min(got.size(), packed.size()); ++i) {
    const int row_dim = RowDim(packed[i], one_row);
    if (row_dim < 0 || AreClose(got[i], Part(packed[i], row_dim, inside), tolerance_)) continue;
    refuse("gives other values for a document alone than for it behind another one");
  }
}

}  // namespace strata
